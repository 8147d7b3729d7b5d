//! The table of steps: each is taken many times, and costs what the page says.

use std::collections::BTreeMap;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use tower_singleflight::{
    FlightId, FlightRef, KeyDigest, RedisStore, Store,
    store::{Beat, EndStatus, Heartbeat, Join},
};

use crate::{
    meter::{Counts, measured},
    model::Steps,
    rig::{LEASE, MARK, Part, body, end, random_key, sealed},
    support::redis_server::RedisServer,
};

const AT_ONCE: usize = 50;

/// Bytes of what moves an answer or a piece, and how many hear of it.
const MOVED: [(&str, usize, u32); 12] = [
    ("end", 1000, 0),
    ("end, followed", 1000, 1),
    ("end, over 4 KiB", 10_000, 1),
    ("end, over 20 KiB", 100_000, 1),
    ("fetch", 100_000, 0),
    ("hit", 1000, 0),
    ("first", 0, 1),
    ("append", 2000, 1),
    ("append, over 20 KiB", 100_000, 1),
    ("read", 100_000, 0),
    ("seal", 0, 1),
    ("own, again", 0, 1),
];

fn moved(row: &str) -> (usize, u32) {
    let found = MOVED.iter().find(|(name, ..)| *name == row);
    found.map_or((0, 0), |(_, bytes, hearers)| (*bytes, *hearers))
}

/// One flight of each round.
struct Flight {
    key: KeyDigest,
    at: FlightRef,
    parts: Vec<Part>,
}

struct Bench {
    server: RedisServer,
    stores: Vec<RedisStore>,
    lines: Vec<Box<dyn Heartbeat>>,
    rounds: usize,
    rows: BTreeMap<&'static str, Counts>,
    /// Who listens to the end, so that nothing is sent of it in between.
    listeners: Vec<Part>,
}

impl Bench {
    async fn start() -> Self {
        let server = RedisServer::start();
        let mut stores = Vec::new();
        for _ in 0..3 {
            stores.push(RedisStore::connect(&server.url()).await.expect("a store"));
        }
        let lines = stores.iter().map(|store| store.heartbeat()).collect();
        let (rows, listeners) = Default::default();
        Self { server, stores, lines, rounds: 1, rows, listeners }
    }

    /// What each of so many steps costs.
    async fn each(&self, work: impl Future<Output = ()>) -> Counts {
        measured(&self.server, work).await.0.by(self.rounds as f64)
    }

    /// One process takes a step in each of these flights, in many at once, as where there
    /// is much to do.
    async fn step<'a>(
        &mut self,
        row: &'static str,
        flights: &'a mut [Flight],
        step: impl Fn(&'a mut Flight) -> BoxFuture<'a, ()>,
    ) {
        let work = async {
            for some in flights.chunks_mut(AT_ONCE) {
                join_all(some.iter_mut().map(&step)).await;
            }
        };
        let counts = self.each(work).await;
        self.rows.insert(row, counts);
    }

    /// Flights of keys that nobody has, and of one's own from here on.
    async fn owned(&mut self) -> Vec<Flight> {
        let mut flights = Vec::new();
        for _ in 0..self.rounds {
            let key = random_key();
            let parts = self.stores.iter().map(|store| Part::new(store, key)).collect();
            let at = FlightRef { token: 0, id: FlightId::random() };
            flights.push(Flight { key, at, parts });
        }
        self.step("own", &mut flights, own).await;
        flights
    }

    async fn beat(
        &mut self,
        row: &'static str,
        n: usize,
        flights: &[Flight],
        beat: impl Fn(&Flight) -> Beat,
    ) {
        let mut line = std::mem::replace(&mut self.lines[n], self.stores[n].heartbeat());
        let beats: Vec<Beat> = flights.iter().map(beat).collect();
        let counts = self
            .each(async {
                let replies = line.beat(&beats).await;
                assert!(replies.iter().all(Result::is_ok), "{row}: {replies:?}");
            })
            .await;
        self.rows.insert(row, counts);
        self.lines[n] = line;
    }

    /// What it costs to listen no more. Nobody waits for the answers: what comes after
    /// them on the same line is waited for.
    async fn deaf(&mut self, n: usize, flights: &mut [Flight]) -> Counts {
        let (mut one, mut other) = (self.listener(n), self.listener(n));
        let (known, ()) = measured(&self.server, hear(&mut one)).await;
        let (all, ()) = measured(&self.server, async {
            flights.iter_mut().for_each(|flight| flight.parts[n].session.deafen());
            hear(&mut other).await;
        })
        .await;
        self.listeners.extend([one, other]);
        (all - known).by(self.rounds as f64)
    }

    fn listener(&self, n: usize) -> Part {
        Part::new(&self.stores[n], random_key())
    }

    fn plus(&mut self, row: &'static str, more: Counts) {
        let counts = self.rows.entry(row).or_default();
        *counts = counts.plus(more);
    }

    async fn alone(&mut self) {
        let mut flights = self.owned().await;
        self.step("end", &mut flights, |flight| finish(flight, 1000)).await;
        self.step("hit", &mut flights, |flight| flight.parts[1].hit().boxed()).await;
        let mut held = Vec::new();
        for flight in &mut flights {
            held.push(flight.parts[1].session.hold(flight.at, LEASE).await.expect("hold"));
        }
        assert!(held.iter().all(Option::is_some));
        self.step("own, again", &mut flights, own).await;
        self.step("end, kept", &mut flights, |flight| {
            flight.parts[0].finish(end(flight.at, None)).boxed()
        })
        .await;
        let mut flights = self.owned().await;
        self.step("-", &mut flights, |flight| finish(flight, 1000)).await;
        self.step("hold", &mut flights, |flight| {
            let Flight { at, parts, .. } = flight;
            async { assert!(parts[1].session.hold(*at, LEASE).await.is_ok()) }.boxed()
        })
        .await;
        let mut flights = self.owned().await;
        self.step("abandon", &mut flights, |flight| {
            let Flight { at, parts, .. } = flight;
            async { assert!(parts[0].session.abandon(*at).await.is_ok()) }.boxed()
        })
        .await;
    }

    async fn followed(&mut self) {
        let mut flights = self.owned().await;
        self.beat("renew", 0, &flights, renew).await;
        self.step("hear", &mut flights, |flight| {
            let Flight { at, parts, .. } = flight;
            async { assert!(parts[0].session.hear(*at).await.is_ok()) }.boxed()
        })
        .await;
        self.step("first", &mut flights, |flight| follow(flight, 1)).await;
        self.step("follow", &mut flights, |flight| follow(flight, 2)).await;
        let (first, follow) = (self.rows["first"], self.rows["follow"]);
        self.rows.insert("first", first - follow);
        self.beat("renew, followed", 0, &flights, renew).await;
        self.beat("watch", 1, &flights, watch).await;
        self.step("look", &mut flights, |flight| {
            let join = Join { look_only: true, known: flight.at.token, ..flight.parts[1].ask() };
            flight.parts[1].follow(join).boxed()
        })
        .await;
        let deaf = self.deaf(0, &mut flights).await;
        self.plus("hear", deaf);
        self.rows.insert("deaf", deaf);
        let deaf = self.deaf(1, &mut flights).await;
        self.plus("follow", deaf);
        self.step("end, followed", &mut flights, |flight| finish(flight, 1000)).await;
        self.deaf(2, &mut flights).await;
    }

    async fn large(&mut self) {
        for (row, bytes) in [("end, over 4 KiB", 10_000), ("end, over 20 KiB", 100_000)] {
            let mut flights = self.owned().await;
            self.step("-", &mut flights, |flight| follow(flight, 1)).await;
            self.step(row, &mut flights, |flight| finish(flight, bytes)).await;
            self.step("fetch", &mut flights, |flight| {
                let session = &mut flight.parts[1].session;
                async { assert!(session.fetch().await.expect("fetch").is_some()) }.boxed()
            })
            .await;
            self.deaf(1, &mut flights).await;
        }
    }

    async fn streams(&mut self) {
        let mut flights = self.owned().await;
        self.step("listen", &mut flights, |flight| {
            let Flight { at, parts, .. } = flight;
            async { assert!(parts[0].session.listen(*at, LEASE).await.is_ok()) }.boxed()
        })
        .await;
        self.deaf(0, &mut flights).await;
        self.step("-", &mut flights, |flight| follow(flight, 1)).await;
        for (first, row, bytes) in
            [(0, "-", 2000), (1, "append", 2000), (2, "append, over 20 KiB", 100_000)]
        {
            self.step(row, &mut flights, |flight| {
                flight.parts[0].append(flight.at, first, body(bytes)).boxed()
            })
            .await;
        }
        self.beat("renew, streamed", 0, &flights, renew).await;
        self.step("read", &mut flights, |flight| {
            let Flight { at, parts, .. } = flight;
            async {
                let read = parts[1].session.read(*at, 2).await.expect("read");
                assert_eq!(read.pieces.len(), 1);
            }
            .boxed()
        })
        .await;
        self.step("seal", &mut flights, |flight| {
            flight.parts[0].finish(sealed(flight.at, 3)).boxed()
        })
        .await;
        self.deaf(1, &mut flights).await;
    }

    async fn taken_over(&mut self) {
        let mut flights = self.owned().await;
        self.step("-", &mut flights, |flight| follow(flight, 1)).await;
        self.step("-", &mut flights, |flight| follow(flight, 2)).await;
        for Flight { key, .. } in &flights {
            let record = format!("ai:flight:meta:{{{key}}}");
            self.server.command(&["HSET", &record, "lease", "1"]);
        }
        let known: Vec<u64> = flights.iter().map(|flight| flight.at.token).collect();
        let (mut one, mut other) = (self.listener(1), self.listener(1));
        let known_cost = measured(&self.server, hear(&mut one)).await.0;
        let work = async {
            for flight in &mut flights {
                let join = Join { known: flight.at.token, ..flight.parts[1].ask() };
                flight.at = flight.parts[1].own(join).await;
            }
            hear(&mut other).await;
        };
        let all = measured(&self.server, work).await.0 - known_cost;
        // Who owns listens no more, which is told with `follow`.
        let taken = all.by(self.rounds as f64) - self.rows["deaf"];
        self.rows.insert("take over", taken);
        self.listeners.extend([one, other]);
        assert!(flights.iter().zip(known).all(|(flight, known)| flight.at.token > known));
        self.step("too late", &mut flights, |flight| {
            let join = Join { known: flight.at.token - 1, ..flight.parts[2].ask() };
            flight.parts[2].follow(join).boxed()
        })
        .await;
        self.deaf(2, &mut flights).await;
        self.beat("leave", 2, &flights, |flight| Beat::Leave {
            key: flight.key,
            waiter: flight.parts[2].waiter,
        })
        .await;
        self.beat("release", 1, &flights, |flight| {
            let FlightRef { token, id } = flight.at;
            let (token, status) = (Some(token), EndStatus::Abandoned);
            Beat::Release { key: flight.key, flight: id, token, status }
        })
        .await;
    }

    async fn all(&mut self, rounds: usize) {
        self.rounds = rounds;
        self.alone().await;
        self.followed().await;
        self.large().await;
        self.streams().await;
        self.taken_over().await;
    }
}

/// What goes to the server after all that its store said before.
async fn hear(part: &mut Part) {
    let at = FlightRef { token: 1, id: FlightId::random() };
    part.session.hear(at).await.expect("hear");
}

fn own(flight: &mut Flight) -> BoxFuture<'_, ()> {
    async {
        let join = flight.parts[0].ask();
        flight.at = flight.parts[0].own(join).await;
    }
    .boxed()
}

fn follow(flight: &mut Flight, n: usize) -> BoxFuture<'_, ()> {
    let join = flight.parts[n].ask();
    flight.parts[n].follow(join).boxed()
}

fn finish(flight: &mut Flight, bytes: usize) -> BoxFuture<'_, ()> {
    flight.parts[0].finish(end(flight.at, Some(body(bytes)))).boxed()
}

fn renew(flight: &Flight) -> Beat {
    Beat::Renew { key: flight.key, flight: flight.at, lease: LEASE }
}

fn watch(flight: &Flight) -> Beat {
    let join = Join { look_only: true, known: flight.at.token, ..flight.parts[1].ask() };
    Beat::Watch { key: flight.key, join, mark: MARK }
}

/// Scripts and commands to the last one, bytes but for digits of times. A mark's time is
/// made longer only where it is longer: a command more or less at random.
#[tokio::test]
async fn each_step_costs_what_the_page_says() {
    let steps = Steps::read();
    let mut bench = Bench::start().await;
    // Connections are there, and scripts, before it is counted.
    bench.all(1).await;
    bench.rows.clear();
    let rounds = std::env::var("SCALING_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    bench.all(rounds).await;
    bench.rows.retain(|row, _| !["-", "deaf"].contains(row));
    let mut wrong = Vec::new();
    for (row, counts) in &bench.rows {
        println!("| {row} | {counts} |");
        let (bytes, hearers) = moved(row);
        let Some(step) = steps.find(row) else {
            wrong.push(format!("{row}: {counts}, not on the page"));
            continue;
        };
        let cost = step.cost(bytes as f64, hearers.into());
        let near = |is: f64, told: f64| (is - told).abs() <= 4.0 + told * 0.005;
        let holds = counts.scripts == cost.scripts
            && (counts.commands - cost.commands).abs() < 0.6
            && near(counts.bytes_in, cost.bytes_in)
            && near(counts.bytes_out, cost.bytes_out);
        if !holds {
            wrong.push(format!("{row}: {counts}, by the page {cost:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What is told of a cluster, and of beats, others see to.
    let elsewhere = ["count", "pulse"];
    let rest = steps.names().filter(|name| !bench.rows.contains_key(name));
    assert_eq!(rest.collect::<Vec<_>>(), elsewhere);
}
