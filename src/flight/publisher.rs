//! Sending an answer to the store while it comes, for followers elsewhere.
//!
//! Nothing is sent while nobody elsewhere waits. Frames go in pieces, several to a
//! step of the store, and steps follow each other by a least time: the first frame
//! goes at once.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::{
    pauses::Pauses,
    pending::{PIECE, Pending, STEP, Window},
};
use crate::{
    core::Core,
    lease::Lease,
    log::{Next, Reader, SharedRun},
    record::{Encoder, Terms},
    store::{Append, Appended, BeatReply, Pushed, Seal, Session, StoreErrorKind},
};

/// The least time between two steps, unless a piece is full.
const PACE: Duration = Duration::from_millis(10);
/// Up to so many bytes a second travel inside the push.
const INLINE_RATE: usize = 256 * 1024;
/// So many bytes of pieces are kept to be sent again, should the store lose them.
const RECENT: usize = 64 * 1024;
/// How often a step is sent that the store has less of than was thought.
const TRIES: u32 = 8;
/// How often one is sent that a full store refuses.
const REFUSALS: u32 = 3;

/// Why nothing more is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The answer has ended; those who wait, if any do, have it.
    Ended,
    /// Others cannot have it any more.
    GaveUp,
    /// The lease is lost.
    Lost,
}

/// Sends one run's answer.
pub(super) struct Publisher {
    session: Box<dyn Session>,
    lease: Arc<Lease>,
    run: SharedRun,
    /// From the first waiter on.
    reader: Option<Reader>,
    begun: Arc<AtomicBool>,
    encoder: Encoder,
    /// Read, and not sent.
    pending: Pending,
    /// Bytes that are in pieces.
    sent: u64,
    /// The number of the piece that the store wants next.
    next: u64,
    /// The last pieces that were made, up to the newest.
    recent: VecDeque<Bytes>,
    /// The pieces that readers elsewhere can still have.
    window: Window,
    /// When the last step was sent.
    last: Option<Instant>,
    /// Bytes that went inside pushes, in the second that began then.
    inlined: (Instant, usize),
    lease_time: Duration,
    keep: Duration,
    most: usize,
    core: Arc<Core>,
}

impl Publisher {
    pub(super) fn new(
        encoder: Encoder,
        session: Box<dyn Session>,
        lease: Arc<Lease>,
        run: &SharedRun,
        core: &Arc<Core>,
    ) -> Self {
        let config = &core.config;
        Self {
            encoder,
            session,
            lease,
            run: run.clone(),
            reader: None,
            begun: Arc::default(),
            pending: Pending::default(),
            sent: 0,
            next: 0,
            recent: VecDeque::new(),
            window: Window::default(),
            last: None,
            inlined: (Instant::now(), 0),
            lease_time: config.lease,
            keep: config.retention,
            most: config.max_share_bytes,
            core: Arc::clone(core),
        }
    }

    /// Set once the store is given something.
    pub(super) fn begun(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.begun)
    }

    /// The seal of all that was sent.
    pub(super) fn seal(&self) -> Seal {
        self.encoder.seal()
    }

    pub(super) async fn go(mut self: Box<Self>) -> (Box<Self>, Stop) {
        let stop = self.publish(false).await;
        (self, stop)
    }

    pub(super) async fn go_to_end(mut self: Box<Self>) -> (Box<Self>, Stop) {
        let stop = self.publish(true).await;
        (self, stop)
    }

    /// Sends while somebody waits, or all of it.
    async fn publish(&mut self, all: bool) -> Stop {
        loop {
            if !all && let Some(stop) = self.wait_for_waiters().await {
                return stop;
            }
            let ended = match self.gather().await {
                Ok(ended) => ended,
                Err(stop) => return stop,
            };
            if !all && self.lease.waiters() == 0 {
                continue;
            }
            // A frame may be larger than what goes in one step.
            loop {
                if let Some(stop) = self.send().await {
                    return stop;
                }
                if self.pending.is_empty() {
                    break;
                }
            }
            if ended {
                return Stop::Ended;
            }
        }
    }

    /// Waits until somebody elsewhere waits. Who comes is heard of at once, where the
    /// store can push; else at the next renewal.
    async fn wait_for_waiters(&mut self) -> Option<Stop> {
        let mut listening = false;
        loop {
            let news = self.lease.news();
            if self.lease.waiters() > 0 {
                if listening {
                    self.session.deafen();
                }
                return None;
            }
            if self.lease.end().is_some() {
                return Some(Stop::Lost);
            }
            if self.run.log.has_ended() {
                return Some(Stop::Ended);
            }
            if self.run.log.is_window() {
                return Some(Stop::GaveUp);
            }
            if !listening {
                listening = true;
                let flight = self.lease.flight();
                if let Ok(BeatReply::Renewed { waiters }) =
                    self.session.listen(flight, self.lease_time).await
                {
                    self.lease.set_waiters(waiters);
                }
                continue;
            }
            tokio::select! {
                pushed = self.session.pushed() => match pushed {
                    Pushed::Watched { flight } if flight == self.lease.flight() => {
                        self.lease.set_waiters(1);
                    }
                    Pushed::Gap => listening = false,
                    _ => {}
                },
                () = news => {}
                () = self.run.log.ended() => {}
                () = self.run.log.overflowed() => {}
            }
        }
    }

    /// Gathers what goes in one step; true where nothing follows.
    async fn gather(&mut self) -> Result<bool, Stop> {
        if self.reader.is_none() {
            self.reader = self.run.log.reader();
        }
        let reader = self.reader.as_mut().ok_or(Stop::GaveUp)?;
        let pace = self.last.map(|last| last + PACE);
        // The head goes at once, whatever there is of the body.
        let mut wait = self.encoder.pieces() > 0 && self.pending.bytes() == 0;
        loop {
            let next = match reader.look() {
                Some(next) => next,
                None if wait => reader.next().await,
                None if self.pending.bytes() >= PIECE => return Ok(false),
                None => match pace {
                    Some(pace) if Instant::now() < pace => tokio::select! {
                        next = reader.next() => next,
                        () = sleep_until(pace) => return Ok(false),
                    },
                    _ => return Ok(false),
                },
            };
            wait = false;
            match next {
                Next::Frame(frame) => self.pending.push(frame),
                Next::End | Next::Broken(_) | Next::Moved(_) => return Ok(true),
                Next::Behind => return Err(Stop::GaveUp),
            }
            if self.pending.bytes() >= STEP {
                return Ok(false);
            }
        }
    }

    /// Sends what was gathered.
    async fn send(&mut self) -> Option<Stop> {
        let first = self.encoder.pieces();
        let pieces = self.encode();
        if pieces.is_empty() && self.next == first {
            return None;
        }
        let inline = self.may_inline(&pieces);
        self.recent.extend(pieces);
        self.begun.store(true, Ordering::Release);
        let stop = self.append(inline).await;
        self.last = Some(Instant::now());
        let mut bytes: usize = self.recent.iter().map(Bytes::len).sum();
        while bytes > RECENT && self.recent.len() > 1 {
            bytes -= self.recent.pop_front().map_or(0, |piece| piece.len());
        }
        stop
    }

    /// Makes pieces of what was gathered, as much as goes in one step.
    fn encode(&mut self) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let (mut piece, mut size, mut counted) = (Vec::new(), 0, 0);
        let promised = self.run.log.promised();
        let first = self.encoder.pieces() == 0;
        let terms =
            if first { Terms { selection: self.run.selection.clone() } } else { Terms::default() };
        let mut head = first.then_some((&*self.run.head, promised, &terms));
        let mut bytes = 0;
        while bytes < STEP
            && let Some((part, counts)) = self.pending.pop()
        {
            bytes += part.size();
            self.sent += part.size() as u64;
            if size + part.size() > PIECE && !piece.is_empty() {
                pieces.push(self.encoder.piece(head.take(), &piece));
                piece.clear();
                self.window.push(std::mem::take(&mut counted));
                size = 0;
            }
            size += part.size();
            counted += counts;
            piece.push(part);
        }
        if !piece.is_empty() || head.is_some() {
            pieces.push(self.encoder.piece(head.take(), &piece));
            self.window.push(counted);
        }
        pieces
    }

    fn may_inline(&mut self, pieces: &[Bytes]) -> bool {
        let (since, bytes) = &mut self.inlined;
        if since.elapsed() >= Duration::from_secs(1) {
            (*since, *bytes) = (Instant::now(), 0);
        }
        *bytes += pieces.iter().map(Bytes::len).sum::<usize>();
        *bytes <= INLINE_RATE
    }

    /// Gives the store the pieces that it has not got, until it says that it has.
    async fn append(&mut self, inline: bool) -> Option<Stop> {
        let flight = self.lease.flight();
        let give_up = Instant::now() + 2 * self.lease_time;
        let (mut pauses, mut gaps, mut refusals) = (Pauses::new(), 0, 0);
        while gaps < TRIES && refusals < REFUSALS && Instant::now() < give_up {
            let held = self.encoder.pieces() - self.recent.len() as u64;
            let Some(known) = self.next.checked_sub(held) else { return Some(Stop::GaveUp) };
            let known = usize::try_from(known).unwrap_or(usize::MAX);
            let append = Append {
                flight,
                first: self.next,
                pieces: self.recent.iter().skip(known).cloned().collect(),
                kept_from: self.kept_from(),
                keep: self.keep,
                inline,
                to_come: self.to_come(),
            };
            let bytes: usize = append.pieces.iter().map(Bytes::len).sum();
            match self.session.append(append).await {
                Ok(Appended::Accepted { next }) if next == self.encoder.pieces() => {
                    self.core.counts.published(bytes as u64);
                    self.next = next;
                    return None;
                }
                Ok(Appended::Accepted { next } | Appended::Gap { next }) => {
                    self.next = next;
                    gaps += 1;
                }
                Ok(Appended::Over | Appended::Lost(_)) => return Some(Stop::Lost),
                Err(error) if error.kind() == StoreErrorKind::Limit => return Some(Stop::GaveUp),
                Err(_) if !self.lease.stands() => return Some(Stop::Lost),
                Err(error) => {
                    refusals += u32::from(error.kind() == StoreErrorKind::OutOfMemory);
                    // A lease that ends meanwhile is seen at its deadline.
                    let again = (Instant::now() + pauses.next()).min(self.lease.deadline());
                    sleep_until(again).await;
                }
            }
        }
        Some(Stop::GaveUp)
    }

    /// How much is known to follow of what readers elsewhere can have.
    fn to_come(&self) -> u64 {
        let shared = self.run.log.promised().map(|promised| promised.min(self.most as u64));
        shared.map_or(0, |shared| shared.saturating_sub(self.sent))
    }

    /// The first piece that readers elsewhere can still have.
    fn kept_from(&mut self) -> u64 {
        self.encoder.pieces() - self.window.shrink(self.most)
    }

    /// Sends again from this piece on; false where it is not kept.
    pub(super) fn rewind(&mut self, next: u64) -> bool {
        self.next = next;
        next.saturating_add(self.recent.len() as u64) >= self.encoder.pieces()
    }
}
