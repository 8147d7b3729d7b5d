//! One server, and all ways to it.

use std::{fmt, sync::Arc, time::Duration};

use bb8_redis::{
    RedisConnectionManager, bb8,
    redis::{Cmd, Value},
};

use super::{
    address::Address,
    breaker::Admission,
    connect::{Connector, Membership},
    counts::ErrorCounts,
    error,
    gate::{Gate, TRANSFER},
    hub::Hub,
    keys::Names,
    pool::{Pool, Request, What},
    question::{Question, Way},
    seat::Seat,
    vigil::RedisVigil,
};
use crate::{
    id::KeyDigest,
    store::{StoreError, StoreErrorKind},
};

/// What servers have in common.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) names: Names,
    pub(super) operation_limit: Duration,
    pub(super) connect_limit: Duration,
    pub(super) pool_size: u32,
    pub(super) errors: Arc<ErrorCounts>,
}

/// One server: no other one's failing holds it up.
pub(super) struct Shard {
    pub(super) names: Names,
    pub(super) gate: Arc<Gate>,
    /// Small scripts.
    pub(super) pool: Pool,
    /// Large records, which would hold up small ones behind them.
    pub(super) bodies: Pool,
    pub(super) hub: Arc<Hub>,
    pub(super) connector: Connector,
}

impl Plan {
    /// The server at an address; `pool` is the application's.
    pub(super) fn server(
        &self,
        address: Address,
        pool: Option<bb8::Pool<RedisConnectionManager>>,
    ) -> Shard {
        self.shard(Connector::new(address, self.names.clone(), self.connect_limit), pool, None)
    }

    /// A node of a cluster; `gate` is what is known of the way to it.
    pub(super) fn node(
        &self,
        address: Address,
        membership: Membership,
        gate: Option<Arc<Gate>>,
    ) -> Shard {
        let connector = Connector::new(address, self.names.clone(), self.connect_limit);
        self.shard(connector.in_cluster(membership), None, gate)
    }

    fn shard(
        &self,
        connector: Connector,
        pool: Option<bb8::Pool<RedisConnectionManager>>,
        gate: Option<Arc<Gate>>,
    ) -> Shard {
        let (names, limit) = (self.names.clone(), self.operation_limit);
        let new = || Gate::new(limit, connector.to_string(), Arc::clone(&self.errors));
        Shard {
            gate: gate.unwrap_or_else(|| Arc::new(new())),
            pool: match pool {
                Some(pool) => Pool::given(pool, connector.clone(), limit),
                None => Pool::new(connector.clone(), self.pool_size, limit),
            },
            bodies: Pool::new(connector.clone(), 1, limit * TRANSFER),
            hub: Arc::new(Hub::new(connector.clone(), names.clone(), limit)),
            connector,
            names,
        }
    }
}

impl Shard {
    /// Asks within the limit, or refuses at once.
    pub(super) async fn ask(
        self: &Arc<Self>,
        mut question: Question<'_>,
    ) -> Result<Value, StoreError> {
        let limit = question.limit(&self.gate);
        self.asked(&mut question, limit, error::answered).await
    }

    /// Asks within this limit, or refuses at once; the breaker hears what `read` makes
    /// of the answer. Nothing waits for a server that is known to be away: it is asked
    /// beside it whether it is back.
    pub(super) async fn asked<T>(
        self: &Arc<Self>,
        question: &mut Question<'_>,
        limit: Duration,
        read: impl FnOnce(Value) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        self.admit()?;
        // What was on its way elsewhere before has little time left here.
        let patient = matches!(question.way, Way::Large) || limit < self.gate.limit() / 2;
        let answer = async { read(self.put(question, limit).await?) };
        if patient {
            return self.gate.transfer(limit, answer).await;
        }
        self.gate.run(false, limit, answer).await
    }

    pub(super) fn admit(self: &Arc<Self>) -> Result<(), StoreError> {
        match self.gate.admit() {
            Admission::Pass => return Ok(()),
            Admission::Probe => drop(tokio::spawn(Arc::clone(self).probe())),
            Admission::Refused => {}
        }
        Err(self.gate.refused())
    }

    /// Asks it whether it is back, if it was away and it is time to.
    pub(super) fn nudge(self: &Arc<Self>) {
        if self.gate.is_open() && self.gate.admit() == Admission::Probe {
            drop(tokio::spawn(Arc::clone(self).probe()));
        }
    }

    async fn put(&self, question: &mut Question<'_>, limit: Duration) -> Result<Value, StoreError> {
        let request = question.request;
        match (&mut question.way, request.what) {
            (Way::Large, _) => self.bodies.send(request).await,
            (Way::Seated(seat), _) if !request.asking => {
                // Apart: few questions go this way, and all would be as large.
                Box::pin(self.put_seated(seat, question.key, request, limit)).await
            }
            (Way::Tracked { .. }, _) if request.asking => Ok(Value::Nil),
            (Way::Tracked { vigil, silence }, What::Command(read)) => {
                Box::pin(self.put_tracked(vigil, question.key, read, *silence, limit)).await
            }
            _ => self.pool.send(request).await,
        }
    }

    async fn put_tracked(
        &self,
        vigil: &mut Option<RedisVigil>,
        key: KeyDigest,
        read: &Cmd,
        silence: Duration,
        limit: Duration,
    ) -> Result<Value, StoreError> {
        self.hub.keep();
        self.hub.line_opened(limit / 2).await;
        let (value, tracked) = self.hub.track(key, read, silence).await?;
        *vigil = tracked;
        Ok(value)
    }

    async fn put_seated(
        &self,
        seat: &mut Option<Seat>,
        key: KeyDigest,
        request: Request<'_>,
        limit: Duration,
    ) -> Result<Value, StoreError> {
        self.hub.keep();
        self.hub.line_opened(limit / 2).await;
        let seat = seat.get_or_insert_with(|| self.hub.seat(key));
        seat.move_to(&self.hub);
        match seat.send(request.what).await {
            // It broke while it was idle: no answer was processed, so ask again.
            Some(Err(error)) if error.kind() == StoreErrorKind::Disconnected => {}
            Some(answer) => return answer,
            None => {}
        }
        // The line subscribes the seat when it is up, and then says to look.
        self.pool.send(request).await
    }

    // All that scripts do: a server that refuses a part of it would be found away again
    // by the next flight.
    async fn probe(self: Arc<Self>) {
        let asked = self.connector.asked();
        let call = asked.again();
        let sent = async { asked.hear(&self.pool.send(Request::script(&call)).await?) };
        // The breaker has heard how it went.
        drop(self.gate.run(true, self.gate.limit(), sent).await);
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shard({})", self.connector)
    }
}
