//! Others who do the same work in one process: the same request and key in, the same
//! answer out, read to its end.

mod crates;
mod floor;
mod layer;
mod spawn;

use std::future::Future;

use bytes::Bytes;
use http::{Request, Response};
use tower::ServiceExt;
use tower_singleflight::{Key, KeyExtractor};

pub use self::{
    crates::{AsyncSingleflight, Moka, QuickCache, Resilience, SingleflightAsync},
    floor::Floor,
    layer::Ours,
    spawn::Spawn,
};
use crate::work::{self, Body, Inner};

/// What callers of one key share.
pub(crate) type Answer = Response<Body>;

/// One of those who are compared.
pub trait Peer: Clone + Send + Sync + 'static {
    const NAME: &'static str;

    /// One call, from the request to the end of the answer.
    fn call(&self, request: Request<Body>) -> impl Future<Output = Bytes> + Send + 'static;
}

/// Something that is done with each of them.
pub trait Visit {
    fn visit<P: Peer>(&mut self, peer: P);
}

/// Shows all of them, each around a service of its own.
pub fn each<K: KeyExtractor<Request<Body>>>(
    key: &K,
    inner: impl Fn() -> Inner,
    visit: &mut impl Visit,
) {
    visit.visit(Bare::new(inner()));
    visit.visit(Floor::new(inner(), key.clone()));
    visit.visit(Spawn::new(inner(), key.clone()));
    visit.visit(Ours::new(inner(), key.clone()));
    visit.visit(SingleflightAsync::new(inner(), key.clone()));
    let extract = key.clone();
    visit.visit(Resilience::new(inner(), move |request: &_| key_of(&extract, request)));
    visit.visit(QuickCache::new(inner(), key.clone()));
    visit.visit(AsyncSingleflight::new(inner(), key.clone()));
    visit.visit(Moka::new(inner(), key.clone()));
}

/// The service alone: everyone runs it.
#[derive(Clone)]
pub struct Bare(Inner);

impl Bare {
    pub fn new(inner: Inner) -> Self {
        Self(inner)
    }
}

impl Peer for Bare {
    const NAME: &'static str = "bare service";

    fn call(&self, request: Request<Body>) -> impl Future<Output = Bytes> + Send + 'static {
        let inner = self.0.clone();
        async move { work::read(run(inner, request).await).await }
    }
}

/// One run of the service.
async fn run(inner: Inner, request: Request<Body>) -> Answer {
    match inner.oneshot(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    }
}

/// The key of a request that has one.
fn key_of<K: KeyExtractor<Request<Body>>>(key: &K, request: &Request<Body>) -> Key {
    key.extract(request).expect("a key")
}
