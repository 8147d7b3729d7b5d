//! One session's place among the listeners.

use std::{
    future::Future,
    io,
    sync::Arc,
    task::{Context, Waker},
};

use bb8_redis::redis::{Cmd, Pipeline, PushKind, Value};

use super::{
    error,
    hub::{Hub, Table},
    line::{Answer, Sent},
    pool::What,
    queue::Queue,
    suspect::Suspect,
};
use crate::{
    id::KeyDigest,
    store::{Pushed, StoreError},
};

/// Listens to one key. Dropping it ends the subscription.
pub(super) struct Seat {
    hub: Arc<Hub>,
    key: KeyDigest,
    queue: Arc<Queue>,
}

impl Seat {
    pub(super) fn new(hub: Arc<Hub>, key: KeyDigest, queue: Arc<Queue>) -> Self {
        Self { hub, key, queue }
    }

    /// The next push for the key.
    pub(super) async fn next(&self) -> Pushed {
        self.queue.next().await
    }

    /// Listens by another server's line from now on, where that has the key.
    pub(super) fn move_to(&mut self, hub: &Arc<Hub>) {
        if Arc::ptr_eq(&self.hub, hub) {
            return;
        }
        self.leave();
        self.queue.end();
        self.hub = Arc::clone(hub);
        hub.admit(self.key, &self.queue);
    }

    /// Whether the server has confirmed the subscription, on the line that is up.
    pub(super) fn is_up(&self) -> bool {
        self.hub.table().line.as_ref().is_some_and(|line| self.queue.is_on(line.number))
    }

    /// Tells its reader to look.
    pub(super) fn doubt(&self) {
        self.queue.push(Pushed::Gap);
    }

    /// Subscribes and asks in one write. None where there is no line.
    pub(super) async fn send(&mut self, what: What<'_>) -> Option<Result<Value, StoreError>> {
        let mut pipe = Pipeline::with_capacity(3);
        let (line, mark, sent) = {
            let mut table = self.hub.table();
            let line = table.line.clone()?;
            // Each seat sends it: another's may have been dropped unsent.
            if !self.queue.is_on(line.number) {
                self.queue.ask_on(line.number);
                pipe.cmd(self.hub.names.subscribe()).arg(self.hub.names.channel(self.key));
            }
            pipe.add_command(match what {
                What::Command(command) => command.clone(),
                What::Script { call, .. } => call.by_hash(),
            });
            let mark = Mark::on(&mut table, &self.hub, &mut pipe);
            let sent = Sent::new(line.connection.clone(), pipe);
            (line, mark, sent)
        };
        let suspect = Suspect::new(self.hub.limit, || self.hub.give_up(line.number));
        let mut answers = mark.check(sent.await);
        if let Ok(values) = &answers {
            if values.len() == 2 && !matches!(values[0], Value::ServerError(_)) {
                self.queue.confirm(line.number);
            }
            if let What::Script { call, .. } = what
                && values.last().is_some_and(error::is_missing_script)
            {
                let mut pipe = Pipeline::with_capacity(2);
                pipe.add_command(call.whole());
                let mark = Mark::on(&mut self.hub.table(), &self.hub, &mut pipe);
                answers = mark.check(Sent::new(line.connection, pipe).await);
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

impl Seat {
    fn leave(&self) {
        let mut table = self.hub.table();
        let Some(queues) = table.listeners.get_mut(&self.key) else { return };
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        if !queues.is_empty() {
            return;
        }
        table.listeners.remove(&self.key);
        let Some(mut line) = table.line.clone() else { return };
        if self.hub.names.is_sharded() {
            *table.leaving.entry(self.key).or_default() += 1;
        }
        let mut command = Cmd::new();
        let channel = self.hub.names.channel(self.key);
        command.arg(self.hub.names.unsubscribe()).arg(channel).set_no_response(true);
        // The first poll hands it over; nobody waits for the answer.
        let mut sent = Box::pin(tokio::task::unconstrained(async move {
            line.connection.send_packed_command(&command).await
        }));
        let _ = sent.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Ends what is sent to a node of a cluster. A node that lost a slot says so unasked,
/// by what the client takes for an answer: all that come after it are then taken for
/// those of the question before. What does not end with its own mark is such a one.
pub(super) struct Mark(Option<u64>);

impl Mark {
    pub(super) fn on(table: &mut Table, hub: &Hub, pipe: &mut Pipeline) -> Self {
        if !hub.names.is_sharded() {
            return Self(None);
        }
        table.marks += 1;
        // Nobody subscribes to that, and to end it takes no right of its own.
        pipe.cmd("UNSUBSCRIBE").arg(table.marks);
        Self(Some(table.marks))
    }

    /// The answers without the mark.
    pub(super) fn check(&self, answers: Answer) -> Answer {
        let Some(mark) = self.0 else { return answers };
        let mut values = answers?;
        match values.pop() {
            Some(Value::Push { kind: PushKind::Unsubscribe, data })
                if matches!(&data[..], [Value::BulkString(name), ..]
                    if *name == mark.to_string().into_bytes()) =>
            {
                Ok(values)
            }
            _ => {
                let why = io::Error::new(io::ErrorKind::ConnectionAborted, "answers are mixed up");
                Err(why.into())
            }
        }
    }
}
