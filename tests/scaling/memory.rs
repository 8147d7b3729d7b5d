//! What lies in the server, by its own word.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use tower_singleflight::{FlightId, FlightRef, KeyDigest, RedisStore, store::Join};

use crate::{
    meter::figure,
    page::{Bytes, table},
    rig::{LEASE, Part, body, end, random_key},
    support::redis_server::RedisServer,
};

const KEYS: usize = 50;
const ROUNDS: usize = 7;
const ANSWER: usize = 1000;
const PIECE: usize = 2000;
const PIECES: u64 = 8;

struct Flight {
    key: KeyDigest,
    at: FlightRef,
    parts: Vec<Part>,
}

struct Room {
    server: RedisServer,
    stores: Vec<RedisStore>,
    taken: Vec<(&'static str, usize, f64)>,
}

impl Room {
    fn flights(&self, keys: usize) -> Vec<Flight> {
        let flight = |_| {
            let key = random_key();
            let parts = self.stores.iter().map(|store| Part::new(store, key)).collect();
            Flight { key, at: FlightRef { token: 0, id: FlightId::random() }, parts }
        };
        (0..keys).map(flight).collect()
    }

    /// Takes a step in all of them; what each takes more after that.
    async fn each<'a>(
        &self,
        flights: &'a mut [Flight],
        step: impl Fn(&'a mut Flight) -> BoxFuture<'a, ()>,
    ) -> f64 {
        let used = || figure(&self.server, "memory", "used_memory");
        let (before, keys) = (used(), flights.len() as f64);
        for some in flights.chunks_mut(50) {
            join_all(some.iter_mut().map(&step)).await;
        }
        (used() - before) / keys
    }

    /// What the key of a flight takes, by the server's word.
    fn key(&self, what: &str, flight: &Flight) -> f64 {
        let name = format!("ai:flight:{what}:{{{}}}", flight.key);
        let lines = self.server.lines(&["MEMORY", "USAGE", &name, "SAMPLES", "0"]);
        lines[0].trim_start_matches(':').parse().expect("bytes")
    }

    async fn keys(&mut self) {
        let mut flights = self.flights(1);
        self.each(&mut flights, own).await;
        let record = self.key("meta", &flights[0]);
        self.each(&mut flights, |flight| follow(flight, 1)).await;
        let first = self.key("waiters", &flights[0]);
        self.each(&mut flights, |flight| follow(flight, 2)).await;
        let second = self.key("waiters", &flights[0]);
        self.each(&mut flights, |flight| append(flight, 0)).await;
        let some = self.key("stream", &flights[0]);
        self.each(&mut flights, |flight| append(flight, PIECES)).await;
        let pieces = self.key("stream", &flights[0]) - some;
        self.each(&mut flights, |flight| finish(flight, ANSWER)).await;
        let answer = self.key("result", &flights[0]);
        self.taken.extend([
            ("a record", 0, record),
            ("the first wait", 0, first),
            ("each more wait", 0, second - first),
            ("a stream", 0, some - pieces),
            ("a piece", PIECE, pieces / PIECES as f64),
            ("an answer", ANSWER, answer),
        ]);
    }

    /// The middle one of some rounds: tables grow and buffers shrink in one or the other.
    async fn listeners(&mut self) {
        let mut rounds = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            let mut flights = self.flights(KEYS);
            self.each(&mut flights, own).await;
            self.each(&mut flights, |flight| finish(flight, 1)).await;
            rounds[0].push(self.each(&mut flights, |flight| hold(flight, 1)).await);
            rounds[1].push(self.each(&mut flights, |flight| hold(flight, 2)).await);
            rounds[2].push(self.each(&mut flights, |flight| hear(flight, 1)).await);
            rounds[3].push(self.each(&mut flights, |flight| hear(flight, 2)).await);
        }
        let [holds, holds_too, hears, hears_too] = rounds.map(|mut rounds| {
            rounds.sort_by(f64::total_cmp);
            rounds[ROUNDS / 2]
        });
        self.taken.extend([
            ("the first that listens", 0, hears),
            ("each more that listens", 0, hears_too),
            ("the first that holds an answer", 0, holds),
            ("each more that holds it", 0, holds_too),
        ]);
    }
}

fn own(flight: &mut Flight) -> BoxFuture<'_, ()> {
    async {
        // Longer than it takes to fill the server.
        let (lease, retention) = (Duration::from_secs(60), Duration::from_secs(120));
        let join = Join { lease, retention, ..flight.parts[0].ask() };
        flight.at = flight.parts[0].own(join).await;
    }
    .boxed()
}

fn follow(flight: &mut Flight, n: usize) -> BoxFuture<'_, ()> {
    let join = flight.parts[n].ask();
    flight.parts[n].follow(join).boxed()
}

fn hear(flight: &mut Flight, n: usize) -> BoxFuture<'_, ()> {
    let Flight { at, parts, .. } = flight;
    async move { assert!(parts[n].session.hear(*at).await.is_ok()) }.boxed()
}

fn append(flight: &mut Flight, first: u64) -> BoxFuture<'_, ()> {
    async move {
        for n in first..first + PIECES {
            flight.parts[0].append(flight.at, n, body(PIECE)).await;
        }
    }
    .boxed()
}

fn finish(flight: &mut Flight, bytes: usize) -> BoxFuture<'_, ()> {
    flight.parts[0].finish(end(flight.at, Some(body(bytes)))).boxed()
}

fn hold(flight: &mut Flight, n: usize) -> BoxFuture<'_, ()> {
    let Flight { at, parts, .. } = flight;
    async move {
        let held = parts[n].session.hold(*at, LEASE).await.expect("hold");
        assert!(held.is_some());
    }
    .boxed()
}

/// The page is right by an eighth.
#[tokio::test]
async fn each_thing_takes_the_memory_that_the_page_says() {
    let server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(RedisStore::connect(&server.url()).await.expect("a store"));
    }
    let mut room = Room { server, stores, taken: Vec::new() };
    room.keys().await;
    room.listeners().await;
    let page = table("memory");
    let mut wrong = Vec::new();
    for (what, bytes, is) in room.taken {
        let told = page.get(what).map(|cells| Bytes::read(cells[0]).with(bytes as f64));
        println!("{what}: {is:.0}, {bytes} of them its own; by the page {told:?}");
        if told.is_none_or(|told| (is - told).abs() > told / 8.0 + 8.0) {
            wrong.push(format!("{what}: {is:.0}, {told:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
