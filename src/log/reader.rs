use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::sync::futures::OwnedNotified;

use super::{End, Log, SharedRun};
use crate::frame::Frame;

/// One reader's place in a log.
pub(crate) struct Reader {
    log: Arc<Log>,
    /// Its place among the readers of a body that comes.
    place: Option<usize>,
    next: usize,
    /// There while this reader waits. Boxed, since bodies are `Unpin` where they can
    /// be, and most readers never wait.
    grown: Option<Pin<Box<OwnedNotified>>>,
}

/// What a reader comes to.
pub(crate) enum Next {
    Frame(Frame),
    /// The end of the body.
    End,
    /// Its end before its time; the text says why.
    Broken(Arc<str>),
    /// Another run takes over.
    Moved(SharedRun),
    /// Nothing: what it wanted next is no longer held.
    Behind,
}

impl Reader {
    pub(super) fn new(log: Arc<Log>, place: Option<usize>) -> Self {
        Self { log, place, next: 0, grown: None }
    }

    /// The log that is read.
    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Waits for what comes next. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Next {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            if let Some(next) = self.look() {
                return Poll::Ready(next);
            }
            let grown = self.log.grown();
            match &mut self.grown {
                // Made before the look that follows, it sees every change since.
                None => self.grown = Some(Box::pin(Arc::clone(grown).notified_owned())),
                Some(waiting) => {
                    ready!(waiting.as_mut().poll(cx));
                    waiting.set(Arc::clone(grown).notified_owned());
                }
            }
        }
    }

    /// What is there now.
    pub(crate) fn look(&mut self) -> Option<Next> {
        let mut state = self.log.state();
        let Some(at) = self.next.checked_sub(state.first) else {
            return Some(Next::Behind);
        };
        let Some(frame) = state.frames.get(at).cloned() else {
            return state.end.clone().map(|end| match end {
                End::Clean => Next::End,
                End::Broken(why) => Next::Broken(why),
                End::Moved(run) => Next::Moved(run),
            });
        };
        self.next += 1;
        if let Some(wants) = self.place.and_then(|place| state.readers.get_mut(place)) {
            *wants = self.next;
        }
        drop(state);
        if self.log.is_window() {
            self.log.drained.notify_one();
        }
        Some(Next::Frame(frame))
    }

    /// A digest of the data handed out; none where it cannot be told any more.
    pub(super) fn digest(&self) -> Option<blake3::Hash> {
        let (mut digest, frames) = {
            let state = self.log.state();
            let held = self.next.checked_sub(state.first)?;
            let frames: Vec<Frame> = state.frames.iter().take(held).cloned().collect();
            (state.gone.as_deref().cloned().unwrap_or_default(), frames)
        };
        for frame in frames {
            if let Frame::Data(bytes) = frame {
                digest.update(&bytes);
            }
        }
        Some(digest.finalize())
    }

    /// True when nothing follows, trailers included.
    pub(crate) fn is_at_end(&self) -> bool {
        let state = self.log.state();
        self.next == state.first + state.frames.len() && matches!(state.end, Some(End::Clean))
    }

    /// How many bytes of data the whole body has, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        let state = self.log.state();
        match state.end {
            Some(End::Clean) => Some(state.data_bytes),
            _ => self.log.promised,
        }
    }

    /// The length that clients are told before they get the body, where they are told one.
    /// On HTTP/1 no trailers come after a length, so none is told of a body that has some
    /// and did not have a length from the start.
    pub(crate) fn told_length(&self) -> Option<u64> {
        let ends_in_trailers =
            || matches!(self.log.state().frames.back(), Some(Frame::Trailers(_)));
        self.log.promised.or_else(|| self.length().filter(|_| !ends_in_trailers()))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.log.state().readers.try_remove(place);
            self.log.drained.notify_one();
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("next", &self.next).field("log", &self.log).finish()
    }
}
