//! What two layers of one process share on a store that others can come to, unnamed.

use tower::{Layer as _, service_fn};
use tower_singleflight::{Config, MemoryStore, RedisStore};
use tracing::subscriber::set_default;

use crate::{
    log::Log,
    support::{Layer, Report, layer},
};

/// Makes the layer what it is from then on.
fn used(layer: Layer<Report>) -> Layer<Report> {
    drop(layer.layer(service_fn(async |()| Ok::<_, ()>(()))));
    layer
}

#[tokio::test]
async fn two_layers_without_a_namespace_on_one_store_are_warned_of_once() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    let _guard = set_default(subscriber);
    let count = || log.text().matches("have the default namespace").count();
    let store = RedisStore::builder("redis://127.0.0.1:1/").connect_lazy().unwrap();
    let unnamed = || layer().store(store.clone());

    let memory = MemoryStore::new();
    let _named = [
        used(unnamed().namespace("users")),
        used(unnamed().namespace("orders")),
        used(layer()),
        used(layer()),
        used(layer().store(memory.clone())),
        used(layer().store(memory)),
    ];
    let shadow = Config::builder().shadow(true).build().unwrap();
    drop(used(unnamed().config(shadow)));
    for _ in 0..2 {
        let one = used(unnamed());
        drop(used(one.clone()));
    }
    assert_eq!(count(), 0, "{}", log.text());

    let users = used(unnamed());
    let _orders = used(unnamed());
    assert_eq!(count(), 1, "{}", log.text());
    let _more = used(unnamed());
    drop(users);
    let _more = used(unnamed());
    assert_eq!(count(), 1);
    let text = log.text();
    let line = text.lines().find(|line| line.contains("namespace")).unwrap();
    assert!(line.contains(" WARN ") && line.contains("SingleFlightLayer::namespace"), "{line}");
    assert!(!line.contains("127.0.0.1") && !line.contains("hunter2"), "{line}");
}
