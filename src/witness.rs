//! Seeing, in shadow mode, what a run gives that its own caller gets all the same.

use std::sync::Arc;

use http_body::Body;
use tokio::sync::oneshot;

use crate::{
    body::Resumed,
    cache_status::FlightRole,
    codec::{Codec, Judgement, Opened},
    config::Delivery,
    core::Parts,
    key::KeyExtractor,
    print::{Printer, Seen},
};

/// Who tells what comes of a run, and what is known of its request. Dropped, it says
/// that nothing whole came of it.
pub(crate) struct Witness {
    identified: bool,
    head_only: bool,
    /// Of bodies: it has what the answer belongs to already.
    hasher: blake3::Hasher,
    tell: oneshot::Sender<Seen>,
}

impl Witness {
    pub(crate) fn new<Req, Res, E, K, C>(
        parts: &Parts<K, C>,
        request: &Req,
        hasher: blake3::Hasher,
        tell: oneshot::Sender<Seen>,
    ) -> Self
    where
        K: KeyExtractor<Req>,
        C: Codec<Req, Res, E>,
    {
        Self {
            identified: parts.key.is_identified(request),
            head_only: parts.codec.is_head_only(request),
            hasher,
            tell,
        }
    }

    /// Gives the response to its own caller, and sees its body as it goes by.
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
        let opened = match parts.judge(&response, self.identified, false) {
            Judgement::Shared { varies, .. } => codec.open(response).map(|opened| (opened, varies)),
            Judgement::Private => Err(response),
        };
        let (Opened { head, promised, extra, body }, varies) = match opened {
            Ok(opened) => opened,
            Err(response) => {
                self.unshareable();
                return codec.pass(response, role);
            }
        };
        let (head, config) = (Arc::new(head), &parts.core().config);
        let hint = body.size_hint();
        let promised = promised.or_else(|| hint.exact()).filter(|_| !self.head_only);
        let most = config.max_share_bytes as u64;
        if promised.unwrap_or(0).max(hint.lower()) > most {
            self.unshareable();
            let body = Resumed::new(Vec::new(), Box::pin(body));
            return codec.resume(&head, extra, body, role);
        }
        let whole = !codec.is_streamed() || config.delivery == Delivery::Buffered;
        let most = if whole { most } else { u64::MAX };
        let mut printer = Printer::new(Arc::clone(&head), varies, self.hasher, self.tell);
        if self.head_only {
            printer.end(None);
        }
        let mut body = Resumed::printed(body, printer.of(promised, most));
        if !codec.is_streamed() {
            // Who gets it takes no body.
            body.read_ahead();
        }
        codec.resume(&head, extra, body, role)
    }

    fn unshareable(self) {
        // Who compares may have gone with its runtime.
        let _ = self.tell.send(Seen::Unshareable);
    }
}
