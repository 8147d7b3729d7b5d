//! Stored answers that were damaged, moved or written by another release: a caller gets
//! its own.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bb8_redis::redis::{self, aio::MultiplexedConnection};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{
    Config, HttpKey, KeyDigest, RedisStore, SingleFlight, SingleFlightLayer, StoreDown,
};

use crate::support::{eventually, redis_server::RedisServer};

/// A layer that reuses answers, over an inner service that says for whom they are.
struct Rig {
    layer: SingleFlightLayer<HttpKey>,
    calls: Arc<AtomicUsize>,
    redis: MultiplexedConnection,
}

/// More than goes into one record.
const LARGE: usize = 1024 * 1024;

impl Rig {
    async fn new(server: &RedisServer) -> Self {
        Self::with(server, |layer| layer).await
    }

    async fn with(
        server: &RedisServer,
        set: impl Fn(SingleFlightLayer<HttpKey>) -> SingleFlightLayer<HttpKey>,
    ) -> Self {
        let store = RedisStore::builder(server.url())
            .operation_limit(Duration::from_secs(5))
            .connect()
            .await
            .unwrap();
        let config = Config::builder()
            .reuse(Duration::from_secs(30))
            .local_results(0)
            .store_down(StoreDown::Reject)
            .build()
            .unwrap();
        let layer =
            SingleFlightLayer::new(HttpKey::new()).store(store).namespace("n").config(config);
        let layer = set(layer);
        let client = redis::Client::open(server.url()).unwrap();
        let redis = client.get_multiplexed_async_connection().await.unwrap();
        Self { layer, calls: Arc::default(), redis }
    }

    /// Asks once; the key of what was asked for, and the number of the run.
    async fn ask(&self, path: &str) -> (KeyDigest, usize) {
        let calls = Arc::clone(&self.calls);
        let layer = self.layer.clone();
        let service: SingleFlight<_, _> =
            self.layer.layer(service_fn(move |request: Request<Full<Bytes>>| {
                let nth = calls.fetch_add(1, SeqCst);
                let mut text = format!("{} {nth} ", request.uri().path());
                if text.starts_with("/large") {
                    text = text.repeat(LARGE / text.len());
                }
                async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(text))) }
            }));
        let request = Request::get(format!("http://a.test{path}")).body(Full::default()).unwrap();
        let answer = service.oneshot(request);
        let mut key = None;
        tokio::pin!(answer);
        let response = std::future::poll_fn(|cx| {
            let polled = answer.as_mut().poll(cx);
            key = key.or(layer.flights().first().map(|flight| flight.key));
            polled
        })
        .await
        .unwrap();
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&body).unwrap();
        let mut words = text.split(' ');
        assert_eq!(words.next(), Some(path), "another key's answer");
        let nth = words.next().unwrap().parse().unwrap();
        assert!(
            text == format!("{path} {nth} ").repeat(text.len() / (path.len() + 2 + words_len(nth)))
        );
        eventually("the flight has ended", async || layer.flights().is_empty()).await;
        (key.unwrap(), nth)
    }

    async fn run(&self, name: &str, args: &[&[u8]]) {
        let mut command = redis::cmd(name);
        args.iter().for_each(|arg| {
            command.arg(*arg);
        });
        let _: redis::Value = command.query_async(&mut self.redis.clone()).await.unwrap();
    }
}

fn words_len(nth: usize) -> usize {
    nth.to_string().len()
}

fn name(what: &str, key: KeyDigest) -> Vec<u8> {
    format!("ai:flight:{what}:{{{key}}}").into_bytes()
}

#[tokio::test]
async fn k8_another_keys_answer_is_a_miss() {
    let server = RedisServer::start();
    let rig = Rig::new(&server).await;
    for paths in [["/a", "/b"], ["/large1", "/large2"]] {
        let [(from, first), (to, second)] = [rig.ask(paths[0]).await, rig.ask(paths[1]).await];
        assert_eq!(rig.ask(paths[0]).await, (from, first), "it is reused");
        assert_eq!(rig.ask(paths[1]).await, (to, second), "it is reused");
        for what in ["meta", "result", "stream"] {
            rig.run("DEL", &[&name(what, to)]).await;
            rig.run("COPY", &[&name(what, from), &name(what, to)]).await;
        }
        let bad = rig.layer.stats().bad_records;
        let again = rig.ask(paths[1]).await;
        assert!(again.1 > second, "{paths:?}");
        assert!(rig.layer.stats().bad_records > bad, "{paths:?}");
        // And all is well again.
        assert_eq!(rig.ask(paths[1]).await, again);
        assert_eq!(rig.ask(paths[0]).await, (from, first));
    }
    assert_eq!(rig.layer.store_errors(), []);
}

#[tokio::test]
async fn k8_records_of_any_version_length_and_content_are_a_miss() {
    let server = RedisServer::start();
    let rig = Rig::new(&server).await;
    let (key, mut last) = rig.ask("/a").await;
    let result = name("result", key);
    let damages: [(&str, &[&[u8]]); 9] = [
        ("SETRANGE", &[&result, b"3", b"\0"]),
        ("SETRANGE", &[&result, b"3", b"\x02"]),
        ("SETRANGE", &[&result, b"3", b"\xff"]),
        ("SETRANGE", &[&result, b"0", b"HTTP/1.1"]),
        ("SETRANGE", &[&result, b"40", b"\xff\xff\xff\xff\xff"]),
        ("APPEND", &[&result, b"\0"]),
        ("SET", &[&result, b"", b"KEEPTTL"]),
        ("SET", &[&result, b"tsf\x01", b"KEEPTTL"]),
        ("SET", &[&result, &[0xff; 5000], b"KEEPTTL"]),
    ];
    for (at, (command, args)) in damages.into_iter().enumerate() {
        assert_eq!(rig.ask("/a").await, (key, last), "{at}: it is reused");
        rig.run(command, args).await;
        let (_, nth) = rig.ask("/a").await;
        assert!(nth > last, "{at}");
        last = nth;
        assert_eq!(rig.layer.stats().bad_records, at as u64 + 1, "{at}");
    }
    // What is gone, or of another type, is no bad record.
    for command in ["DEL", "RPUSH"] {
        rig.run("DEL", &[&result]).await;
        if command == "RPUSH" {
            rig.run(command, &[&result, b"x"]).await;
        }
        let (_, nth) = rig.ask("/a").await;
        assert!(nth > last, "{command}");
        last = nth;
    }
    let stats = rig.layer.stats();
    assert_eq!((stats.bad_records, stats.failed), (9, 0));
    assert_eq!(rig.layer.store_errors(), []);
}

#[tokio::test]
async fn k8_pieces_of_any_content_are_a_miss() {
    let server = RedisServer::start();
    let rig = Rig::new(&server).await;
    let (key, mut last) = rig.ask("/large").await;
    let stream = name("stream", key);
    for place in ["first", "third", "twice", "one less"] {
        assert_eq!(rig.ask("/large").await, (key, last), "{place}: it is reused");
        // All entries again, but for one.
        let script = "local entries = redis.call('XRANGE', KEYS[1], '-', '+')
            redis.call('DEL', KEYS[1])
            for at, entry in ipairs(entries) do
              local fields = entry[2]
              if ARGV[1] == 'first' and at == 1 or ARGV[1] == 'third' and at == 3 then
                fields[2] = string.sub(fields[2], 1, 50) .. '!' .. string.sub(fields[2], 52)
              elseif ARGV[1] == 'twice' and at == 2 then
                fields[2] = entries[1][2][2]
              end
              if not (ARGV[1] == 'one less' and at == 2) then
                redis.call('XADD', KEYS[1], entry[1], unpack(fields))
              end
            end
            redis.call('PEXPIRE', KEYS[1], 30000)";
        rig.run("EVAL", &[script.as_bytes(), b"1", &stream, place.as_bytes()]).await;
        let bad = rig.layer.stats().bad_records;
        let request = Request::get("http://a.test/large").body(Full::<Bytes>::default()).unwrap();
        let calls = Arc::clone(&rig.calls);
        let service = rig.layer.layer(service_fn(move |_: Request<Full<Bytes>>| {
            let nth = calls.fetch_add(1, SeqCst);
            let text = format!("/large {nth} ");
            let text = text.repeat(LARGE / text.len());
            async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(text))) }
        }));
        // Whole and of one run, or an error; never short, and never of two.
        let response = service.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        if let Ok(body) = response.into_body().collect().await {
            let body = body.to_bytes();
            let text = std::str::from_utf8(&body).unwrap();
            let nth: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
            let one = format!("/large {nth} ");
            assert!(text == one.repeat(LARGE / one.len()), "{place}");
            assert!(nth > last, "{place}");
        }
        // A hole is also what a reader finds that was too slow.
        let counts = rig.layer.stats().bad_records > bad;
        assert!(counts || place == "one less", "{place}");
        eventually("it has ended", async || rig.layer.flights().is_empty()).await;
        rig.run("DEL", &[&name("meta", key), &stream]).await;
        last = rig.ask("/large").await.1;
    }
    assert_eq!(rig.layer.store_errors(), []);
}

/// Who can write to the store, and knows how records are made, but not the secret.
#[tokio::test]
async fn k8_with_a_secret_nobody_forges_an_answer() {
    let server = RedisServer::start();
    for secret in [false, true] {
        let rig = Rig::with(&server, |layer| if secret { layer.secret("hush") } else { layer });
        let rig = rig.await;
        let (key, nth) = rig.ask("/a").await;
        assert_eq!(rig.ask("/a").await, (key, nth), "it is reused");
        let result = name("result", key);
        let mut get = redis::cmd("GET");
        let record: Vec<u8> = get.arg(&result).query_async(&mut rig.redis.clone()).await.unwrap();
        // The number of the run is the last thing in the body that is a digit.
        let mut forged = record[..record.len() - 32].to_vec();
        let text = format!("/a {nth} ").into_bytes();
        let at = forged.windows(text.len()).position(|window| window == text).unwrap();
        forged[at + 3] = b'9';
        let checksum = blake3::hash(&forged);
        forged.extend_from_slice(checksum.as_bytes());
        rig.run("SET", &[&result, &forged, b"KEEPTTL"]).await;
        let bad = rig.layer.stats().bad_records;
        let answer = rig.ask("/a").await;
        assert_eq!(answer, (key, if secret { nth + 1 } else { 9 }));
        assert_eq!(rig.layer.stats().bad_records, bad + u64::from(secret));
    }
}
