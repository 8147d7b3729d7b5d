//! What every operation goes through: the time limit, the breaker, the count.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    breaker::{Admission, Breaker},
    counts::ErrorCounts,
    error,
};
use crate::store::{StoreError, StoreErrorKind};

/// So many operation limits a large record may take: 8 MiB in two seconds, by default.
pub(super) const TRANSFER: u32 = 8;

/// Guards the way to one server.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    errors: Arc<ErrorCounts>,
    limit: Duration,
    address: String,
}

#[derive(Debug, Default)]
struct State {
    breaker: Breaker,
    /// The server is no part of its cluster just now.
    has_left: bool,
    told: Told,
}

/// What the log has of a server that does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Nothing,
    /// That it does not.
    Away,
    /// And that nobody asks it any more: no more is said of it until it answers.
    Left,
}

impl Gate {
    pub(super) fn new(limit: Duration, address: String, errors: Arc<ErrorCounts>) -> Self {
        Self { state: Mutex::default(), errors, limit, address }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    pub(super) fn is_open(&self) -> bool {
        self.state().breaker.is_open()
    }

    /// Whether an operation may go out now.
    pub(super) fn admit(&self) -> Admission {
        self.state().breaker.admit(Instant::now())
    }

    /// What an operation gets that may not.
    pub(super) fn refused(&self) -> StoreError {
        self.errors.count(StoreErrorKind::Open);
        let why = "the store does not answer: it is not asked for a moment";
        StoreError::new(StoreErrorKind::Open, why)
    }

    /// Runs an operation that may go out, within this limit.
    pub(super) async fn run<T>(
        &self,
        probe: bool,
        limit: Duration,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut forgo = Forgo { gate: self, armed: probe };
        let result = within(limit, operation).await;
        forgo.armed = false;
        match &result {
            Ok(_) => self.hear(probe),
            Err(error) => self.failed(error, probe),
        }
        result
    }

    /// Moves a large record: it may take longer, and how long it takes says nothing of
    /// the server's health.
    pub(super) async fn transfer<T>(
        &self,
        limit: Duration,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let result = within(limit, operation).await;
        match &result {
            Ok(_) => self.succeeded(),
            Err(error) if error.kind() == StoreErrorKind::TimedOut => self.count(error),
            Err(error) => self.failed(error, false),
        }
        result
    }

    /// Something came back, by whichever way.
    pub(super) fn succeeded(&self) {
        self.hear(false);
    }

    /// What asks whether the server is back came back.
    pub(super) fn probed(&self) {
        self.hear(true);
    }

    fn hear(&self, probe: bool) {
        let told = {
            let mut state = self.state();
            state.breaker.success(probe);
            if state.breaker.is_open() { Told::Nothing } else { std::mem::take(&mut state.told) }
        };
        if told != Told::Nothing {
            tracing::warn!(address = %self.address, "the store answers again");
        }
    }

    /// Counts what failed beside the breaker.
    pub(super) fn count(&self, error: &StoreError) {
        self.errors.count(error.kind());
    }

    fn failed(&self, error: &StoreError, probe: bool) {
        self.count(error);
        // An answer that makes no sense concerns one key: the store is there.
        if error.kind() == StoreErrorKind::Reply {
            return self.hear(probe);
        }
        // What the user may not will be refused again, whatever else works meanwhile.
        let refused = error.kind() == StoreErrorKind::Denied;
        let tell = {
            let mut state = self.state();
            let opened = state.breaker.failure(probe, refused, Instant::now());
            // Of a server that has left it is said where it comes back.
            let tell = opened && !state.has_left;
            if tell {
                state.told = Told::Away;
            }
            tell
        };
        if tell {
            tracing::warn!(address = %self.address, %error, "the store does not answer");
        }
    }

    /// The server is no part of its cluster any more.
    pub(super) fn leave(&self) {
        let tell = {
            let mut state = self.state();
            state.has_left = true;
            let tell = state.told == Told::Away;
            if tell {
                state.told = Told::Left;
            }
            tell
        };
        if tell {
            let address = &self.address;
            tracing::warn!(%address, "the server has left the cluster: it is not asked any more");
        }
    }

    /// It is a part of it again.
    pub(super) fn come_back(&self) {
        let tell = {
            let mut state = self.state();
            state.has_left = false;
            let tell = state.breaker.is_open() && state.told == Told::Nothing;
            if tell {
                state.told = Told::Away;
            }
            tell
        };
        if tell {
            tracing::warn!(address = %self.address, "the store does not answer");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn within<T>(
    limit: Duration,
    operation: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let result = tokio::time::timeout(limit, operation).await;
    result.unwrap_or_else(|_| Err(error::timed_out()))
}

/// Frees the probe's place where its future is dropped.
struct Forgo<'a> {
    gate: &'a Gate,
    armed: bool,
}

impl Drop for Forgo<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.gate.state().breaker.forgo(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Log {
        fn lines(&self) -> Vec<&'static str> {
            let text = std::mem::take(&mut *self.0.lock().expect("no panic"));
            let text = String::from_utf8(text).expect("text");
            let known = ["has left the cluster", "does not answer", "answers again"];
            let said = |line: &str| known.into_iter().find(|known| line.contains(known));
            text.lines().map(|line| said(line).expect("a known line")).collect()
        }
    }

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn fail(gate: &Gate) {
        (0..3).for_each(|_| gate.failed(&error::timed_out(), false));
    }

    /// What is said of a server that is away has an end, and is said once.
    #[test]
    fn a_server_that_leaves_is_spoken_of_once() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let gate = Gate::new(Duration::from_secs(1), "host:1".to_owned(), Arc::default());
        gate.leave();
        gate.come_back();
        assert!(log.lines().is_empty());
        fail(&gate);
        assert_eq!(log.lines(), ["does not answer"]);
        gate.leave();
        assert_eq!(log.lines(), ["has left the cluster"]);
        for _ in 0..3 {
            gate.come_back();
            fail(&gate);
            gate.leave();
        }
        assert!(log.lines().is_empty());
        gate.come_back();
        gate.succeeded();
        assert_eq!(log.lines(), ["answers again"]);
        // What was under way when it left.
        gate.leave();
        fail(&gate);
        assert!(log.lines().is_empty());
        gate.come_back();
        assert_eq!(log.lines(), ["does not answer"]);
        gate.succeeded();
        gate.succeeded();
        assert_eq!(log.lines(), ["answers again"]);
    }
}
