//! Stores of two processes on one cluster.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tower_singleflight::{
    FlightId, FlightRef, KeyDigest, RedisStore, Store, WaiterId,
    store::{
        Beat, BeatReply, EndStatus, Finish, Finished, Heartbeat, Join, Joined, Pushed, Session,
        StoreError,
    },
};

use crate::support::cluster::Cluster;

pub(crate) const LEASE: Duration = Duration::from_secs(3);

pub(crate) fn random_key() -> KeyDigest {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&FlightId::random().as_u128().to_be_bytes());
    bytes[16..].copy_from_slice(&FlightId::random().as_u128().to_be_bytes());
    KeyDigest::from_bytes(bytes)
}

/// The slot that a key's names have, by the servers' word.
pub(crate) fn slot(cluster: &Cluster, key: KeyDigest) -> u16 {
    cluster.slot(&format!("ai:flight:meta:{{{key}}}"))
}

/// A key whose names this node has.
pub(crate) fn key_on(cluster: &Cluster, node: usize) -> KeyDigest {
    loop {
        let key = random_key();
        if cluster.owner(slot(cluster, key)) == Some(node) {
            return key;
        }
    }
}

/// A key whose slot is like that.
pub(crate) fn key_where(holds: impl Fn(u16) -> bool) -> KeyDigest {
    loop {
        let key = random_key();
        if holds(crc16(key.to_string().as_bytes()) % 16_384) {
            return key;
        }
    }
}

/// CRC-16/XMODEM, bit by bit.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

pub(crate) fn ask() -> Join {
    Join {
        flight: FlightId::random(),
        waiter: WaiterId::random(),
        known: 0,
        lease: LEASE,
        reuse: Duration::ZERO,
        retention: Duration::from_secs(10),
        look_only: false,
    }
}

pub(crate) fn ask_after(flight: FlightRef) -> Join {
    Join { known: flight.token, ..ask() }
}

pub(crate) fn end(flight: FlightRef, record: &Bytes) -> Finish {
    Finish {
        flight,
        status: EndStatus::Done,
        record: Some(record.clone()),
        seal: None,
        fresh: Duration::ZERO,
        keep: Duration::from_secs(10),
        report: String::new(),
    }
}

/// One process's part in one flight.
pub(crate) struct Node {
    pub(crate) key: KeyDigest,
    pub(crate) session: Box<dyn Session>,
    keeper: Box<dyn Heartbeat>,
}

impl Node {
    pub(crate) fn new(store: &RedisStore, key: KeyDigest) -> Self {
        Self { key, session: store.session(key), keeper: store.heartbeat() }
    }

    pub(crate) async fn own(&mut self) -> FlightRef {
        let ask = ask();
        match self.session.join(ask.clone()).await.expect("join") {
            Joined::Own { token } => FlightRef { token, id: ask.flight },
            other => panic!("not Own: {other:?}"),
        }
    }

    pub(crate) async fn follow(&mut self, owner: FlightRef) -> Join {
        let ask = ask();
        match self.session.join(ask.clone()).await.expect("join") {
            Joined::Follow { flight, .. } if flight == owner => ask,
            other => panic!("not Follow: {other:?}"),
        }
    }

    pub(crate) async fn renew(&mut self, flight: FlightRef) -> Result<BeatReply, StoreError> {
        let beats = [Beat::Renew { key: self.key, flight, lease: LEASE }];
        self.keeper.beat(&beats).await.remove(0)
    }

    pub(crate) async fn finish(&mut self, flight: FlightRef, record: &Bytes) {
        let finished = self.session.finish(end(flight, record)).await.expect("finish");
        assert_eq!(finished, Finished::Accepted);
    }

    /// The next push that is no word to look; how long it took.
    pub(crate) async fn pushed(&mut self) -> (Pushed, Duration) {
        let began = Instant::now();
        let pushed = tokio::time::timeout(Duration::from_secs(5), async {
            loop {
                match self.session.pushed().await {
                    Pushed::Gap => {}
                    pushed => return pushed,
                }
            }
        });
        (pushed.await.expect("a push"), began.elapsed())
    }

    /// The record that it finds by looking, with what it knows.
    pub(crate) async fn finds(&mut self, flight: FlightRef) -> Bytes {
        match self.session.join(ask_after(flight)).await.expect("a look") {
            Joined::Done { record: Some(record), .. } => record,
            Joined::Done { record: None, .. } => {
                self.session.fetch().await.expect("fetch").expect("a record")
            }
            other => panic!("not Done: {other:?}"),
        }
    }
}

/// One whole flight of two processes, the follower told by push; how late it was.
pub(crate) async fn one_flight(
    stores: &[RedisStore; 2],
    key: KeyDigest,
    record: &Bytes,
) -> Duration {
    let [mut owner, mut follower] = [Node::new(&stores[0], key), Node::new(&stores[1], key)];
    let flight = owner.own().await;
    follower.follow(flight).await;
    let finishing = owner.finish(flight, record);
    let ((), (pushed, took)) = tokio::join!(finishing, follower.pushed());
    assert!(matches!(pushed, Pushed::Ended { flight: of, .. } if of == flight), "{pushed:?}");
    assert_eq!(follower.finds(flight).await, record);
    took
}

pub(crate) async fn two_stores(cluster: &Cluster) -> [RedisStore; 2] {
    let url = cluster.url("");
    let stores = [
        RedisStore::connect(&url).await.expect("the cluster of this test"),
        RedisStore::connect(&url).await.expect("the cluster of this test"),
    ];
    // Every connection is there from here on.
    let small = Bytes::from_static(b"warm");
    for master in 0..3 {
        one_flight(&stores, key_on(cluster, master), &small).await;
    }
    stores
}
