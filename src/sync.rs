//! What threads share by hand. Built for shuttle (`tests/shuttle`) every use of it is a
//! point where another thread may come between; else it is the real thing, by name.

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError, atomic};

#[cfg(not(shuttle))]
pub(crate) use tokio::{
    sync::{Notify, futures::Notified},
    time::sleep_until,
};

#[cfg(shuttle)]
pub(crate) use self::tried::{Notify, advance, sleep_until};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, PoisonError, atomic};
#[cfg(shuttle)]
pub(crate) use tokio::sync::futures::Notified;

#[cfg(shuttle)]
mod tried {
    use std::{
        pin::pin,
        sync::Arc,
        task::{Context, Waker},
        time::Duration,
    };

    use shuttle::sync::atomic::{AtomicBool, Ordering};
    use tokio::{
        sync::futures::{Notified, OwnedNotified},
        time::Instant,
    };

    /// Tokio's, with a point before each use, and after each that wakes somebody.
    #[derive(Debug, Default)]
    pub(crate) struct Notify {
        inner: Arc<tokio::sync::Notify>,
        point: AtomicBool,
    }

    impl Notify {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        fn point(&self) -> &Arc<tokio::sync::Notify> {
            self.point.load(Ordering::SeqCst);
            &self.inner
        }

        pub(crate) fn notified(&self) -> Notified<'_> {
            self.point().notified()
        }

        // By value, as tokio's.
        #[allow(clippy::needless_pass_by_value)]
        pub(crate) fn notified_owned(self: Arc<Self>) -> OwnedNotified {
            Arc::clone(self.point()).notified_owned()
        }

        pub(crate) fn notify_one(&self) {
            self.point().notify_one();
            self.point();
        }

        pub(crate) fn notify_waiters(&self) {
            self.point().notify_waiters();
            self.point();
        }
    }

    std::thread_local! {
        /// Told of each step of the clock. All threads that shuttle makes are one.
        static TICK: Arc<tokio::sync::Notify> = Arc::default();
    }

    /// Moves the clock of the runtime that the test is in, which is paused.
    pub(crate) fn advance(time: Duration) {
        let step = pin!(tokio::time::advance(time));
        // The clock moves at the first poll; the rest is about timers.
        let _ = step.poll(&mut Context::from_waker(Waker::noop()));
        TICK.with(|tick| tick.notify_waiters());
    }

    pub(crate) async fn sleep_until(until: Instant) {
        loop {
            let tick = TICK.with(Arc::clone).notified_owned();
            if Instant::now() >= until {
                return;
            }
            tick.await;
        }
    }
}

/// Runs `test` in very many orders of its threads, under a paused clock. `RACES` says
/// in how many of each kind, if not in 400. A failure prints the order, to be run again.
#[cfg(all(test, shuttle))]
pub(crate) fn in_many_orders(test: fn()) {
    let orders = std::env::var("RACES").map_or(400, |orders| orders.parse().expect("a number"));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    let _entered = runtime.enter();
    shuttle::check_random(test, orders);
    shuttle::check_pct(test, orders, 3);
}
