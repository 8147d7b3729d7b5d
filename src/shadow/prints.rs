//! Flights of prints: what is asked, who answers, and how prints travel.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use tokio::sync::watch;
use tower_service::Service;

use crate::{
    body::{Replay, Resumed},
    cache_status::FlightRole,
    codec::{Asked, Codec, Judgement, Opened},
    error::Failure,
    frame::{Frame, Head},
    key::{Bypass, Key, KeyExtractor},
    print::{Answer, Moment, Print},
    store::BoxFuture,
};

/// Asks for the print of a run: this caller's, where it is the owner.
#[derive(Clone)]
pub(super) struct Awaited {
    pub(super) print: watch::Receiver<Option<Print>>,
    /// Of the caller's request, the headers outside its key.
    pub(super) outside: Option<Arc<HeaderMap>>,
}

/// The print that a caller would have got the answer of.
pub(super) struct Told {
    pub(super) print: Print,
    pub(super) role: FlightRole,
}

/// No print came.
#[derive(Debug)]
pub(super) struct Untold;

/// Waits for the run that is asked for.
#[derive(Clone)]
pub(super) struct Teller;

impl Service<Awaited> for Teller {
    type Response = Print;
    type Error = Untold;
    type Future = BoxFuture<'static, Result<Print, Untold>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Untold>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, Awaited { mut print, .. }: Awaited) -> Self::Future {
        Box::pin(async move {
            let print = print.wait_for(Option::is_some).await.map_err(|_| Untold)?;
            print.clone().ok_or(Untold)
        })
    }
}

/// Keys of prints are those of the requests, and known before.
#[derive(Clone)]
pub(super) struct Known;

impl KeyExtractor<Awaited> for Known {
    fn extract(&self, _: &Awaited) -> Result<Key, Bypass> {
        Err(Bypass::NoKey)
    }
}

/// Prints have the form of what they are of: a head, the digest of a body, trailers.
#[derive(Clone)]
pub(super) struct Prints;

impl Codec<Awaited, Print, Untold> for Prints {
    type Response = Told;
    type Error = Untold;
    type Body = PrintBody;
    type Extra = Print;

    fn is_streamed(&self) -> bool {
        false
    }

    fn repeat(&self, awaited: &Awaited) -> Option<Awaited> {
        Some(awaited.clone())
    }

    fn headers<'a>(&self, awaited: &'a Awaited) -> Option<&'a HeaderMap> {
        awaited.outside.as_deref()
    }

    fn judge(&self, print: &Print, _: &Asked<'_>) -> Judgement {
        match print {
            Print::Unshareable => Judgement::Private,
            Print::Answer(answer) => {
                Judgement::Shared { reuse: Duration::ZERO, varies: answer.varies.clone() }
            }
        }
    }

    fn open(&self, print: Print) -> Result<Opened<Print, PrintBody>, Print> {
        let Print::Answer(answer) = &print else { return Err(print) };
        let head = Head { status: answer.status, headers: answer.headers.clone() };
        let data = Some([&answer.body[..], &answer.at.to_bytes()].concat().into());
        let trailers = (!answer.trailers.is_empty()).then(|| answer.trailers.clone());
        let body = PrintBody { data, trailers };
        Ok(Opened { head, promised: None, extra: print, body })
    }

    fn replay(
        &self,
        head: &Head,
        own: Option<Print>,
        body: Replay,
        role: FlightRole,
    ) -> Option<Told> {
        let print = match own {
            Some(own) => own,
            None => Print::Answer(Arc::new(read(head, body)?)),
        };
        Some(Told { print, role })
    }

    fn resume(&self, _: &Head, print: Print, _: Resumed<PrintBody>, role: FlightRole) -> Told {
        Told { print, role }
    }

    fn pass(&self, print: Print, role: FlightRole) -> Told {
        Told { print, role }
    }

    fn error(&self, untold: Untold) -> Untold {
        untold
    }

    fn failure(&self, _: Failure) -> Result<Told, Untold> {
        Err(Untold)
    }

    fn describe(&self, _: &Untold) -> String {
        "the run gave no whole answer".into()
    }
}

/// The print that another caller's run had; none where this is not the form of one.
fn read(head: &Head, body: Replay) -> Option<Answer> {
    let nothing = (Vec::new(), HeaderMap::new());
    let (digest, trailers) = body.gather(nothing, |(mut digest, mut trailers), frame| {
        match frame {
            Frame::Data(bytes) => digest.extend_from_slice(&bytes),
            Frame::Trailers(map) => trailers = map,
        }
        Some((digest, trailers))
    })?;
    let (body, at) = digest.split_last_chunk()?;
    let (body, at) = (body.try_into().ok()?, Moment::from_bytes(*at));
    let (status, headers) = (head.status, head.headers.clone());
    Some(Answer { status, headers, body, trailers, varies: Vec::new(), at })
}

/// The digest of a body and the moment of its end, and the digests of its trailers.
pub(super) struct PrintBody {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for PrintBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let data = self.data.take().map(http_body::Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(http_body::Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }
}
