use std::{fmt, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::Moment;
use crate::frame::{Head, OF_THE_RUN};

/// What is compared of a run.
#[derive(Clone, Debug)]
pub(crate) enum Print {
    /// Its answer may not be shared.
    Unshareable,
    /// What others would have been given.
    Answer(Arc<Answer>),
}

impl Print {
    /// Whether its answer was whole before.
    pub(crate) fn is_older_than(&self, moment: Moment) -> bool {
        matches!(self, Self::Answer(answer) if answer.at < moment)
    }
}

/// An answer, with digests where it has values.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: [u8; 32],
    pub(crate) trailers: HeaderMap,
    /// The request headers outside the key that it depends on.
    pub(crate) varies: Vec<HeaderName>,
    /// When it was whole, for those of its own process.
    pub(crate) at: Moment,
}

impl Answer {
    /// `hasher` has what the answer belongs to already.
    pub(crate) fn new(
        head: &Head,
        body: blake3::Hash,
        trailers: Option<&HeaderMap>,
        varies: Vec<HeaderName>,
        at: Moment,
        hasher: &blake3::Hasher,
    ) -> Self {
        let trailers = trailers.map(|map| digests(map, |_| true, hasher));
        Self {
            status: head.status,
            headers: digests(&head.headers, |name| !OF_THE_RUN.contains(&name.as_str()), hasher),
            body: *body.as_bytes(),
            trailers: trailers.unwrap_or_default(),
            varies,
            at,
        }
    }
}

/// One digest for each name, over all its lines in their order.
fn digests(
    map: &HeaderMap,
    compared: impl Fn(&HeaderName) -> bool,
    hasher: &blake3::Hasher,
) -> HeaderMap {
    let mut digests = HeaderMap::with_capacity(map.keys_len());
    for name in map.keys().filter(|name| compared(name)) {
        let mut hasher = hasher.clone();
        hasher.update(name.as_str().as_bytes());
        for line in map.get_all(name) {
            hasher.update(&(line.len() as u64).to_le_bytes());
            hasher.update(line.as_bytes());
        }
        let digest = hasher.finalize().to_hex();
        // Half of it: it need stand against chance only.
        if let Ok(digest) = HeaderValue::from_str(&digest[..32]) {
            digests.insert(name, digest);
        }
    }
    digests
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}
