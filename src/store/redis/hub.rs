//! Who listens to which key, and the one connection that pushes come by.
//!
//! Only who follows listens, and who owns for longer than a moment. So `SUBSCRIBE` (in a
//! cluster `SSUBSCRIBE`) goes after `join`, in one write with the question whether the
//! record is still what `join` said: the server answers in this order, and what fell
//! between the two is seen by that. What is sent is sent under the lock of the table, so
//! that the server sees subscriptions change in the table's order.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bb8_redis::redis::{Pipeline, PushInfo, PushKind, Value, aio::MultiplexedConnection};
use tokio::{sync::Notify, task::AbortHandle};

use super::{
    connect::Connector,
    keys::Names,
    line::{self, Sent},
    push,
    queue::Queue,
    seat::Seat,
    vigil::{Pulse, Vigils},
};
use crate::{id::KeyDigest, store::Pushed};

/// The listeners of a process.
pub(super) struct Hub {
    pub(super) connector: Connector,
    pub(super) names: Names,
    pub(super) limit: Duration,
    /// Told when the line comes or goes.
    pub(super) changed: Arc<Notify>,
    pub(super) pulse: Arc<Pulse>,
    /// The line by which the server does not tell of changes.
    deaf: AtomicU64,
    table: Mutex<Table>,
}

/// Keys, their listeners, and the line.
#[derive(Default)]
pub(super) struct Table {
    pub(super) line: Option<Line>,
    pub(super) listeners: HashMap<KeyDigest, Vec<Arc<Queue>>>,
    /// In a cluster: subscriptions whose end was asked for, and how often.
    pub(super) leaving: HashMap<KeyDigest, u32>,
    pub(super) marks: u64,
    pub(super) vigils: Vigils,
    keeper: Option<AbortHandle>,
    connecting: bool,
    lines: u64,
}

/// A connection for pushes. What a line that was replaced still says is not heard.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) connection: MultiplexedConnection,
}

impl Hub {
    pub(super) fn new(connector: Connector, names: Names, limit: Duration) -> Self {
        let (changed, pulse, deaf, table) = Default::default();
        Self { connector, names, limit, changed, pulse, deaf, table }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens for one key from now on.
    pub(super) fn seat(self: &Arc<Self>, key: KeyDigest) -> Seat {
        let queue = Arc::new(Queue::default());
        self.admit(key, &queue);
        Seat::new(Arc::clone(self), key, queue)
    }

    /// Listens for one key by this queue.
    pub(super) fn admit(&self, key: KeyDigest, queue: &Arc<Queue>) {
        self.table().listeners.entry(key).or_default().push(Arc::clone(queue));
    }

    /// Tells those to look whose keys have gone to another server.
    pub(super) fn displace(&self, gone: impl Fn(KeyDigest) -> bool) {
        let table = self.table();
        let displaced = table.listeners.iter().filter(|(key, _)| gone(**key));
        displaced.flat_map(|(_, queues)| queues).for_each(|queue| queue.push(Pushed::Gap));
    }

    /// Makes sure that somebody keeps the line up, in a runtime that lives.
    pub(super) fn keep(self: &Arc<Self>) {
        if !self.connector.pushes() {
            return;
        }
        let mut table = self.table();
        if table.keeper.as_ref().is_some_and(|keeper| !keeper.is_finished()) {
            return;
        }
        // A runtime that ended took the connection's task with it.
        table.line = None;
        table.vigils.fall_all();
        table.connecting = true;
        let keeper = tokio::spawn(line::keep(Arc::downgrade(self), Arc::clone(&self.changed)));
        table.keeper = Some(keeper.abort_handle());
    }

    /// Waits a while for a line that is being opened; not for one that failed.
    pub(super) async fn line_opened(&self, limit: Duration) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if !self.table().connecting {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(limit, wait).await;
    }

    /// The number of a line that is about to be opened.
    pub(super) fn opening(&self) -> u64 {
        let mut table = self.table();
        table.connecting = true;
        table.lines += 1;
        table.lines
    }

    /// No line came of it.
    pub(super) fn not_opened(&self) {
        self.table().connecting = false;
        self.changed.notify_waiters();
    }

    /// Puts the line to use, and subscribes all keys on it. Also whoever listened
    /// before: they are told to look once the server has confirmed.
    pub(super) fn opened(
        &self,
        number: u64,
        connection: MultiplexedConnection,
    ) -> (Option<Sent>, Vec<Arc<Queue>>) {
        let mut pipe = Pipeline::new();
        let mut table = self.table();
        for key in table.listeners.keys() {
            pipe.cmd(self.names.subscribe()).arg(self.names.channel(*key));
        }
        table.leaving.clear();
        table.connecting = false;
        table.vigils.fall_all();
        table.line = Some(Line { number, connection: connection.clone() });
        let sent = (!pipe.is_empty()).then(|| Sent::new(connection, pipe));
        let listeners = table.listeners.values().flatten().cloned().collect();
        drop(table);
        self.changed.notify_waiters();
        (sent, listeners)
    }

    /// The line is of no more use.
    pub(super) fn give_up(&self, number: u64) {
        let gone = {
            let mut table = self.table();
            let gone = table.line.take_if(|line| line.number == number);
            if gone.is_some() {
                table.vigils.fall_all();
            }
            gone
        };
        if gone.is_some() {
            self.changed.notify_waiters();
        }
    }

    /// Whether the server is known not to tell of changes on this line.
    pub(super) fn is_deaf(&self, number: u64) -> bool {
        self.deaf.load(Ordering::Relaxed) == number
    }

    /// The server does not tell of changes on this line.
    pub(super) fn deafen(&self, number: u64) {
        if self.deaf.swap(number, Ordering::Relaxed) != number {
            let address = &self.connector;
            tracing::info!(%address, "no CLIENT TRACKING: answers are looked up at each use");
        }
    }

    pub(super) fn has_line(&self, number: u64) -> bool {
        self.table().line.as_ref().is_some_and(|line| line.number == number)
    }

    /// Hears what the server sends on a line.
    pub(super) fn hear(&self, number: u64, info: PushInfo) {
        match info.kind {
            PushKind::Disconnection => self.give_up(number),
            PushKind::Message | PushKind::SMessage => self.message(info.data),
            PushKind::SUnsubscribe => self.ended(&info.data),
            PushKind::Invalidate if self.has_line(number) => self.changed_records(&info.data),
            _ => {}
        }
    }

    /// Records have changed that were read on the line; all of them, where none is named.
    fn changed_records(&self, data: &[Value]) {
        let mut table = self.table();
        let Some(Value::Array(names)) = data.first() else { return table.vigils.fall_all() };
        for name in names {
            if let Value::BulkString(name) = name
                && let Some(key) = self.names.key_of_meta(name)
            {
                table.vigils.fall(key);
            }
        }
    }

    /// A subscription ended: asked for here, or since its slot has left the server.
    fn ended(&self, data: &[Value]) {
        let Some(Value::BulkString(channel)) = data.first() else { return };
        let Some(key) = self.names.key_of_channel(channel) else { return };
        let mut table = self.table();
        if let Some(count) = table.leaving.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                table.leaving.remove(&key);
            }
            return;
        }
        for queue in table.listeners.get(&key).into_iter().flatten() {
            queue.end();
            queue.push(Pushed::Gap);
        }
        drop(table);
        self.connector.doubt();
    }

    fn message(&self, data: Vec<Value>) {
        let Ok([Value::BulkString(channel), Value::BulkString(payload)]) =
            <[Value; 2]>::try_from(data)
        else {
            return;
        };
        let Some(key) = self.names.key_of_channel(&channel) else { return };
        let Some(pushed) = push::parse(payload) else { return };
        if let Some(queues) = self.table().listeners.get(&key) {
            queues.iter().for_each(|queue| queue.push(pushed.clone()));
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(keeper) = self.table().keeper.take() {
            keeper.abort();
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("keys", &self.table().listeners.len()).finish_non_exhaustive()
    }
}
