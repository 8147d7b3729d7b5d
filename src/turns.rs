//! Turns: who is let go together enters inner one after another.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, sleep_until},
};

/// Timers are no finer; what is late by less keeps to its schedule.
const GRAIN: Duration = Duration::from_millis(2);

/// Gives one turn after another, at a rate, to those who stand in line.
///
/// A task serves the line, so that a caller that is not polled holds up nobody.
pub(crate) struct Turns {
    interval: Duration,
    line: Mutex<Line>,
}

struct Line {
    waiting: VecDeque<oneshot::Sender<()>>,
    /// When the next turn is due.
    next: Instant,
    /// Turns that were given, and not used.
    given_back: usize,
    served: bool,
}

impl Turns {
    pub(crate) fn new(per_second: u32) -> Self {
        let line =
            Line { waiting: VecDeque::new(), next: Instant::now(), given_back: 0, served: false };
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self { interval, line: Mutex::new(line) }
    }

    /// Stands in line for a turn, from now on. Dropped, it leaves the line.
    pub(crate) fn turn(self: &Arc<Self>) -> Turn {
        Turn { place: self.stand_in_line(), turns: Arc::clone(self) }
    }

    /// A place at the end of the line; none where nobody can serve it.
    fn stand_in_line(self: &Arc<Self>) -> Option<oneshot::Receiver<()>> {
        let runtime = Handle::try_current().ok()?;
        let (turn, place) = oneshot::channel();
        let mut line = self.line();
        line.waiting.push_back(turn);
        if !std::mem::replace(&mut line.served, true) {
            runtime.spawn(Server(Some(Arc::clone(self))).serve());
        }
        Some(place)
    }

    /// Gives the turns that are due; when the next one is. None: nobody is left.
    fn serve(&self) -> Option<Instant> {
        let mut line = self.line();
        let now = Instant::now();
        if now < line.next {
            return Some(line.next);
        }
        let mut turns = 1 + std::mem::take(&mut line.given_back);
        let mut given = false;
        while turns > 0
            && let Some(first) = line.waiting.pop_front()
        {
            // Who has left gives its turn to the next.
            if first.send(()).is_ok() {
                (turns, given) = (turns - 1, true);
            }
        }
        if !given {
            line.served = false;
            return None;
        }
        let late = now.saturating_duration_since(line.next) > GRAIN;
        let from = if late { now } else { line.next };
        line.next = from + self.interval;
        Some(line.next)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Nothing panics while the lock is held, so what is behind it is whole.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// Serves a line until nobody is left. Where its runtime ends before, those who stand
/// there stand in line again.
struct Server(Option<Arc<Turns>>);

impl Server {
    async fn serve(mut self) {
        while let Some(next) = self.0.as_ref().and_then(|turns| turns.serve()) {
            sleep_until(next).await;
        }
        // Whoever comes from now on has the line served anew.
        self.0 = None;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(turns) = &self.0 else { return };
        let mut line = turns.line();
        line.served = false;
        let left = std::mem::take(&mut line.waiting);
        drop(line);
        // They are woken outside of the lock.
        drop(left);
    }
}

/// A place in line, and then a turn.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    place: Option<oneshot::Receiver<()>>,
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(place) = &mut self.place {
            let given = ready!(Pin::new(place).poll(cx));
            self.place = match given {
                Ok(()) => None,
                Err(_) => self.turns.stand_in_line(),
            };
        }
        Poll::Ready(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let unused = self.place.as_mut().is_some_and(|place| place.try_recv().is_ok());
        if unused {
            self.turns.line().given_back += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_in_order_and_at_the_rate() {
        let turns = Arc::new(Turns::new(100));
        let began = Instant::now();
        for round in 0..2 {
            let line: Vec<Turn> = (0..50).map(|_| turns.turn()).collect();
            let came = line.into_iter().map(async |turn| {
                turn.await;
                began.elapsed()
            });
            // The second round's line follows on the first one's.
            for (at, came) in (0..).zip(join_all(came).await) {
                assert_eq!(came, ms((round * 50 + at) * 10));
            }
        }
        // After a while without anybody there is nothing to be caught up with.
        tokio::time::sleep(ms(5000)).await;
        let began = Instant::now();
        let line: Vec<Turn> = (0..3).map(|_| turns.turn()).collect();
        join_all(line).await;
        assert_eq!(began.elapsed(), ms(20));
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_gives_its_turn_to_the_next() {
        let turns = Arc::new(Turns::new(10));
        let began = Instant::now();
        let mut line: VecDeque<Turn> = (0..5).map(|_| turns.turn()).collect();
        line.pop_front().unwrap().await;
        // One leaves the line, and one has been given its turn and does not use it.
        drop(line.pop_front());
        let given = line.pop_front().unwrap();
        tokio::time::sleep(ms(150)).await;
        drop(given);
        for (turn, at) in line.into_iter().zip([200, 200]) {
            turn.await;
            assert_eq!(began.elapsed(), ms(at));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_not_polled_holds_up_nobody() {
        let turns = Arc::new(Turns::new(10));
        let idle = turns.turn();
        let last = turns.turn();
        last.await;
        drop(idle);
    }

    #[tokio::test(start_paused = true)]
    async fn rates_finer_than_timers_hold() {
        let turns = Arc::new(Turns::new(20_000));
        let began = Instant::now();
        join_all((0..2000).map(|_| turns.turn())).await;
        assert!(began.elapsed() >= ms(99) && began.elapsed() <= ms(102), "{:?}", began.elapsed());
    }

    #[test]
    fn a_line_outlives_the_runtime_that_serves_it() {
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().start_paused(true).build().unwrap()
        };
        let turns = Arc::new(Turns::new(1));
        let first = runtime();
        let mut line = Vec::new();
        first.block_on(async {
            turns.turn().await;
            line.push(turns.turn());
        });
        drop(first);
        runtime().block_on(join_all(line));
    }
}
