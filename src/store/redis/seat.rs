//! One session's place among the listeners.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Waker},
};

use bb8_redis::redis::{Cmd, Pipeline, Value};

use super::{error, hub::Hub, line::Sent, queue::Queue, script::Call, suspect::Suspect};
use crate::{
    id::KeyDigest,
    store::{Pushed, StoreError},
};

/// Listens to one key. Dropping it ends the subscription.
pub(super) struct Seat {
    hub: Arc<Hub>,
    key: KeyDigest,
    queue: Arc<Queue>,
    /// The line on which the server confirmed the subscription.
    line: u64,
}

impl Seat {
    pub(super) fn new(hub: Arc<Hub>, key: KeyDigest, queue: Arc<Queue>) -> Self {
        Self { hub, key, queue, line: 0 }
    }

    /// The next push for the key.
    pub(super) async fn next(&self) -> Pushed {
        self.queue.next().await
    }

    /// Subscribes and runs a script in one write. None where there is no line.
    pub(super) async fn send(&mut self, call: &Call) -> Option<Result<Value, StoreError>> {
        let mut pipe = Pipeline::with_capacity(2);
        let (line, sent) = {
            let table = self.hub.table();
            let line = table.line.clone()?;
            // Each seat sends it: another's may have been dropped unsent.
            if self.line != line.number {
                pipe.cmd("SUBSCRIBE").arg(self.hub.names.channel(self.key));
            }
            pipe.add_command(call.by_hash());
            let sent = Sent::new(line.connection.clone(), pipe);
            (line, sent)
        };
        let suspect = Suspect::new(self.hub.limit, || self.hub.give_up(line.number));
        let mut answers = sent.await;
        if let Ok(values) = &answers {
            if values.len() == 2 && !matches!(values[0], Value::ServerError(_)) {
                self.line = line.number;
            }
            if values.last().is_some_and(error::is_missing_script) {
                let mut pipe = Pipeline::with_capacity(1);
                pipe.add_command(call.whole());
                answers = Sent::new(line.connection, pipe).await;
            }
        }
        suspect.answered(answers.as_ref().err());
        if answers.as_ref().is_ok_and(|values| values.iter().any(error::is_from_replica)) {
            self.hub.give_up(line.number);
        }
        Some(match answers {
            Ok(mut values) => values.pop().ok_or_else(error::bad_reply),
            Err(cause) => Err(error::from_redis(&cause)),
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.hub.table();
        let Some(queues) = table.listeners.get_mut(&self.key) else { return };
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        if !queues.is_empty() {
            return;
        }
        table.listeners.remove(&self.key);
        let Some(mut line) = table.line.clone() else { return };
        let mut command = Cmd::new();
        command.arg("UNSUBSCRIBE").arg(self.hub.names.channel(self.key)).set_no_response(true);
        // The first poll hands it over; nobody waits for the answer.
        let mut sent = Box::pin(tokio::task::unconstrained(async move {
            line.connection.send_packed_command(&command).await
        }));
        let _ = sent.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}
