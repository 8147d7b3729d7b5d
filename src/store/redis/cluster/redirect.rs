//! Answers that say to ask elsewhere, or later.

use bb8_redis::redis::{ServerError, Value};

use super::map;
use crate::store::{
    StoreError,
    redis::{address::Place, error},
};

/// What an answer comes to.
#[derive(Debug)]
pub(super) enum Heard {
    /// It is one.
    Answer(Value),
    /// Another node has the slot.
    Moved(Place),
    /// The slot is on its way to another node, and the key is there already.
    Ask(Place),
    /// The slot is on its way, and so are some of the keys.
    TryAgain,
    /// The node is no master, or not any more.
    Demoted,
}

/// Reads an answer of a node at this host.
pub(super) fn hear(answer: Value, host: &str) -> Result<Heard, StoreError> {
    let Value::ServerError(refusal) = &answer else { return Ok(Heard::Answer(answer)) };
    match refusal.code() {
        "MOVED" => place(refusal, host).map(Heard::Moved),
        "ASK" => place(refusal, host).map(Heard::Ask),
        "TRYAGAIN" => Ok(Heard::TryAgain),
        "READONLY" => Ok(Heard::Demoted),
        _ => Err(error::from_server(refusal)),
    }
}

/// `<slot> <host>:<port>`, where the host may be missing.
fn place(refusal: &ServerError, host: &str) -> Result<Place, StoreError> {
    let place = refusal.details().and_then(|details| details.split(' ').nth(1));
    let (name, port) = place.and_then(|p| p.rsplit_once(':')).ok_or_else(error::bad_reply)?;
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(error::bad_reply)?;
    Ok((map::known(name, host), port))
}

#[cfg(test)]
mod tests {
    use bb8_redis::redis::parse_redis_value;

    use super::*;

    fn heard(answer: &str) -> Result<Heard, StoreError> {
        let answer = format!("{answer}\r\n");
        hear(parse_redis_value(answer.as_bytes()).expect("an answer"), "seed")
    }

    #[test]
    fn redirections_are_read() {
        for (answer, host, port) in [
            ("-MOVED 3999 127.0.0.1:6381", "127.0.0.1", 6381),
            ("-MOVED 3999 ::1:6381", "::1", 6381),
            ("-MOVED 3999 node.example:6381", "node.example", 6381),
            ("-MOVED 3999 :6381", "seed", 6381),
            ("-MOVED 3999 ?:6381", "seed", 6381),
        ] {
            let place = (host.to_owned(), port);
            assert!(matches!(heard(answer), Ok(Heard::Moved(p)) if p == place), "{answer}");
            let answer = answer.replace("MOVED", "ASK");
            assert!(matches!(heard(&answer), Ok(Heard::Ask(p)) if p == place), "{answer}");
        }
        assert!(matches!(heard("-TRYAGAIN Multiple keys"), Ok(Heard::TryAgain)));
        assert!(matches!(heard("-READONLY You can't"), Ok(Heard::Demoted)));
        assert!(matches!(heard("+OK"), Ok(Heard::Answer(Value::Okay))));
    }

    #[test]
    fn hostile_redirections_are_errors() {
        for answer in [
            "-MOVED",
            "-MOVED 3999",
            "-MOVED 3999 host",
            "-MOVED 3999 host:",
            "-MOVED 3999 host:0",
            "-MOVED 3999 host:65536",
            "-MOVED 3999 host:-1",
            "-ASK 3999 host:x",
            "-CLUSTERDOWN The cluster is down",
            "-ERR unknown command",
        ] {
            assert!(heard(answer).is_err(), "{answer}");
        }
    }
}
