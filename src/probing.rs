//! Finding out whether a key is still private, by a run that a caller has alone.

use crate::{
    codec::{Codec, Judgement},
    core::Parts,
    key::KeyExtractor,
    lease::Probe,
};

/// A probe, and what is known of the request that it goes with.
pub(crate) struct Probing {
    probe: Probe,
    identified: bool,
}

impl Probing {
    pub(crate) fn new<Req, K, C>(probe: Probe, parts: &Parts<K, C>, request: &Req) -> Self
    where
        K: KeyExtractor<Req>,
    {
        Self { probe, identified: parts.key.is_identified(request) }
    }

    /// Takes the mark away where this response could be shared.
    pub(crate) fn see<Req, Res, E, K, C>(self, parts: &Parts<K, C>, response: &Res)
    where
        K: KeyExtractor<Req>,
        C: Codec<Req, Res, E>,
    {
        if let Judgement::Shared { .. } = parts.judge(response, self.identified, false) {
            self.probe.clear();
        }
    }
}
