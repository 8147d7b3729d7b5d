//! The end of a run: what its callers get, and what the store is told.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    Driver, FAILED_RUNS, Next, own::Run, pauses::Pauses, pending::STEP, publish::Publication,
};
use crate::{
    error::FailureKind,
    flights::{FlightPhase, Origin, RunEnd, Verdict},
    id::FlightRef,
    lease::Lease,
    log::{Reuse, SharedRun},
    record::{self, Terms},
    store::{EndStatus, Finish, Finished, Joined, Loss, StoreError, StoreErrorKind},
};

/// Answers of at most this many bytes go along with the first `finish`.
const SMALL: u64 = 3 * 1024;
/// The most bytes of an error's text that others get to see.
const REPORT: usize = 512;
/// How often `finish` is sent, where the store asks for it once more or is not heard.
const TRIES: u32 = 4;

/// An end, before it is known which flight's it is.
pub(super) struct Ending {
    status: EndStatus,
    reuse: Reuse,
    keep: Duration,
    report: String,
}

impl Ending {
    pub(super) fn new(status: EndStatus, keep: Duration) -> Self {
        Self { status, reuse: Reuse::Never, keep, report: String::new() }
    }

    fn of(self, flight: FlightRef) -> Finish {
        let Self { status, reuse, keep, report } = self;
        let fresh = reuse.left();
        Finish { flight, status, record: None, seal: None, fresh, keep, report }
    }
}

/// What came of telling the store of an end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// It knows of it.
    Heard,
    /// The flight was not this process's to end any more.
    Lost(Loss),
    /// It has lost the record, and may have heard of the end before that: others may have
    /// owned since.
    LostSince,
    /// It did not answer in time.
    Unheard,
}

/// What the store may be given of an answer.
pub(super) enum Answer<'a> {
    None,
    /// The whole of it, in a record.
    Record(&'a SharedRun),
    /// A stream, of which it has some already.
    Stream(Publication),
}

/// The most bytes of a text, up to `most`, that end with a whole character.
fn whole_chars(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Waits until a lease does not stand any more.
async fn over(lease: &Lease) {
    loop {
        let news = lease.news();
        if !lease.stands() {
            return;
        }
        tokio::select! {
            () = news => {}
            () = tokio::time::sleep_until(lease.deadline()) => {}
        }
    }
}

impl Driver {
    /// Hands the outcome on: to the callers here at once, then to the store.
    pub(super) async fn conclude(&mut self, run: Run, end: RunEnd) -> Next {
        let retention = self.core.config.retention;
        match end {
            RunEnd::Shared(shared) => {
                let verdict = Verdict::Replay { run: shared.clone(), origin: Origin::Here };
                self.flight.decide(verdict);
                self.publish(run, &shared).await;
                Next::Over
            }
            RunEnd::Private { took } => {
                self.core.counts.private_runs();
                self.flight.decide(Verdict::Alone { together: true });
                let keep = self.core.config.private_mark(took);
                let ending = Ending::new(EndStatus::Private, keep);
                match run.guard.lease() {
                    None if self.flight.owns() => self.leave_mark(ending).await,
                    _ => self.finish(run, ending, Answer::None).await,
                }
                Next::Over
            }
            RunEnd::TooLarge => {
                self.core.counts.large_runs();
                self.flight.decide(Verdict::Alone { together: true });
                let ending = Ending::new(EndStatus::TooLarge, retention);
                self.finish(run, ending, Answer::None).await;
                Next::Over
            }
            RunEnd::Failed { mut report } => {
                report.truncate(whole_chars(&report, REPORT));
                let kind = FailureKind::OwnerFailed;
                let live = run.live;
                // Its own caller need not wait for the store, nor need those who have
                // begun with the answer: another run's would not be the same.
                if live {
                    self.core.counts.failed_runs();
                    self.fail(kind, Some(&report));
                } else {
                    self.flight.stir();
                }
                let mut ending = Ending::new(EndStatus::Failed, retention);
                ending.report.clone_from(&report);
                self.end_stream(run, ending).await;
                if live { Next::Over } else { self.after_failure(kind, Some(&report)) }
            }
        }
    }

    /// Leaves word of a run that was granted without the store.
    async fn leave_mark(&mut self, ending: Ending) {
        let join = self.join(false);
        if let Ok(Joined::Own { token }) = self.session.open().join(join.clone()).await {
            let finish = ending.of(FlightRef { token, id: join.flight });
            // Where it is not heard, the next run is as private as this one.
            let _ = self.session.open().finish(finish).await;
        }
    }

    /// A run has failed: its callers get another, or the failure.
    pub(super) fn after_failure(&mut self, kind: FailureKind, report: Option<&str>) -> Next {
        self.failed_runs += 1;
        self.core.counts.failed_runs();
        if kind == FailureKind::OwnerTimedOut {
            self.core.counts.timed_out_runs();
        }
        if self.flight.close_if_vacant() {
            return Next::Over;
        }
        if self.failed_runs >= FAILED_RUNS || self.flight.close_if_spent() {
            self.fail(kind, report);
            return Next::Over;
        }
        Next::Elect
    }

    /// Puts the answer where other processes find it, unless none asks for it. Where the
    /// store has lost the record meanwhile, those who wait are no worse off for it: unless
    /// the flight may have been over by then, and this an answer from before they asked.
    async fn publish(&mut self, mut run: Run, shared: &SharedRun) {
        let Some(lease) = run.guard.lease().cloned() else { return };
        let publication = run.publication.take();
        let mut told = self.offer(&lease, publication, shared).await;
        self.found(lease.flight(), shared);
        if told == Told::Lost(Loss::Missing) {
            if let Some(lease) = self.own_again(&mut run).await {
                told = self.offer(&lease, None, shared).await;
                self.found(lease.flight(), shared);
            } else if run.guard.lease().is_some_and(|held| held.flight() != lease.flight()) {
                // Granted too late to be used: it is let go.
                return;
            }
        }
        if told != Told::Unheard {
            run.guard.finished();
        }
    }

    async fn offer(
        &mut self,
        lease: &Arc<Lease>,
        publication: Option<Publication>,
        shared: &SharedRun,
    ) -> Told {
        let ending = Ending {
            reuse: shared.reuse,
            ..Ending::new(EndStatus::Done, self.core.config.retention)
        };
        let (ending, answer) = match publication {
            Some(publication) if publication.has_begun() => (ending, Answer::Stream(publication)),
            _ if shared.log.is_window() => {
                (Ending::new(EndStatus::TooLarge, ending.keep), Answer::None)
            }
            // No single value is that large, so that nobody else waits long behind it.
            publication if shared.log.data_bytes() > STEP as u64 => {
                let publication = publication.unwrap_or_else(|| self.publication(lease, shared));
                (ending, Answer::Stream(publication))
            }
            _ => (ending, Answer::Record(shared)),
        };
        self.flight.at(FlightPhase::Ending, lease.flight().token);
        self.tell(lease, ending, answer).await
    }

    /// Owns again, with a run that has ended, where nobody else can have owned since.
    async fn own_again(&mut self, run: &mut Run) -> Option<Arc<Lease>> {
        if !run.guard.stands() {
            return None;
        }
        if self.reclaim(run).await.is_err() {
            self.unmark();
            return None;
        }
        let lease = run.guard.lease()?;
        // Nobody knows who waits: their marks are lost.
        lease.set_waiters(lease.waiters().max(1));
        lease.conclude().then(|| Arc::clone(lease))
    }

    /// Ends a flight without an answer, of which others may have got some.
    async fn end_stream(&mut self, mut run: Run, ending: Ending) {
        let answer = match run.publication.take() {
            Some(publication) if publication.has_begun() => Answer::Stream(publication),
            _ => Answer::None,
        };
        self.finish(run, ending, answer).await;
    }

    async fn finish(&mut self, run: Run, ending: Ending, answer: Answer<'_>) {
        let Some(lease) = run.guard.lease().cloned() else { return };
        self.flight.at(FlightPhase::Ending, lease.flight().token);
        if self.tell(&lease, ending, answer).await != Told::Unheard {
            run.guard.finished();
        }
    }

    /// Tells the store of an end. What it does not hear before the deadline it takes for
    /// a lost owner.
    pub(super) async fn tell(
        &mut self,
        lease: &Arc<Lease>,
        ending: Ending,
        mut answer: Answer<'_>,
    ) -> Told {
        let reuse = ending.reuse;
        let mut finish = ending.of(lease.flight());
        let reused = !finish.fresh.min(self.core.config.reuse).is_zero();
        let mut wanted = reused || lease.waiters() > 0 || self.is_small(&answer);
        let mut doubted = false;
        for _ in 0..TRIES {
            if wanted && finish.record.is_none() && finish.seal.is_none() {
                match &mut answer {
                    Answer::None => {}
                    Answer::Record(run) => finish.record = Some(self.encode(lease, run)),
                    Answer::Stream(stream) => {
                        let sealed = tokio::select! {
                            sealed = stream.seal() => sealed,
                            () = over(lease) => return Told::Unheard,
                        };
                        match sealed {
                            Some(seal) => finish.seal = Some(seal),
                            // What others have of it ends here.
                            None => {
                                answer = Answer::None;
                                if finish.status == EndStatus::Done {
                                    finish.status = EndStatus::TooLarge;
                                }
                            }
                        }
                    }
                }
            }
            match self.send(lease, &mut finish, reuse, &mut doubted).await {
                Ok(Finished::Wanted) => wanted = true,
                Ok(Finished::Gap { next }) => {
                    finish.seal = None;
                    if let Answer::Stream(stream) = &mut answer {
                        stream.rewind(next);
                    }
                }
                Ok(Finished::Accepted) => {
                    let bytes = finish.record.as_ref().map_or(0, Bytes::len);
                    self.core.counts.published(bytes as u64);
                    return Told::Heard;
                }
                Ok(Finished::Lost(Loss::Missing)) if doubted => return Told::LostSince,
                Ok(Finished::Lost(loss)) => {
                    if matches!(loss, Loss::Superseded { .. }) {
                        self.core.counts.fenced();
                    }
                    return Told::Lost(loss);
                }
                // It has no room for the answer: the others cannot have it.
                Err(error) if error.kind() == StoreErrorKind::Limit => {
                    answer = Answer::None;
                    finish.record = None;
                    finish.status = EndStatus::TooLarge;
                }
                Err(_) => break,
            }
        }
        Told::Unheard
    }

    /// Sends `finish` until it is answered: some times, and for as long as a lease takes
    /// where it fails sooner, as it does while the store is known to be away. Not where
    /// it has no room, and not when the lease is over. `doubted` is set where it may have
    /// been heard and was not answered.
    async fn send(
        &mut self,
        lease: &Lease,
        finish: &mut Finish,
        reuse: Reuse,
        doubted: &mut bool,
    ) -> Result<Finished, StoreError> {
        let give_up = Instant::now() + self.core.config.lease;
        let mut pauses = Pauses::new();
        let mut sent = 0;
        loop {
            // The store counts its age from when it hears of it.
            finish.fresh = reuse.left();
            let error = match self.session.open().finish(finish.clone()).await {
                Err(error) if error.kind() != StoreErrorKind::Limit => error,
                answered => return answered,
            };
            sent += 1;
            *doubted |= error.leaves_open();
            let again = Instant::now() + pauses.next();
            if sent >= TRIES && again > give_up {
                return Err(error);
            }
            tokio::select! {
                biased;
                () = over(lease) => return Err(error),
                () = tokio::time::sleep_until(again) => {}
            }
        }
    }

    /// Whether a record is so small that it goes along unasked.
    fn is_small(&self, answer: &Answer<'_>) -> bool {
        match answer {
            Answer::Record(run) => self.core.store.is_remote() && run.log.data_bytes() <= SMALL,
            _ => false,
        }
    }

    fn encode(&self, lease: &Lease, run: &SharedRun) -> Bytes {
        let terms = Terms { selection: run.selection.clone() };
        let (key, flight) = (self.flight.key(), lease.flight());
        record::encode(&self.core.sealer, &key, flight, &run.head, &terms, &run.log.frames())
    }
}
