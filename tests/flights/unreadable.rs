//! An answer that a caller cannot read, whose own request is used up.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{
    Codec, Config, Failure, FailureKind, FlightError, FlightRole, FlightToken, Head, HttpCodec,
    HttpKey, MemoryStore, Replay, ResponseBody, Resumed, SingleFlightLayer,
    codec::{Asked, Judgement, Opened},
    key_fn,
};

use crate::{
    rig::{Body, Line, Reply, ms},
    tap::Taps,
};

#[tokio::test(start_paused = true)]
async fn k8_a_value_of_another_release_for_a_request_that_is_used_up() {
    let store = MemoryStore::new();
    let line = Line::new(&store);
    let key = || key_fn(|city: &&str| Some(*city));
    let limit = Config::builder().hard_timeout(ms(1000)).build().unwrap();
    let old = SingleFlightLayer::values(key()).store(line.clone()).namespace("n").config(limit);
    let new = SingleFlightLayer::values(key()).store(store).namespace("n");
    let answer = |takes: Duration| {
        service_fn(move |city: &'static str| async move {
            tokio::time::sleep(takes).await;
            Ok::<_, Infallible>(city.len() as u64)
        })
    };
    let olds = old.layer(answer(ms(60_000)));
    let news = new.layer(answer(ms(500)).map_response(|length| length.to_string()));

    let first = tokio::spawn(olds.clone().oneshot("Rome"));
    let second = tokio::spawn(olds.oneshot("Rome"));
    tokio::time::sleep(ms(100)).await;
    let other = tokio::spawn(news.oneshot("Rome"));
    tokio::time::sleep(ms(100)).await;
    // The first run passes its limit, and the other release is quicker to take over.
    line.slow(ms(100));
    assert_eq!(other.await.unwrap().unwrap(), "4");
    match first.await.unwrap().unwrap_err() {
        FlightError::Failure(failure) => assert_eq!(failure.kind(), FailureKind::Unreadable),
        FlightError::Inner(never) => match never {},
    }
    // The second caller's request is still there, and is run for it alone.
    assert_eq!(second.await.unwrap().unwrap(), 4);
    let stats = old.stats();
    assert_eq!((stats.failed, stats.bypass, stats.bad_records), (1, 1, 2));
}

/// HTTP, but no answer of another caller's run can be read.
#[derive(Clone)]
struct OwnOnly(HttpCodec);

type Req = Request<Body>;
type Res = Response<Reply>;
type Over<T = HttpCodec> = <T as Codec<Req, Res, Infallible>>::Extra;

fn http(
    codec: &OwnOnly,
) -> &impl Codec<Req, Res, Infallible, Response = Answer, Error = Infallible, Body = Reply, Extra = Over>
{
    &codec.0
}

type Answer = Response<ResponseBody<Reply>>;

impl Codec<Req, Res, Infallible> for OwnOnly {
    type Response = Answer;
    type Error = Infallible;
    type Body = Reply;
    type Extra = Over;

    fn has_body(&self, request: &Req) -> bool {
        http(self).has_body(request)
    }

    fn begin(&self, request: &mut Req, token: Option<FlightToken>) {
        http(self).begin(request, token);
    }

    fn is_head_only(&self, request: &Req) -> bool {
        http(self).is_head_only(request)
    }

    fn repeat(&self, request: &Req) -> Option<Req> {
        http(self).repeat(request)
    }

    fn judge(&self, response: &Res, asked: &Asked<'_>) -> Judgement {
        http(self).judge(response, asked)
    }

    fn open(&self, response: Res) -> Result<Opened<Over, Reply>, Res> {
        http(self).open(response)
    }

    fn replay(
        &self,
        head: &Head,
        own: Option<Over>,
        body: Replay,
        role: FlightRole,
    ) -> Option<Answer> {
        own.and_then(|own| http(self).replay(head, Some(own), body, role))
    }

    fn resume(&self, head: &Head, own: Over, body: Resumed<Reply>, role: FlightRole) -> Answer {
        http(self).resume(head, own, body, role)
    }

    fn pass(&self, response: Res, role: FlightRole) -> Answer {
        http(self).pass(response, role)
    }

    fn error(&self, never: Infallible) -> Infallible {
        never
    }

    fn failure(&self, failure: Failure) -> Result<Answer, Infallible> {
        http(self).failure(failure)
    }

    fn describe(&self, never: &Infallible) -> String {
        match *never {}
    }
}

/// What nobody has run is run, also where the answer that cannot be read still comes.
#[tokio::test(start_paused = true)]
async fn who_cannot_read_a_live_answer_runs_its_own_request() {
    let taps = Taps::default();
    let layer = SingleFlightLayer::with_codec(HttpKey::new(), OwnOnly(HttpCodec::default()));
    let service = layer.layer(taps.inner());
    let call = || {
        let request = Request::get("http://a.test/a").body(Body::default()).unwrap();
        tokio::spawn(service.clone().oneshot(request))
    };
    let owner = call().await.unwrap().unwrap();
    let other = call().await.unwrap().unwrap();
    assert_eq!((owner.status().as_u16(), other.status().as_u16()), (200, 200));
    assert_eq!(taps.runs(), 2);
    let stats = layer.stats();
    assert_eq!((stats.owner, stats.bypass, stats.bad_records, stats.failed), (1, 1, 1, 0));
}
