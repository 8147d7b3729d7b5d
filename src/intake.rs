//! Reading inner's body into a log, and deciding on the way how it is delivered.

use std::{future::poll_fn, pin::Pin, sync::Arc};

use bytes::Buf;
use http::HeaderMap;
use http_body::Body;
use tower::BoxError;

use crate::{
    config::Delivery,
    flights::Stage,
    frame::Frame,
    log::{End, Log},
    then::unwinding,
};

/// How a body is read.
pub(crate) struct Intake<'a> {
    pub(crate) log: &'a Arc<Log>,
    pub(crate) stage: &'a Stage,
    /// The length that the head speaks of.
    pub(crate) promised: Option<u64>,
    /// The most bytes that are held to be shared.
    pub(crate) most: usize,
    pub(crate) delivery: Delivery,
    /// Whether a body that ended with these trailers is all there.
    pub(crate) is_complete: &'a (dyn Fn(Option<&HeaderMap>) -> bool + Sync),
}

/// What became of it.
pub(crate) enum Collected<B> {
    Whole,
    /// Larger than what is shared, and nobody has begun with it.
    TooLarge(Pin<Box<B>>),
    Broken(String),
}

/// `Auto` waits for the end of bodies of this size.
const BUFFERED: u64 = 64 * 1024;

/// So many frames are taken in one go.
const AT_ONCE: u32 = 32;

impl Intake<'_> {
    /// Reads a body to its end. Calls `open` once, where it is to be handed out from
    /// now on as it comes.
    pub(crate) async fn collect<B>(
        &self,
        mut body: Pin<Box<B>>,
        open: impl FnOnce(),
    ) -> Collected<B>
    where
        B: Body<Error: Into<BoxError>>,
    {
        let least = self.promised.unwrap_or(0).max(body.size_hint().lower());
        if least > self.most as u64 {
            return Collected::TooLarge(body);
        }
        let mut open = Some(open);
        let mut go_live = || {
            if let Some(open) = open.take() {
                open();
            }
        };
        // A body that is whole at once needs no stream.
        let waits = match self.delivery {
            Delivery::Buffered => false,
            Delivery::Streaming => {
                go_live();
                true
            }
            Delivery::Auto => self.promised.is_none_or(|promised| promised > BUFFERED),
        };
        let mut live = self.delivery == Delivery::Streaming;
        let mut trailers = None;
        let mut frames = 0_u32;
        while trailers.is_none() && !body.is_end_stream() {
            // A body that is always ready must not keep its driver from looking whether
            // anybody wants it, nor its readers from reading.
            frames = frames.wrapping_add(1);
            if frames.is_multiple_of(AT_ONCE) {
                tokio::task::yield_now().await;
            }
            let frame = poll_fn(|cx| {
                let polled = body.as_mut().poll_frame(cx);
                if polled.is_pending() && waits && !std::mem::replace(&mut live, true) {
                    go_live();
                }
                polled
            });
            let frame = match unwinding(frame).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return self.broken(error.into().to_string()),
                Err(_) => return self.broken("inner's body panicked".into()),
            };
            self.stage.beat();
            let frame = match frame.into_data() {
                Ok(mut data) if data.has_remaining() => {
                    Frame::Data(data.copy_to_bytes(data.remaining()))
                }
                Ok(_) => continue,
                Err(frame) => match frame.into_trailers() {
                    Ok(map) => {
                        trailers = Some(map);
                        continue;
                    }
                    Err(_) => continue,
                },
            };
            if !live {
                self.log.push(frame);
                if waits && self.log.held() as u64 > BUFFERED {
                    live = true;
                    go_live();
                } else if self.log.held() > self.most {
                    return Collected::TooLarge(body);
                }
                continue;
            }
            // Boxed, since few bodies ever wait for either.
            if !self.log.has_room(&frame) {
                Box::pin(self.log.room(&frame, true)).await;
            }
            if !self.stage.is_granted() {
                Box::pin(self.stage.granted()).await;
            }
            self.log.push(frame);
        }
        let came = self.log.data_bytes();
        if let Some(promised) = self.promised.filter(|promised| *promised != came) {
            return self.broken(format!("{came} bytes came where {promised} were promised"));
        }
        if !(self.is_complete)(trailers.as_ref()) {
            return self.broken("its end is missing".into());
        }
        if live && !self.stage.is_granted() {
            Box::pin(self.stage.granted()).await;
        }
        self.log.finish(trailers);
        Collected::Whole
    }

    fn broken<B>(&self, report: String) -> Collected<B> {
        self.log.end(End::Broken(report.as_str().into()));
        Collected::Broken(report)
    }
}
