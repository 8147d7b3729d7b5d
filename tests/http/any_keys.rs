//! Keys of any bytes and any length, over a Redis (row K7).

use futures_util::future::join_all;
use tower::Layer;
use tower_singleflight::{Config, RedisStore, SingleFlightLayer, key_fn};

use crate::{
    machine::redis_server::RedisServer,
    support::{Gate, Req, Runs, ask, callers, get, ms, text, until},
};

#[derive(Clone)]
struct UserKey(Vec<u8>);

#[tokio::test]
async fn k7_any_bytes_make_a_key_and_none_of_them_reach_redis() {
    let redis = RedisServer::start();
    let (runs, gate) = (Runs::default(), Gate::new());
    let inner = {
        let (runs, gate) = (runs.clone(), gate.clone());
        tower::service_fn(move |_: Req| {
            let (run, gate) = (runs.begin(), gate.clone());
            async move {
                gate.passed().await;
                let answer = text(format!("run {}", run.number));
                run.finish();
                Ok::<_, std::convert::Infallible>(answer)
            }
        })
    };
    let config = Config::builder().lease(ms(60_000)).retention(ms(120_000)).build().unwrap();
    let (mut nodes, mut services) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let key = key_fn(|request: &Req| Some(request.extensions().get::<UserKey>()?.0.clone()));
        let store =
            RedisStore::builder(redis.url()).operation_limit(ms(10_000)).connect().await.unwrap();
        let node = SingleFlightLayer::new(key).store(store).namespace("keys");
        let node = node.config(config.clone());
        services.push(node.layer(inner.clone()));
        nodes.push(node);
    }
    let keys = [
        b"".to_vec(),
        b"\0".to_vec(),
        vec![b'k'; 1 << 20],
        (0..=u8::MAX).collect(),
        b"a\r\nb".to_vec(),
        b"a\nb".to_vec(),
        b"*".to_vec(),
        b"?".to_vec(),
        "🦀".into(),
        // One text, composed and not.
        "caf\u{e9}".into(),
        "cafe\u{301}".into(),
    ];
    let mut asked = Vec::new();
    for key in &keys {
        for service in &services {
            let mut request = get("/");
            request.extensions_mut().insert(UserKey(key.clone()));
            asked.push(tokio::spawn(ask(service, request)));
        }
    }
    until("all callers", || nodes.iter().map(callers).sum::<usize>() == 2 * keys.len()).await;
    until("all runs", || runs.running() == keys.len()).await;
    gate.open();
    let answers: Vec<_> = join_all(asked).await.into_iter().map(|one| one.unwrap().body).collect();
    for pair in answers.chunks(2) {
        assert_eq!(pair[0], pair[1]);
        assert_eq!(answers.iter().filter(|body| *body == &pair[0]).count(), 2);
    }
    assert_eq!(runs.total(), keys.len());
    let names = redis.lines(&["KEYS", "*"]);
    assert!(names.len() > keys.len());
    for name in names {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":{}-".contains(&byte);
        assert!(name.len() < 200 && name.bytes().all(plain), "{name}");
    }
}
