//! How much of a process's answers the server holds.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, header::CONTENT_LENGTH};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use tokio::{sync::watch, task::JoinHandle};
use tokio_stream::StreamExt;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_singleflight::{
    FlightPhase, HttpKey, RedisStore, ResponseBody, SingleFlightLayer, Store,
    store::{EndStatus, Finish, Finished, StoreErrorKind, StoreState},
};

use super::{
    append, appended, finished, follow, fresh, key, own, sealed,
    support::{eventually, redis_server::RedisServer},
};

/// All bytes of records and pieces that are there.
fn stored(server: &RedisServer) -> u64 {
    let script = "local sum = 0
        for _, key in ipairs(redis.call('KEYS', 'ai:flight:*')) do
          local kind = redis.call('TYPE', key).ok
          if kind == 'string' and not string.find(key, 'owner%-seq') then
            sum = sum + redis.call('STRLEN', key)
          elseif kind == 'stream' then
            for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
              if entry[2][1] == 'p' then sum = sum + #entry[2][2] end
            end
          end
        end
        return sum";
    server.command(&["EVAL", script, "0"]).trim()[1..].parse().unwrap()
}

#[tokio::test]
async fn j5_what_expires_makes_room() {
    let server = RedisServer::start();
    let store =
        RedisStore::builder(server.url()).max_stored_bytes(100_000).connect().await.unwrap();
    let keep = Duration::from_millis(1500);
    let record = Bytes::from(vec![b'x'; 30_000]);
    let done = |flight| Finish {
        status: EndStatus::Done,
        seal: None,
        record: Some(record.clone()),
        keep,
        ..sealed(flight, 0)
    };
    for n in 0..3 {
        let mut session = store.session(key(n));
        let flight = own(&mut *session, &fresh()).await;
        finished(&mut *session, done(flight)).await;
    }
    assert_eq!((store.stored_bytes(), stored(&server)), (90_000, 90_000));
    // Neither a record nor a piece; what is small enough, still.
    let mut session = store.session(key(3));
    let flight = own(&mut *session, &fresh()).await;
    let refused = session.finish(done(flight)).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Limit);
    let large = [b'x'; 11_000];
    let refused = session.append(append(flight, 0, &[&large])).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Limit);
    appended(&mut *session, append(flight, 0, &[b"small"])).await;
    assert_eq!((store.stored_bytes(), stored(&server)), (90_005, 90_005));
    assert_eq!(store.errors(), [(StoreErrorKind::Limit, 2)]);
    assert_eq!(store.state(), StoreState::Ok, "it is there, and has no room");
    // The flight ends all the same, and its next record finds room.
    let end = Finish { status: EndStatus::TooLarge, record: None, ..done(flight) };
    assert_eq!(session.finish(end).await.unwrap(), Finished::Accepted);
    eventually("the records expire", async || store.stored_bytes() < 10_000).await;
    // At no time is there more than is counted, not for a millisecond either.
    assert_eq!(stored(&server), 5);
    let flight = own(&mut *session, &fresh()).await;
    follow(&mut *store.session(key(3)), &fresh()).await;
    finished(&mut *session, done(flight)).await;
    assert_eq!(session.fetch().await.unwrap(), Some(record));
    let refused = RedisStore::builder(server.url()).max_stored_bytes(0).connect_lazy();
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Setting);
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

const FRAME: usize = 8 * 1024;
const LONG: usize = 16;

/// Buffered below `/b`, of 24 KiB; else a stream of 64 KiB, or below `/l` of 128.
fn answer(path: &str, gate: watch::Receiver<bool>) -> Response<Body> {
    let frame = Bytes::from(vec![path.len() as u8; FRAME]);
    if path.starts_with("/b") {
        return Response::new(Full::from(frame.repeat(3)).boxed_unsync());
    }
    let count = if path.starts_with("/l") { LONG } else { 8 };
    let frames = tokio_stream::iter((0..count).map(move |_| frame.clone())).then(move |frame| {
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(Frame::data(frame))
        }
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// How many bytes of a whole body come, or that it broke off.
fn ask<I>(service: &I, path: &str) -> JoinHandle<Result<usize, String>>
where
    I: Service<Request<Full<Bytes>>, Response = Response<ResponseBody<Body>>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    I::Future: Send,
{
    let request = Request::get(format!("http://a.test{path}")).body(Full::default()).unwrap();
    let service = service.clone();
    tokio::spawn(async move {
        let response = service.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await;
        body.map(|body| body.to_bytes().len()).map_err(|error| error.to_string())
    })
}

#[tokio::test]
async fn j5_no_load_gets_over_the_bound() {
    const MOST: u64 = 300_000;
    let server = RedisServer::start();
    let limit = Duration::from_secs(5);
    let store = |most| {
        let builder = RedisStore::builder(server.url()).operation_limit(limit);
        builder.max_stored_bytes(most).connect_lazy().unwrap()
    };
    let bounded = store(MOST);
    let layer = |store| SingleFlightLayer::new(HttpKey::new()).store(store).namespace("n");
    let [one, two] = [layer(bounded.clone()), layer(store(1 << 30))];
    let (open, gate) = watch::channel(false);
    let inner = service_fn(move |request: Request<Full<Bytes>>| {
        let mut gate = gate.clone();
        async move {
            let path = request.uri().path().to_owned();
            if path.starts_with("/b") {
                gate.wait_for(|open| *open).await.unwrap();
            }
            Ok::<_, Infallible>(answer(&path, gate))
        }
    });
    let [owners, followers] = [one.layer(inner.clone()), two.layer(inner)];
    let paths: Vec<String> = (0..40).map(|n| format!("/{}{n}", ["b", "s"][n % 2])).collect();
    let owned: Vec<_> =
        paths.iter().flat_map(|path| [ask(&owners, path), ask(&owners, path)]).collect();
    eventually("all are owned", async || {
        let flights = one.flights();
        flights.len() == 40
            && flights
                .iter()
                .all(|flight| flight.phase == FlightPhase::Owning && flight.callers == 2)
    })
    .await;
    let followed: Vec<_> = paths.iter().map(|path| ask(&followers, path)).collect();
    eventually("all are followed", async || {
        let flights = two.flights();
        flights.len() == 40 && flights.iter().all(|flight| flight.phase == FlightPhase::Following)
    })
    .await;
    open.send_replace(true);
    let watched = async {
        loop {
            let there = stored(&server);
            assert!(there <= MOST, "{there}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let answers = async { (join_all(owned).await, join_all(followed).await) };
    let (owned, followed) = tokio::select! {
        answers = answers => answers,
        () = watched => unreachable!(),
    };
    // Who asked the process that runs it gets all of it, whoever else is there.
    let length = |at: usize| FRAME * [3, 8][at % 2];
    for (at, answer) in owned.into_iter().enumerate() {
        assert_eq!(answer.unwrap().expect("a whole body"), length(at / 2));
    }
    let mut broken = 0;
    for (at, answer) in followed.into_iter().enumerate() {
        match answer.unwrap() {
            Ok(came) => assert_eq!(came, length(at)),
            // It had begun with a stream.
            Err(_) => broken += 1,
        }
    }
    eventually("all has ended", async || one.flights().is_empty() && two.flights().is_empty())
        .await;
    // What the other process has stored of its own is not counted by this one.
    assert!(bounded.stored_bytes() <= MOST);
    assert!(bounded.stored_bytes() > MOST / 2, "{}", bounded.stored_bytes());
    let (stats, other) = (one.stats(), two.stats());
    assert_eq!((stats.failed, stats.leases_lost, other.failed), (0, 0, 0));
    assert!(other.bypass > 0, "some ran alone: {other:?}, {broken} broke off");
    assert_eq!(stats.owner, 40);
    assert!(one.store_errors().iter().all(|(kind, _)| *kind == StoreErrorKind::Limit));
    assert_eq!(one.store_state(), StoreState::Ok);
}

/// Together they have no room; each that is begun has, to its end.
#[tokio::test]
async fn j5_bodies_of_known_length_are_not_cut_for_lack_of_room() {
    const BODIES: usize = 12;
    let server = RedisServer::start();
    let store = || {
        let builder = RedisStore::builder(server.url()).operation_limit(Duration::from_secs(5));
        builder.max_stored_bytes(4 * (LONG + 1) as u64 * FRAME as u64).connect_lazy().unwrap()
    };
    let layer = || SingleFlightLayer::new(HttpKey::new()).store(store()).namespace("n");
    let [one, two] = [layer(), layer()];
    let (open, gate) = watch::channel(false);
    let inner = service_fn(move |request: Request<Full<Bytes>>| {
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await.unwrap();
            let mut response = answer(request.uri().path(), gate);
            response.headers_mut().insert(CONTENT_LENGTH, (LONG * FRAME).into());
            Ok::<_, Infallible>(response)
        }
    });
    let [owners, followers] = [one.layer(inner.clone()), two.layer(inner)];
    let mut asked = Vec::new();
    for (layer, service) in [(&one, &owners), (&two, &followers)] {
        asked.extend((0..BODIES).map(|n| ask(service, &format!("/l{n}"))));
        eventually("all own, or follow", async || {
            let flights = layer.flights();
            flights.len() == BODIES && flights.iter().all(|flight| flight.token.is_some())
        })
        .await;
    }
    open.send_replace(true);
    for answer in join_all(asked).await {
        assert_eq!(answer.unwrap(), Ok(LONG * FRAME));
    }
    let stats = two.stats();
    assert!(stats.follower_remote >= 3, "{stats:?}");
    assert!(stats.bypass > 0, "{stats:?}");
}
