//! The frame log of one run: one writer appends, any number of readers replay it
//! from the start without a copy.
//!
//! A log holds a bounded number of bytes. Beyond them it is a window: it lets its
//! oldest frames go, nobody can begin with it any more, and a reader that falls
//! behind the window gets an error. Frames that no reader has had are not let go; those
//! that some have not had are let go no faster than at a certain rate, so that readers
//! of a fast body are not broken off for being a little slower than each other.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::HeaderMap;
use slab::Slab;
use tokio::time::Instant;

use crate::{
    frame::{Frame, Head},
    selection::Selection,
    sync::{
        Mutex, MutexGuard, Notify, PoisonError,
        atomic::{AtomicBool, Ordering},
        sleep_until,
    },
};

mod copy;
#[cfg(all(test, shuttle))]
mod races;
mod reader;
mod reuse;
mod splice;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    reader::{Next, Reader},
    reuse::Reuse,
    splice::Splice,
};

/// A response: its head, and the log of its body.
#[derive(Clone, Debug)]
pub(crate) struct SharedRun {
    pub(crate) head: Arc<Head>,
    pub(crate) log: Arc<Log>,
    /// Whether callers may have it that come after its end.
    pub(crate) reuse: Reuse,
    /// Which callers of its key may have it; none: all of them.
    pub(crate) selection: Option<Arc<Selection>>,
}

/// The frames of one body so far.
pub(crate) struct Log {
    state: Mutex<State>,
    /// Told of frames and of the end; there once somebody has waited for them.
    grown: OnceLock<Arc<Notify>>,
    /// Told when a reader has moved on or left.
    drained: Notify,
    overflowed: AtomicBool,
    overflow: Notify,
    /// No more than this is held, unless one frame alone is larger.
    most: usize,
    promised: Option<u64>,
}

#[derive(Default)]
struct State {
    frames: VecDeque<Frame>,
    /// The number of the first frame that is held.
    first: usize,
    /// What the frames that are held count.
    held: usize,
    /// Bytes of data in all.
    data_bytes: u64,
    /// A digest over the data that is no longer held.
    gone: Option<Box<blake3::Hasher>>,
    /// The number of the frame that each reader wants next.
    readers: Slab<usize>,
    /// When the last frame was let go that some reader may not have had.
    turn: Option<Instant>,
    end: Option<End>,
}

/// How a body ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// After its last frame.
    Clean,
    /// Before it; the text says why.
    Broken(Arc<str>),
    /// Another run takes over: for those who have read the same of it.
    Moved(SharedRun),
}

/// A frame counts as this many bytes at least, since keeping it costs about that.
const LEAST_FRAME: usize = 64;
/// Slow readers slow no body down below so many bytes a second.
const LEAST_RATE: f64 = 8.0 * 1024.0 * 1024.0;
/// So much time may be caught up with.
const BURST: Duration = Duration::from_millis(50);

impl Log {
    /// An empty log that holds `most` bytes, of a body that is to have `promised`
    /// bytes of data where that is known.
    pub(crate) fn new(most: usize, promised: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            grown: OnceLock::new(),
            drained: Notify::new(),
            overflowed: AtomicBool::new(false),
            overflow: Notify::new(),
            most,
            promised,
        })
    }

    /// A log that is complete from the start.
    pub(crate) fn complete(frames: Vec<Frame>) -> Arc<Self> {
        let log = Self::new(usize::MAX, None);
        for frame in frames {
            log.push(frame);
        }
        log.end(End::Clean);
        log
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held, so what is behind it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a frame, and lets nothing go for it. After the end it is dropped.
    pub(crate) fn push(&self, frame: Frame) {
        self.state().push(frame);
        self.tell();
    }

    /// Wakes those who wait. Whoever has not asked for that yet looks again afterwards.
    fn tell(&self) {
        if let Some(grown) = self.grown.get() {
            grown.notify_waiters();
        }
    }

    /// What is told of every change that comes after this.
    fn grown(&self) -> &Arc<Notify> {
        self.grown.get_or_init(Arc::default)
    }

    /// Whether there is room for this frame: then there is nothing to wait for.
    pub(crate) fn has_room(&self, frame: &Frame) -> bool {
        !self.state().is_full(size(frame), self.most)
    }

    /// Waits until there is room for this frame: until all readers, but for those who
    /// are behind already, have had what must go for it; not longer than at
    /// [`LEAST_RATE`] it takes. Then the fastest is waited for, where it is `patient`.
    pub(crate) async fn room(&self, frame: &Frame, patient: bool) {
        let size = size(frame);
        let mut until = None;
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            let wait = {
                let mut state = self.state();
                if !state.is_full(size, self.most) {
                    return;
                }
                self.overflow();
                let now = Instant::now();
                let until = *until.get_or_insert_with(|| state.turn(size, now));
                let had = match now < until {
                    true => state.alive().min(),
                    false if patient => state.alive().max(),
                    false => None,
                };
                state.let_go(size, self.most, had.unwrap_or(usize::MAX));
                if !state.is_full(size, self.most) {
                    return;
                }
                drained.as_mut().enable();
                (now < until).then_some(until)
            };
            match wait {
                Some(until) => tokio::select! {
                    () = drained => {}
                    () = sleep_until(until) => {}
                },
                None => drained.await,
            }
        }
    }

    fn overflow(&self) {
        if !self.overflowed.swap(true, Ordering::AcqRel) {
            self.overflow.notify_one();
        }
    }

    /// Waits until more came than is held.
    pub(crate) async fn overflowed(&self) {
        if !self.is_window() {
            self.overflow.notified().await;
        }
    }

    /// Whether more came than is held, so that nobody can begin with it any more.
    pub(crate) fn is_window(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Ends the body well, with its trailers: whoever sees them sees the end.
    pub(crate) fn finish(&self, trailers: Option<HeaderMap>) {
        let mut state = self.state();
        if let Some(trailers) = trailers {
            state.push(Frame::Trailers(trailers));
        }
        state.end.get_or_insert(End::Clean);
        drop(state);
        self.tell();
    }

    /// Ends the body, once.
    pub(crate) fn end(&self, end: End) {
        // What comes too late may hold a log: not dropped under the lock.
        let late = {
            let mut state = self.state();
            match state.end {
                None => {
                    state.end = Some(end);
                    None
                }
                Some(_) => Some(end),
            }
        };
        drop(late);
        self.tell();
    }

    /// Whether the body has come to an end, good or bad.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().end.is_some()
    }

    /// Waits until the body has come to an end.
    pub(crate) async fn ended(&self) {
        loop {
            let grown = self.grown().notified();
            if self.has_ended() {
                return;
            }
            grown.await;
        }
    }

    /// The frames that are held; the bytes are shared, not copied.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        self.state().frames.iter().cloned().collect()
    }

    /// The trailers, where there are any.
    pub(crate) fn trailers(&self) -> Option<HeaderMap> {
        match self.state().frames.back() {
            Some(Frame::Trailers(trailers)) => Some(trailers.clone()),
            _ => None,
        }
    }

    /// The bytes of data so far.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.state().data_bytes
    }

    /// What the frames that are held count.
    pub(crate) fn held(&self) -> usize {
        self.state().held
    }

    /// How many bytes of data the whole body is to have, where that is known.
    pub(crate) fn promised(&self) -> Option<u64> {
        self.promised
    }

    /// A reader at the start; none where the start is gone.
    pub(crate) fn reader(self: &Arc<Self>) -> Option<Reader> {
        let mut state = self.state();
        if state.first > 0 {
            return None;
        }
        // Nothing more is to come for which another reader would have to make room.
        let place = state.end.is_none().then(|| state.readers.insert(0));
        drop(state);
        Some(Reader::new(Arc::clone(self), place))
    }
}

/// What a frame counts.
pub(crate) fn size(frame: &Frame) -> usize {
    frame.size().max(LEAST_FRAME)
}

impl State {
    fn is_full(&self, size: usize, most: usize) -> bool {
        !self.frames.is_empty() && self.held.saturating_add(size) > most
    }

    fn push(&mut self, frame: Frame) {
        if self.end.is_some() {
            return;
        }
        if let Frame::Data(bytes) = &frame {
            self.data_bytes += bytes.len() as u64;
        }
        self.held += size(&frame);
        self.frames.push_back(frame);
    }

    /// The frames that those readers want next who are not behind.
    fn alive(&self) -> impl Iterator<Item = usize> {
        let wanted = self.readers.iter().map(|(_, wants)| *wants);
        wanted.filter(|wants| *wants >= self.first)
    }

    /// When a frame may be let go that some reader has not had.
    fn turn(&mut self, size: usize, now: Instant) -> Instant {
        let before = now.checked_sub(BURST).unwrap_or(now);
        let last = self.turn.map_or(before, |last| last.max(before));
        let turn = last + Duration::from_secs_f64(size as f64 / LEAST_RATE);
        self.turn = Some(turn);
        turn
    }

    /// Lets the oldest frames go until there is room; none from this one on.
    fn let_go(&mut self, size: usize, most: usize, wanted: usize) {
        while self.first < wanted && self.is_full(size, most) {
            self.let_go_first();
        }
    }

    fn let_go_first(&mut self) {
        let Some(frame) = self.frames.pop_front() else { return };
        self.first += 1;
        self.held -= size(&frame);
        if let Frame::Data(bytes) = &frame {
            self.gone.get_or_insert_default().update(bytes);
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Log")
            .field("frames", &(state.first + state.frames.len()))
            .field("held", &state.held)
            .field("data_bytes", &state.data_bytes)
            .field("ended", &state.end.is_some())
            .finish()
    }
}
