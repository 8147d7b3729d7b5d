//! Requests with bodies of any kind.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use tower::{BoxError, Service, ServiceExt};
use tower_singleflight::{Bypass, FlightRole};

use crate::support::{Answer, read};

/// A body that any other can be made into.
pub(crate) type Boxed = UnsyncBoxBody<Bytes, Broke>;

pub(crate) fn boxed<B>(body: B) -> Boxed
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    UnsyncBoxBody::new(body.map_err(|error| Broke(error.into().to_string())))
}

#[derive(Debug)]
pub(crate) struct Broke(String);

impl std::fmt::Display for Broke {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broke {}

/// A request with a JSON body, whose trailers are announced.
pub(crate) fn post<B>(body: B) -> Request<Boxed>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let request = Request::post("http://a.test/").header("content-type", "application/json");
    request.header("trailer", "x-sum").body(boxed(body)).unwrap()
}

/// Sends a request through a clone of the service and reads all of the answer.
pub(crate) fn ask<S, B, E>(
    service: &S,
    request: Request<Boxed>,
) -> impl Future<Output = Answer> + Send + use<S, B, E>
where
    S: Service<Request<Boxed>, Response = Response<B>, Error = E, Future: Send> + Clone + Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send,
    E: std::fmt::Debug + Send,
{
    let service = service.clone();
    async move { read(service.oneshot(request).await.unwrap()).await.unwrap() }
}

pub(crate) const fn bypass(why: Bypass) -> Option<FlightRole> {
    Some(FlightRole::Bypass(why))
}
