use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::Frame;
use tokio::sync::oneshot;

use super::Moment;
use crate::frame::Head;

/// What was seen of a run's answer.
pub(crate) enum Seen {
    /// That it may not be shared.
    Unshareable,
    /// All of it.
    Whole {
        /// What others would have been given.
        head: Arc<Head>,
        /// The request headers outside the key that it depends on.
        varies: Vec<HeaderName>,
        body: blake3::Hash,
        trailers: Option<HeaderMap>,
        /// When its end was there.
        at: Moment,
    },
}

/// Digests a body that goes by, and tells what was seen once that is whole. Dropped
/// before, it tells nothing.
pub(crate) struct Printer {
    hasher: blake3::Hasher,
    came: u64,
    /// The length that the head speaks of.
    promised: Option<u64>,
    /// The most bytes that are shared.
    most: u64,
    /// Until it has told, or there is nothing to tell.
    open: Option<(Arc<Head>, Vec<HeaderName>, oneshot::Sender<Seen>)>,
}

impl Printer {
    pub(crate) fn new(
        head: Arc<Head>,
        varies: Vec<HeaderName>,
        hasher: blake3::Hasher,
        tell: oneshot::Sender<Seen>,
    ) -> Self {
        let open = Some((head, varies, tell));
        Self { hasher, came: 0, promised: None, most: u64::MAX, open }
    }

    /// For a body of which the head says this, and of which others get so much at most.
    pub(crate) fn of(mut self, promised: Option<u64>, most: u64) -> Self {
        (self.promised, self.most) = (promised, most);
        self
    }

    /// A frame goes by.
    pub(crate) fn see(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.came += data.len() as u64;
            if self.came > self.most
                && let Some((.., tell)) = self.open.take()
            {
                // Who waited for it may have left.
                let _ = tell.send(Seen::Unshareable);
            } else if self.open.is_some() {
                self.hasher.update(data);
            }
        } else if let Some(trailers) = frame.trailers_ref() {
            self.end(Some(trailers.clone()));
        }
    }

    /// The body is at its end.
    pub(crate) fn end(&mut self, trailers: Option<HeaderMap>) {
        if let Some((head, varies, tell)) = self.open.take()
            && self.promised.is_none_or(|promised| promised == self.came)
        {
            let body = self.hasher.finalize();
            let _ = tell.send(Seen::Whole { head, varies, body, trailers, at: Moment::now() });
        }
    }

    /// The body broke off.
    pub(crate) fn broken(&mut self) {
        self.open = None;
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        // A server asks for no end after the length that it has told its client.
        if self.promised == Some(self.came) {
            self.end(None);
        }
    }
}
