//! A caller that waits for its flight.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::{
    sync::futures::OwnedNotified,
    time::{Sleep, sleep},
};
use tower_service::Service;

use crate::{
    codec::Codec,
    core::Core,
    error::{Failure, FailureKind},
    flights::{Origin, Share, Verdict},
    heard::{Heard, alone, hear},
    seat::{Left, Seat},
};

pin_project! {
    /// A caller that waits for its flight.
    pub(crate) struct Waiting<S, Req, K, C>
    where
        S: Service<Req>,
        C: Codec<Req, S::Response, S::Error>,
    {
        pub(crate) seat: Option<Left<S, Req, K, C>>,
        share: Option<Share>,
        // made before each look at the flight, so that no change is missed
        #[pin]
        stirred: OwnedNotified,
        pub(crate) limit: Option<Pin<Box<Sleep>>>,
    }
}

impl<S, Req, K, C> Waiting<S, Req, K, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    pub(crate) fn new(
        seat: Arc<Seat<S, Req, K, C>>,
        share: Share,
        limit: Option<Duration>,
    ) -> Self {
        let stirred = share.flight().stirred();
        let limit = limit.map(|limit| Box::pin(sleep(limit)));
        Self { seat: Some(Left(Some(seat))), share: Some(share), stirred, limit }
    }

    /// Waits for something to hear; with it comes the share, for the body.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        core: &Arc<Core>,
        streamed: bool,
    ) -> Poll<(Heard<S, Req, C>, Option<Share>)> {
        let mut this = self.project();
        let (Some(Left(Some(seat))), Some(share)) = (&*this.seat, &*this.share) else {
            return Poll::Pending;
        };
        let flight = share.flight();
        let heard = loop {
            // Before the look, so that no change is missed.
            let stirred = this.stirred.as_mut().poll(cx).is_ready();
            if stirred {
                this.stirred.set(flight.stirred());
            }
            if let Some(own) = seat.take_own() {
                break Heard::Own(own);
            }
            let (run, origin) = match flight.verdict() {
                None if flight.adopt() => {
                    crate::flight::launch(core, flight);
                    (None, Origin::Here)
                }
                // What is not to be handed out in parts may come in parts all the same.
                None => match flight.live() {
                    Some((run, origin)) if streamed || run.log.has_ended() => (Some(run), origin),
                    _ => (None, Origin::Here),
                },
                Some(Verdict::Replay { run, origin }) => (Some(run.clone()), *origin),
                Some(Verdict::Alone { together }) => match alone(seat, *together) {
                    Heard::Alone { service, request, together, .. } => {
                        let probe = flight.take_probe();
                        break Heard::Alone { service, request, together, probe };
                    }
                    heard => break heard,
                },
                Some(Verdict::Failed(failure)) => break Heard::Failed(failure.clone()),
            };
            if let Some(run) = run {
                break hear(seat, flight.name(), run, origin);
            }
            // What the run will give is not for this caller: it need not wait for it.
            if !seat.was_started()
                && let Some(selection) = flight.selection()
                && !seat.fits(flight.name(), Some(&selection))
            {
                break alone(seat, true);
            }
            if stirred {
                continue;
            }
            if let Some(limit) = this.limit
                && !seat.was_started()
                && limit.as_mut().poll(cx).is_ready()
            {
                break Heard::Failed(Failure::new(FailureKind::WaitedTooLong, None));
            }
            return Poll::Pending;
        };
        Poll::Ready((heard, this.share.take()))
    }
}
