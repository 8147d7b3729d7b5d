//! Steps of a store as the layer asks for them, with its default settings.

use std::time::Duration;

use bytes::Bytes;
use tower_singleflight::{
    FlightId, FlightRef, KeyDigest, RedisStore, Store, WaiterId,
    store::{Append, Appended, Badge, EndStatus, Finish, Finished, Join, Joined, Seal, Session},
};

pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// How long a watch marks a wait.
pub(crate) const MARK: Duration = Duration::from_millis(2500);
const KEEP: Duration = Duration::from_secs(30);
const REUSE: Duration = Duration::from_secs(20);

pub(crate) fn random_key() -> KeyDigest {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&FlightId::random().as_u128().to_be_bytes());
    bytes[16..].copy_from_slice(&FlightId::random().as_u128().to_be_bytes());
    KeyDigest::from_bytes(bytes)
}

/// One process's part in one flight.
pub(crate) struct Part {
    pub(crate) session: Box<dyn Session>,
    pub(crate) waiter: WaiterId,
}

impl Part {
    pub(crate) fn new(store: &RedisStore, key: KeyDigest) -> Self {
        let mut session = store.session(key);
        session.introduce(Badge::new("4711@web-3"));
        Self { session, waiter: WaiterId::random() }
    }

    pub(crate) fn ask(&self) -> Join {
        Join {
            flight: FlightId::random(),
            waiter: self.waiter,
            known: 0,
            lease: LEASE,
            reuse: Duration::ZERO,
            retention: KEEP,
            look_only: false,
        }
    }

    pub(crate) async fn join(&mut self, join: Join) -> Joined {
        self.session.join(join).await.expect("join")
    }

    pub(crate) async fn own(&mut self, join: Join) -> FlightRef {
        let id = join.flight;
        match self.join(join).await {
            Joined::Own { token } => FlightRef { token, id },
            other => panic!("not Own: {other:?}"),
        }
    }

    pub(crate) async fn follow(&mut self, join: Join) {
        let joined = self.join(join).await;
        assert!(matches!(joined, Joined::Follow { .. }), "{joined:?}");
    }

    pub(crate) async fn hit(&mut self) {
        let joined = self.join(Join { reuse: REUSE, ..self.ask() }).await;
        assert!(matches!(joined, Joined::Done { record: Some(_), .. }), "{joined:?}");
    }

    pub(crate) async fn finish(&mut self, finish: Finish) {
        assert_eq!(self.session.finish(finish).await.expect("finish"), Finished::Accepted);
    }

    pub(crate) async fn append(&mut self, flight: FlightRef, first: u64, piece: Bytes) {
        let (pieces, keep, next) = (vec![piece], KEEP, first + 1);
        let append = Append { flight, first, pieces, kept_from: 0, keep, inline: true, to_come: 0 };
        let appended = self.session.append(append).await.expect("append");
        assert_eq!(appended, Appended::Accepted { next });
    }
}

pub(crate) fn end(flight: FlightRef, record: Option<Bytes>) -> Finish {
    let (status, report) = (EndStatus::Done, String::new());
    Finish { flight, status, record, seal: None, fresh: REUSE, keep: KEEP, report }
}

pub(crate) fn sealed(flight: FlightRef, pieces: u64) -> Finish {
    let proof = Bytes::from_static(&[b'p'; 32]);
    Finish { seal: Some(Seal { pieces, proof }), ..end(flight, None) }
}

pub(crate) fn body(bytes: usize) -> Bytes {
    Bytes::from(vec![b'a'; bytes])
}
