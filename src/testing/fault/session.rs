//! A driver's dealings with a key, over a line that fails.

use std::{fmt, future, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::{Fault, Step, line::Line};
use crate::{
    id::FlightRef,
    store::{
        Abandoned, Append, Appended, Badge, BeatReply, BoxFuture, Finish, Finished, Held, Join,
        Joined, Pieces, Pushed, Session, StoreError, Vigil,
    },
};

pub(super) struct FaultSession {
    line: Arc<Line>,
    inner: Box<dyn Session>,
    /// Since when it hears of pushes, by the line's mends.
    hears: Option<u64>,
    /// One that has come, and may not be told yet.
    late: Option<(Pushed, Until)>,
}

#[derive(Clone, Copy)]
enum Until {
    /// Never comes where it is too far away.
    Time(Option<Instant>),
    Thaw(u64),
}

impl FaultSession {
    pub(super) fn new(line: Arc<Line>, inner: Box<dyn Session>) -> Self {
        Self { line, inner, hears: None, late: None }
    }

    fn hears(&mut self) {
        self.hears.get_or_insert_with(|| self.line.mends());
    }
}

/// Takes a step over the line.
macro_rules! step {
    ($this:ident, $step:ident, $taken:expr) => {
        Box::pin(async move {
            let fate = $this.line.fate(Step::$step);
            let mut ways = $this.line.travel(&[fate]).await;
            let way = ways.remove(0)?;
            let answer = $taken.await;
            $this.line.heard(way, answer)
        })
    };
}

impl Session for FaultSession {
    fn introduce(&mut self, badge: Badge) {
        self.inner.introduce(badge);
    }

    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        step!(self, Join, async {
            let joined = self.inner.join(join).await;
            if matches!(joined, Ok(Joined::Follow { .. })) {
                self.hears();
            }
            joined
        })
    }

    fn pushed(&mut self) -> BoxFuture<'_, Pushed> {
        Box::pin(async move {
            let Some(hears) = &mut self.hears else { return future::pending().await };
            loop {
                // Stays here where this future is dropped.
                if let Some((_, until)) = &self.late {
                    match *until {
                        Until::Time(Some(end)) => sleep_until(end).await,
                        Until::Time(None) => future::pending().await,
                        Until::Thaw(since) => self.line.thawed(since).await,
                    }
                    if let Some((pushed, _)) = self.late.take() {
                        return pushed;
                    }
                }
                let pushed = tokio::select! {
                    biased;
                    mends = self.line.mended(*hears) => {
                        *hears = mends;
                        return Pushed::Gap;
                    }
                    pushed = self.inner.pushed() => pushed,
                };
                let until = match self.line.fate(Step::Push) {
                    None => return pushed,
                    Some(Fault::Fail(_)) => {
                        self.line.lost();
                        continue;
                    }
                    Some(Fault::Lose | Fault::LoseReply) => continue,
                    Some(Fault::Delay(time)) => Until::Time(Instant::now().checked_add(time)),
                    Some(Fault::Freeze) => Until::Thaw(self.line.thaws()),
                };
                self.late = Some((pushed, until));
            }
        })
    }

    fn fetch(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        step!(self, Fetch, self.inner.fetch())
    }

    fn append(&mut self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        step!(self, Append, self.inner.append(append))
    }

    fn read(&mut self, flight: FlightRef, from: u64) -> BoxFuture<'_, Result<Pieces, StoreError>> {
        step!(self, Read, self.inner.read(flight, from))
    }

    fn listen(
        &mut self,
        flight: FlightRef,
        lease: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>> {
        step!(self, Listen, async {
            let renewed = self.inner.listen(flight, lease).await;
            if renewed.is_ok() {
                self.hears();
            }
            renewed
        })
    }

    fn hear(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<u32, StoreError>> {
        step!(self, Hear, async {
            let heard = self.inner.hear(flight).await;
            if heard.is_ok() {
                self.hears();
            }
            heard
        })
    }

    fn deafen(&mut self) {
        (self.hears, self.late) = (None, None);
        self.inner.deafen();
    }

    fn finish(&mut self, finish: Finish) -> BoxFuture<'_, Result<Finished, StoreError>> {
        step!(self, Finish, self.inner.finish(finish))
    }

    fn abandon(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<Abandoned, StoreError>> {
        step!(self, Abandon, self.inner.abandon(flight))
    }

    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        step!(self, Forget, self.inner.forget())
    }

    fn stop(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        step!(self, Stop, self.inner.stop())
    }

    fn hold(
        &mut self,
        flight: FlightRef,
        silence: Duration,
    ) -> BoxFuture<'_, Result<Option<Held>, StoreError>> {
        step!(self, Hold, async {
            let (breaks, line) = (self.line.breaks(), Arc::clone(&self.line));
            let held = self.inner.hold(flight, silence).await?;
            // Who hears nothing holds nothing.
            Ok(held.filter(|_| !line.is_deaf()).map(|held| {
                let vigil = FaultVigil { line, breaks, inner: held.vigil };
                Held { vigil: Box::new(vigil), ..held }
            }))
        })
    }
}

/// Stands while the line has been whole.
struct FaultVigil {
    line: Arc<Line>,
    breaks: u64,
    inner: Box<dyn Vigil>,
}

impl Vigil for FaultVigil {
    fn stands(&self) -> bool {
        self.line.breaks() == self.breaks && self.inner.stands()
    }
}

impl fmt::Debug for FaultVigil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FaultVigil").field(&self.inner).finish()
    }
}
