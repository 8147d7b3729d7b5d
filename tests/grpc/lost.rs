//! An owner that is lost while its stream is handed out (rows O2, D3): who has begun goes
//! on where the next run says the same, and is told of an error where it does not.

use tonic::{Code, Status, transport::Channel};
use tower_singleflight::{Config, RedisStore};

use crate::{
    proxy::{Link, Proxy},
    redis::redis_server::RedisServer,
    rig::{ask, node, serve},
    support::ms,
    tap::{Open, Taps, open},
};

struct Fleet {
    taps: Taps,
    /// The way of the first process to the server.
    proxy: Proxy,
    channels: [Channel; 2],
    _server: RedisServer,
}

impl Fleet {
    async fn start() -> Self {
        let (server, taps) = (RedisServer::start(), Taps::default());
        let proxy = Proxy::start(server.port()).await;
        let config = Config::builder().lease(ms(600)).build().unwrap();
        let mut channels = Vec::new();
        for url in [proxy.url(), server.url()] {
            let store = RedisStore::connect(&url).await.unwrap();
            let node = node(store).config(config.clone());
            channels.push(serve(&node, &taps.answers()).await);
        }
        Self { taps, proxy, channels: channels.try_into().unwrap(), _server: server }
    }

    async fn open(&self, server: usize) -> Open {
        open(&self.channels[server], ask("q", &[])).await.unwrap()
    }
}

fn assert_broken(status: &Status) {
    assert!(matches!(status.code(), Code::Internal | Code::Unavailable), "{status:?}");
}

/// The owner's line to the store is cut, and it runs on for those it has.
#[tokio::test]
async fn o2_followers_go_on_where_the_next_run_says_the_same() {
    for link in [Link::Cut, Link::Silent] {
        let fleet = Fleet::start().await;
        let taps = &fleet.taps;
        let (mut owner, mut remote) = (fleet.open(0).await, fleet.open(1).await);
        taps.send(0, "one");
        taps.send(0, "two");
        for reader in [&mut owner, &mut remote] {
            assert_eq!(reader.next().await.unwrap().unwrap(), "one");
            assert_eq!(reader.next().await.unwrap().unwrap(), "two");
        }
        fleet.proxy.set(link);
        taps.until_runs(2).await;
        taps.send(0, "of the first run");
        taps.end(0);
        for text in ["one", "two", "of the second run"] {
            taps.send(1, text);
        }
        assert_eq!(remote.next().await.unwrap().unwrap(), "of the second run");
        taps.end(1);
        assert!(remote.rest().await.is_ok());
        assert_eq!(owner.rest().await.unwrap().0, ["of the first run"]);
        assert_eq!(taps.runs(), 2);
    }
}

#[tokio::test]
async fn o2_followers_are_told_where_the_next_run_says_something_else() {
    fn shorter(taps: &Taps) {
        taps.send(1, "on");
        taps.end(1);
    }
    let others: [fn(&Taps); 4] = [
        |taps| taps.send(1, "oNe"),
        shorter,
        |taps| taps.end(1),
        |taps| taps.fail(1, Status::not_found("nothing")),
    ];
    for other in others {
        let fleet = Fleet::start().await;
        let (owner, mut remote) = (fleet.open(0).await, fleet.open(1).await);
        fleet.taps.send(0, "one");
        assert_eq!(remote.next().await.unwrap().unwrap(), "one");
        fleet.proxy.set(Link::Cut);
        drop(owner);
        fleet.taps.until_runs(2).await;
        other(&fleet.taps);
        assert_broken(&remote.failure().await);
    }
}

/// Its head was handed out, and said nothing of an error.
#[tokio::test]
async fn o2_a_next_run_that_fails_at_once_is_no_empty_answer() {
    let fleet = Fleet::start().await;
    let (owner, remote) = (fleet.open(0).await, fleet.open(1).await);
    fleet.taps.refuse(Status::not_found("nothing"));
    fleet.proxy.set(Link::Cut);
    drop(owner);
    fleet.taps.until_runs(2).await;
    assert_broken(&remote.failure().await);
}

/// Who has no message yet sees no takeover.
#[tokio::test]
async fn who_has_begun_with_nothing_gets_the_next_run() {
    let fleet = Fleet::start().await;
    let (owner, remote) = (fleet.open(0).await, fleet.open(1).await);
    fleet.proxy.set(Link::Cut);
    drop(owner);
    fleet.taps.until_runs(2).await;
    fleet.taps.send(1, "other");
    fleet.taps.fail(1, Status::data_loss("the end is gone"));
    let mut remote = remote;
    assert_eq!(remote.next().await.unwrap().unwrap(), "other");
    assert_eq!(remote.failure().await.code(), Code::DataLoss);
}
