//! The frame log of one run: one writer appends, any number of readers replay it
//! from the start without a copy.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use tokio::sync::{Notify, futures::OwnedNotified};

use crate::frame::Frame;

/// The frames of one body so far.
#[derive(Default)]
pub(crate) struct Log {
    state: Mutex<State>,
    grown: Arc<Notify>,
}

#[derive(Default)]
struct State {
    frames: Vec<Frame>,
    data_bytes: u64,
    end: Option<End>,
}

/// How a body ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// After its last frame.
    Clean,
    /// Before it; the text says why.
    Broken(Arc<str>),
}

impl Log {
    /// A log that is complete from the start.
    pub(crate) fn complete(frames: Vec<Frame>) -> Arc<Self> {
        let log = Self::default();
        for frame in frames {
            log.push(frame);
        }
        log.end(End::Clean);
        Arc::new(log)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing panics while the lock is held, so what is behind it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a frame. After the end it is dropped.
    pub(crate) fn push(&self, frame: Frame) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        if let Frame::Data(bytes) = &frame {
            state.data_bytes += bytes.len() as u64;
        }
        state.frames.push(frame);
        drop(state);
        self.grown.notify_waiters();
    }

    /// Ends the body, once.
    pub(crate) fn end(&self, end: End) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        drop(state);
        self.grown.notify_waiters();
    }

    /// The frames so far; the bytes are shared, not copied.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        self.state().frames.clone()
    }

    /// The bytes of data so far.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.state().data_bytes
    }

    /// A reader at the start.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader {
        Reader { log: Arc::clone(self), next: 0, read: 0, grown: None }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Log")
            .field("frames", &state.frames.len())
            .field("data_bytes", &state.data_bytes)
            .field("end", &state.end)
            .finish()
    }
}

/// One reader's place in a log.
pub(crate) struct Reader {
    log: Arc<Log>,
    next: usize,
    /// Bytes of data handed out.
    read: u64,
    /// There while this reader waits. Boxed, since bodies are `Unpin` where they can
    /// be, and most readers never wait.
    grown: Option<Pin<Box<OwnedNotified>>>,
}

impl Reader {
    /// The next frame; `None` after a clean end, the reason after a broken one.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame, Arc<str>>>> {
        loop {
            if let Some(next) = self.look() {
                self.grown = None;
                return Poll::Ready(next);
            }
            match &mut self.grown {
                // Made before the look that follows, it sees every change since.
                None => self.grown = Some(Box::pin(Arc::clone(&self.log.grown).notified_owned())),
                Some(grown) => {
                    ready!(grown.as_mut().poll(cx));
                    self.grown = None;
                }
            }
        }
    }

    /// What is there now.
    fn look(&mut self) -> Option<Option<Result<Frame, Arc<str>>>> {
        let state = self.log.state();
        if let Some(frame) = state.frames.get(self.next) {
            self.next += 1;
            if let Frame::Data(bytes) = frame {
                self.read += bytes.len() as u64;
            }
            return Some(Some(Ok(frame.clone())));
        }
        match &state.end {
            Some(End::Clean) => Some(None),
            Some(End::Broken(why)) => Some(Some(Err(Arc::clone(why)))),
            None => None,
        }
    }

    /// True when nothing follows, trailers included.
    pub(crate) fn is_at_end(&self) -> bool {
        let state = self.log.state();
        self.next == state.frames.len() && matches!(state.end, Some(End::Clean))
    }

    /// The bytes of data that are still to come, where that is known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        let state = self.log.state();
        matches!(state.end, Some(End::Clean)).then(|| state.data_bytes - self.read)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("next", &self.next).field("log", &self.log).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use bytes::Bytes;
    use http::HeaderMap;
    use tokio_test::{assert_pending, assert_ready, task};

    use super::*;

    fn poll(reader: &mut task::Spawn<Reader>) -> Poll<Option<Result<Frame, Arc<str>>>> {
        reader.enter(|cx, reader| reader.get_mut().poll_next(cx))
    }

    fn data(text: &'static str) -> Frame {
        Frame::Data(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn readers_share_the_bytes() {
        let bytes = Bytes::from(vec![7; 64]);
        let log = Log::complete(vec![Frame::Data(bytes.clone())]);
        for _ in 0..3 {
            let mut reader = log.reader();
            let frame = poll_fn(|cx| reader.poll_next(cx)).await;
            let Some(Ok(Frame::Data(read))) = frame else { panic!("{frame:?}") };
            assert_eq!(read.as_ptr(), bytes.as_ptr());
            assert!(reader.is_at_end());
        }
    }

    #[test]
    fn a_reader_wakes_for_each_frame_and_for_the_end() {
        let log = Arc::new(Log::default());
        let mut reader = task::spawn(log.reader());
        assert_pending!(poll(&mut reader));
        log.push(data("a"));
        assert!(reader.is_woken());
        assert!(matches!(assert_ready!(poll(&mut reader)), Some(Ok(Frame::Data(_)))));
        assert!(!reader.is_at_end());
        assert_pending!(poll(&mut reader));
        log.end(End::Clean);
        assert!(reader.is_woken());
        assert!(reader.is_at_end());
        assert!(assert_ready!(poll(&mut reader)).is_none());
    }

    #[test]
    fn trailers_keep_the_end_open() {
        let log = Log::complete(vec![data("a"), Frame::Trailers(HeaderMap::new())]);
        let mut reader = task::spawn(log.reader());
        assert_eq!(reader.remaining(), Some(1));
        let _ = assert_ready!(poll(&mut reader));
        assert_eq!(reader.remaining(), Some(0));
        assert!(!reader.is_at_end());
        let _ = assert_ready!(poll(&mut reader));
        assert!(reader.is_at_end());
    }

    #[test]
    fn a_broken_end_is_an_error_to_every_reader() {
        let log = Arc::new(Log::default());
        log.push(data("a"));
        log.end(End::Broken("cut".into()));
        log.push(data("late"));
        for _ in 0..2 {
            let mut reader = task::spawn(log.reader());
            let _ = assert_ready!(poll(&mut reader));
            assert_eq!(reader.remaining(), None);
            let end = assert_ready!(poll(&mut reader));
            assert_eq!(end.unwrap().unwrap_err().as_ref(), "cut");
        }
    }
}
