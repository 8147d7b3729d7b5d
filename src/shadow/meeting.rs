//! A caller's part in shadow mode, beside its own run.

use std::{pin::pin, sync::Arc};

use http::HeaderMap;
use tokio::sync::{oneshot, watch};
use tracing::{Instrument, Span};

use super::prints::{Awaited, Known, Prints, Teller, Told, Untold};
use crate::{
    cache_status::FlightRole,
    chain::Chain,
    codec::Codec,
    core::{Core, Parts},
    entry::join,
    frame::Head,
    id::KeyDigest,
    key::{Bypass, KeyExtractor, Name},
    print::{Answer, Difference, Moment, Print, Seen},
    witness::Witness,
};

/// Lets a caller's run be compared with the one that it would have followed; what it
/// gives is to be seen by the witness. `shadow` is where prints meet. To be called in a
/// runtime, before the request is run.
pub(crate) fn meet<Req, Res, E, K, C>(
    parts: &Parts<K, C>,
    shadow: &Arc<Core>,
    request: &Req,
    name: &Name,
) -> Witness
where
    K: KeyExtractor<Req>,
    C: Codec<Req, Res, E>,
{
    let hasher = name.beside();
    let (tell, seen) = oneshot::channel();
    let witness = Witness::new(parts, request, hasher.clone(), tell);
    let (print, prints) = watch::channel(None);
    let awaited = Awaited {
        print: prints,
        outside: parts.outside(request).map(|fields| Arc::new(fields.into_iter().collect())),
    };
    // Here and now, so that callers meet in the order in which they come.
    let prints = Arc::new(Parts::new(Known, Prints, Arc::clone(shadow)));
    let flight = join(prints, Teller, awaited, name.clone(), Chain::default());
    let came = Moment::now();
    let (core, key) = (Arc::clone(parts.core()), *name.digest());
    let codec = parts.codec.clone();
    let is_complete =
        Box::new(move |head: &_, trailers: Option<&_>| codec.is_complete(head, trailers));
    let meeting = Meeting { core, key, came, hasher, print, is_complete };
    tokio::spawn(meeting.attend(seen, flight).instrument(Span::current()));
    witness
}

type IsComplete = dyn Fn(&Head, Option<&HeaderMap>) -> bool + Send + Sync;

struct Meeting {
    core: Arc<Core>,
    key: KeyDigest,
    /// When the caller came.
    came: Moment,
    /// It has what the answer belongs to already.
    hasher: blake3::Hasher,
    /// For the flight: what came of this caller's run.
    print: watch::Sender<Option<Print>>,
    /// The codec's word, behind a pointer: a task of one type serves layers of all.
    is_complete: Box<IsComplete>,
}

impl Meeting {
    /// Waits for what comes of the caller's own run and of the one that it would have
    /// followed, and compares them. Without an own it leaves the flight.
    async fn attend(
        self,
        mut seen: oneshot::Receiver<Seen>,
        flight: impl Future<Output = Result<Told, Untold>>,
    ) {
        let mut flight = pin!(flight);
        let mut told = None;
        let seen = loop {
            tokio::select! {
                biased;
                seen = &mut seen => break seen,
                came = &mut flight, if told.is_none() => told = Some(came),
            }
        };
        let own = match seen {
            Ok(Seen::Unshareable) => Print::Unshareable,
            Ok(Seen::Whole { head, varies, body, trailers, at })
                if (self.is_complete)(&head, trailers.as_ref()) =>
            {
                let answer = Answer::new(&head, body, trailers.as_ref(), varies, at, &self.hasher);
                Print::Answer(Arc::new(answer))
            }
            _ => return self.core.counts.shadow_uncompared(),
        };
        self.print.send_replace(Some(own.clone()));
        let told = match told {
            Some(told) => told,
            None => flight.await,
        };
        self.compare(&own, told);
    }

    fn compare(&self, own: &Print, told: Result<Told, Untold>) {
        let counts = &self.core.counts;
        let Ok(Told { print, role }) = told else { return counts.shadow_uncompared() };
        match role {
            FlightRole::Owner if matches!(own, Print::Answer(_)) => {}
            FlightRole::Owner | FlightRole::Bypass(Bypass::Unshared) => counts.shadow_unshareable(),
            FlightRole::Bypass(_) => counts.shadow_uncompared(),
            // Its flight hears of the end a step later: they were not in the air together.
            FlightRole::FollowerLocal if print.is_older_than(self.came) => {}
            FlightRole::FollowerLocal | FlightRole::FollowerRemote | FlightRole::Reused { .. } => {
                match Difference::between(&print, own) {
                    None => counts.shadow_agreed(),
                    Some(parts) => {
                        counts.shadow_differed();
                        tracing::warn!(
                            key = ?self.key,
                            %parts,
                            "shadow mode: a caller would have been given another answer",
                        );
                    }
                }
            }
        }
    }
}
