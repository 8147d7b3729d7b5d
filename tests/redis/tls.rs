//! The Redis store over TLS.

use std::time::{Duration, Instant};

use crate::steps::fresh;
use crate::support::{certificates::Certificates, eventually, redis_server::RedisServer};
use tower_singleflight::{
    FlightRef, KeyDigest, RedisStore, Store,
    store::{EndStatus, Finish, Joined, Pushed, RedisStoreBuilder, StoreErrorKind},
};

fn start(certificates: &Certificates, ask_clients: &str) -> RedisServer {
    let args = certificates.server_args(ask_clients);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    RedisServer::start_with(&args)
}

async fn kind(builder: RedisStoreBuilder) -> StoreErrorKind {
    let began = Instant::now();
    let error = builder.connect().await.expect_err("it is refused");
    assert!(began.elapsed() < Duration::from_secs(4), "{error}");
    error.kind()
}

#[tokio::test]
async fn only_the_right_certificates_will_do() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let server = start(&certificates, "yes");
    let url = server.tls_url();
    let root = || certificates.pem("root.pem");
    let client = || (certificates.pem("client.pem"), certificates.pem("client.key"));
    let known = |builder: RedisStoreBuilder| {
        let (certificate, key) = client();
        builder.client_certificate(certificate, key)
    };
    known(RedisStore::builder(&url).root_certificate(root())).connect().await.unwrap();

    // A server that nobody vouched for, or somebody else; a name that is not its own.
    let unknown = known(RedisStore::builder(&url));
    let error = unknown.clone().connect().await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    assert_eq!(error.kind(), StoreErrorKind::Connect);
    let other = unknown.root_certificate(others.pem("root.pem"));
    assert_eq!(kind(other).await, StoreErrorKind::Connect);
    let renamed = url.replace("127.0.0.1", "127.0.0.2");
    let renamed = known(RedisStore::builder(renamed)).root_certificate(root());
    assert_eq!(kind(renamed).await, StoreErrorKind::Connect);
    // A client without a certificate, or with somebody else's.
    let bare = RedisStore::builder(&url).root_certificate(root());
    kind(bare.clone()).await;
    kind(bare.client_certificate(others.pem("client.pem"), others.pem("client.key"))).await;
    // No TLS where there is some, and some where there is none.
    let plain = server.tls_url().replace("rediss", "redis");
    kind(RedisStore::builder(plain)).await;
    let without = RedisServer::start();
    kind(RedisStore::builder(without.tls_url()).root_certificate(root())).await;

    for refused in [
        RedisStore::builder(&url).root_certificate("text"),
        RedisStore::builder(&url).client_certificate("text", "text"),
        RedisStore::builder(without.url()).root_certificate(root()),
    ] {
        let refused = refused.connect_lazy().unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Setting, "{refused}");
    }
}

/// All connections: for scripts, large records, pushes and heartbeats.
#[tokio::test]
async fn every_connection_is_encrypted() {
    let certificates = Certificates::new();
    let server = start(&certificates, "no");
    let builder =
        RedisStore::builder(server.tls_url()).root_certificate(certificates.pem("root.pem"));
    let store = builder.connect().await.unwrap();
    let key = KeyDigest::from_bytes([1; 32]);
    let (mut owner, mut follower) = (store.session(key), store.session(key));
    let own = fresh();
    let Ok(Joined::Own { token }) = owner.join(own.clone()).await else { panic!("not owned") };
    let flight = FlightRef { token, id: own.flight };
    assert!(matches!(follower.join(fresh()).await, Ok(Joined::Follow { .. })));
    let record: Vec<u8> = (0..3_000_000).map(|n| (n % 251) as u8).collect();
    let finish = Finish {
        flight,
        status: EndStatus::Done,
        record: Some(record.clone().into()),
        seal: None,
        fresh: Duration::ZERO,
        keep: Duration::from_secs(30),
        report: String::new(),
    };
    owner.finish(finish).await.unwrap();
    loop {
        let pushed = tokio::time::timeout(Duration::from_secs(5), follower.pushed()).await;
        match pushed.expect("a push") {
            Pushed::Ended { flight: of, .. } => break assert_eq!(of, flight),
            Pushed::Gap => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(follower.fetch().await.unwrap().unwrap(), record);
    let _keeper = store.heartbeat();
    assert_eq!(store.errors(), []);
}

/// A connection that was cut off is made anew, over TLS as the first.
#[tokio::test]
async fn a_restart_is_survived() {
    let certificates = Certificates::new();
    let mut server = start(&certificates, "no");
    let builder =
        RedisStore::builder(server.tls_url()).root_certificate(certificates.pem("root.pem"));
    let store = builder.connect().await.unwrap();
    server.restart();
    let key = KeyDigest::from_bytes([1; 32]);
    eventually("it is back", async || store.session(key).fetch().await.is_ok()).await;
}
