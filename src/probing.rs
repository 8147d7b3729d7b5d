//! Finding out whether a key is still private, by a run that a caller has alone.

use crate::{
    body::Resumed,
    cache_status::FlightRole,
    codec::{Codec, Judgement, Opened},
    core::Parts,
    key::KeyExtractor,
    lease::Probe,
};

/// A probe, and what is known of the request that it goes with.
pub(crate) struct Probing {
    probe: Box<Probe>,
    identified: bool,
}

impl Probing {
    pub(crate) fn new<Req, K, C>(probe: Box<Probe>, parts: &Parts<K, C>, request: &Req) -> Self
    where
        K: KeyExtractor<Req>,
    {
        Self { probe, identified: parts.key.is_identified(request) }
    }

    /// Gives the response to its own caller, and takes the mark away where others could
    /// have had it.
    pub(crate) fn see<Req, Res, E, K, C>(
        self,
        parts: &Parts<K, C>,
        response: Res,
        role: FlightRole,
    ) -> C::Response
    where
        K: KeyExtractor<Req>,
        C: Codec<Req, Res, E>,
    {
        let codec = &parts.codec;
        let Judgement::Shared { .. } = parts.judge(&response, self.identified, false) else {
            return codec.pass(response, role);
        };
        match codec.open(response) {
            Ok(Opened { head, extra, body, .. }) => {
                self.probe.clear();
                codec.resume(&head, extra, Resumed::new(Vec::new(), Box::pin(body)), role)
            }
            Err(response) => codec.pass(response, role),
        }
    }
}
