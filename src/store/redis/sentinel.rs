//! Sentinels: who knows which server is the master just now.

use std::{fmt, time::Duration};

use bb8_redis::redis::{
    Cmd, ConnectionInfo, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{task::JoinSet, time::Instant};

use super::{address::Place, ask_once::ask_once, error};
use crate::store::{StoreError, StoreErrorKind};

/// A moment's part of the time limit: 50 ms, by default.
const MOMENT: u32 = 40;

/// The sentinels of one master.
#[derive(Clone)]
pub(super) struct Sentinels {
    places: Vec<ConnectionInfo>,
    master: String,
}

impl Sentinels {
    pub(super) fn new(places: Vec<ConnectionInfo>, master: &str) -> Self {
        Self { places, master: master.to_owned() }
    }

    /// The same sentinels, who ask for this user and password.
    pub(super) fn with_login(mut self, user: &str, password: &str) -> Self {
        for place in &mut self.places {
            let mut settings = place.redis_settings().clone().set_password(password);
            if !user.is_empty() {
                settings = settings.set_username(user);
            }
            *place = place.clone().set_redis_settings(settings);
        }
        self
    }

    /// The same sentinels, each reached in another way.
    #[cfg(feature = "tls")]
    pub(super) fn with_places(
        mut self,
        change: impl Fn(ConnectionInfo) -> Result<ConnectionInfo, StoreError>,
    ) -> Result<Self, StoreError> {
        self.places = self.places.into_iter().map(change).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Where the master is: what most of them say, or else whatever was said, by how
    /// many. All are asked at once, each on a connection that ends with its answer: one
    /// that is gone, silent or late holds up little, and misleads nobody.
    pub(super) async fn masters(&self, limit: Duration) -> Result<Vec<Place>, StoreError> {
        let mut asked = JoinSet::new();
        for place in &self.places {
            let (place, master) = (place.clone(), self.master.clone());
            asked.spawn(async move {
                let answer = tokio::time::timeout(limit, ask(&place, &master, limit)).await;
                answer.unwrap_or_else(|_| Err(error::timed_out()))
            });
        }
        let (mut votes, mut failure) = (Votes::default(), None);
        let mut end = Instant::now() + limit;
        while let Ok(Some(said)) = tokio::time::timeout_at(end, asked.join_next()).await {
            match said.unwrap_or_else(|_| Err(error::timed_out())) {
                Ok(place) => {
                    if votes.count(place) > self.places.len() / 2 {
                        break;
                    }
                    // Now the others have a moment left to say something else.
                    end = end.min(Instant::now() + limit / MOMENT);
                }
                Err(error) => failure = Some(error),
            }
        }
        let places = votes.places();
        if places.is_empty() {
            return Err(failure.unwrap_or_else(error::timed_out));
        }
        Ok(places)
    }
}

/// How many sentinels say so.
#[derive(Default)]
struct Votes(Vec<(usize, Place)>);

impl Votes {
    /// How many have said this by now.
    fn count(&mut self, place: Place) -> usize {
        if let Some((votes, _)) = self.0.iter_mut().find(|(_, other)| *other == place) {
            *votes += 1;
            return *votes;
        }
        self.0.push((1, place));
        1
    }

    fn places(mut self) -> Vec<Place> {
        self.0.sort_by_key(|(votes, _)| std::cmp::Reverse(*votes));
        self.0.into_iter().map(|(_, place)| place).collect()
    }
}

async fn ask(
    place: &ConnectionInfo,
    master: &str,
    limit: Duration,
) -> Result<(String, u16), StoreError> {
    let failed = |cause: &RedisError| {
        error::unreachable(&format_args!("the sentinel at {}", place.addr()), 0, cause)
    };
    let mut ask = Cmd::new();
    ask.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    match ask_once(place, &ask, limit).await.map_err(|e| failed(&e))? {
        Value::Array(place) => match &place[..] {
            [Value::BulkString(host), Value::BulkString(port)] => {
                let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).ok();
                let (Some(host), Some(port)) = (text(host), text(port)) else {
                    return Err(error::bad_reply());
                };
                Ok((host, port.parse().map_err(|_| error::bad_reply())?))
            }
            _ => Err(error::bad_reply()),
        },
        Value::ServerError(cause) if error::is_unknown_command(&cause) => {
            let text = format!("{} is no sentinel", place.addr());
            Err(StoreError::new(StoreErrorKind::Connect, text))
        }
        Value::ServerError(cause) => {
            let inner = error::from_server(&cause);
            let text = format!("the sentinel at {}: {inner}", place.addr());
            Err(StoreError::new(inner.kind(), text))
        }
        Value::Nil => {
            let text = format!("the sentinel at {} knows no master {master}", place.addr());
            Err(StoreError::new(StoreErrorKind::Connect, text))
        }
        _ => Err(error::bad_reply()),
    }
}

/// Makes sure that this server is a master: a sentinel may be late.
pub(super) async fn is_master(connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
    let mut role = Cmd::new();
    role.arg("ROLE");
    match connection.req_packed_command(&role).await {
        Ok(Value::Array(role)) => match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(()),
            Some(_) => {
                let text = "the server that the sentinels name is not the master";
                Err(StoreError::new(StoreErrorKind::ReadOnly, text))
            }
            None => Err(error::bad_reply()),
        },
        // The check says so, once; what it writes is refused where it is none.
        Ok(Value::ServerError(error)) if error.code() == "NOPERM" => Ok(()),
        Ok(Value::ServerError(error)) => Err(error::from_server(&error)),
        Ok(_) => Err(error::bad_reply()),
        Err(error) => Err(error::from_redis(&error)),
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at ", self.master)?;
        for (n, place) in self.places.iter().enumerate() {
            write!(f, "{}{}", if n == 0 { "" } else { ", " }, place.addr())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_say_comes_first() {
        let place = |port| ("host".to_owned(), port);
        let mut votes = Votes::default();
        assert_eq!(votes.count(place(1)), 1);
        assert_eq!(votes.count(place(2)), 1);
        assert_eq!(votes.count(place(2)), 2);
        assert_eq!(votes.places(), [place(2), place(1)]);
    }
}
