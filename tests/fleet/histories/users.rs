//! Which process each connection belongs to.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::{monitor::users, support::redis_server::RedisServer};

/// The user of a process.
pub(crate) fn name(number: usize) -> String {
    format!("node{number}")
}

/// Asks the server again and again who is connected: connections come and go.
pub(crate) struct Users {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<HashMap<String, usize>>>,
}

impl Users {
    pub(crate) fn start(redis: &Arc<RedisServer>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (ended, redis) = (Arc::clone(&over), Arc::clone(redis));
        let thread = std::thread::spawn(move || {
            let mut all = HashMap::new();
            while !ended.load(Ordering::Relaxed) {
                for (from, user) in users(&redis) {
                    let number = user.strip_prefix("node").and_then(|number| number.parse().ok());
                    all.extend(number.map(|number| (from, number)));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            all
        });
        Self { over, thread: Some(thread) }
    }

    /// The number of the process behind each address.
    pub(crate) fn end(&mut self) -> HashMap<String, usize> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(|thread| thread.join().expect("no panic")).unwrap_or_default()
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
