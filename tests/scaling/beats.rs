//! What flights cost that go on.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tower_singleflight::{
    Config, FlightPhase, KeyDigest, RedisStore,
    store::{
        Beat, BeatReply, BoxFuture, Heartbeat, Session, Store, StoreError, StoreErrorKind,
        StoreState,
    },
};

use crate::{
    fleet::{Asked, Fleet},
    meter::measured,
    model::Steps,
    support::{eventually, redis_server::RedisServer},
};

/// When a process sent how many beats in one go.
pub(crate) type Sent = Arc<Mutex<Vec<(Instant, usize)>>>;

/// A store that writes down its beats.
#[derive(Debug)]
pub(crate) struct Noted(pub(crate) RedisStore, pub(crate) Sent);

impl Store for Noted {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        self.0.session(key)
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        Box::new(NotedBeat(self.0.heartbeat(), Arc::clone(&self.1)))
    }

    fn is_remote(&self) -> bool {
        self.0.is_remote()
    }

    fn state(&self) -> StoreState {
        self.0.state()
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        self.0.errors()
    }
}

struct NotedBeat(Box<dyn Heartbeat>, Sent);

impl Heartbeat for NotedBeat {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async move {
            let replies = self.0.beat(batch).await;
            self.1.lock().expect("a lock").push((Instant::now(), batch.len()));
            replies
        })
    }
}

/// All that a process owns and follows goes in one batch a beat, and nothing else does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_is_one_batch_for_each_process() {
    tokio::join!(beats(1, 600), beats(2, 100), beats(5, 20));
}

async fn beats(n: usize, flights: usize) {
    const BEAT: Duration = Duration::from_millis(400);
    const BEATS: usize = 2;
    let server = RedisServer::start();
    let config = Config::builder().lease(BEAT * 6).heartbeat(BEAT).build().expect("settings");
    let asked = Asked { groups: 0, group: 100 };
    let fleet = Fleet::start(&server.url(), n, &config, asked).await;
    let keys: Vec<String> = (0..flights).map(|n| format!("key-{n:04}")).collect();
    let mut callers = fleet.all(0, &keys, FlightPhase::Owning).await;
    for node in 1..n {
        callers.extend(fleet.all(node, &keys, FlightPhase::Following).await);
    }
    let sent = |node: usize| fleet.nodes[node].beats.lock().expect("a lock").clone();
    let so_far = || (0..n).map(sent).collect::<Vec<_>>();
    let batches = async |more: usize| {
        let before = so_far();
        eventually("so many beats", async || {
            (0..n).all(|node| sent(node).len() >= before[node].len() + more)
        })
        .await;
    };
    // Those that began apart go together from their second beat on.
    eventually("all in one batch", async || {
        (0..n).all(|node| sent(node).last().is_some_and(|(_, beats)| *beats == flights))
    })
    .await;
    let before = so_far();
    let (counts, ()) = measured(&server, batches(BEATS)).await;
    let mut all = 0;
    for (before, after) in before.iter().zip(so_far()) {
        let new = &after[before.len() - 1..];
        // One that a busy machine cut in two is together again with the next.
        let whole = new.iter().filter(|(_, beats)| *beats == flights).count();
        assert!(2 * whole > new.len(), "{n}, {flights}: {new:?}");
        // However late a busy machine lets one be.
        let took = new[new.len() - 1].0 - new[0].0;
        let most = took.as_secs_f64() / BEAT.as_secs_f64() + 1.5;
        assert!((new.len() - 1) as f64 <= most, "{n}, {flights}: {} in {took:?}", new.len());
        all += new[1..].iter().map(|(_, beats)| beats).sum::<usize>();
    }
    // But for one batch of each that fell between two looks.
    let looked = all as f64;
    assert!((counts.scripts - looked).abs() <= (n * flights) as f64, "{counts}, {looked}");
    let (others, steps) = (n as f64 - 1.0, Steps::read());
    let cost = steps.beat(others, others.min(1.0)).times(flights as f64);
    println!("{n} processes, {flights} flights: {counts}, by the page {cost:?} a beat");
    // No process is more than a beat before another.
    let beats = counts.scripts / cost.scripts;
    assert!(beats > BEATS as f64 - 1.0 && beats < BEATS as f64 + 2.0, "{beats}");
    if n == 1 {
        let told = cost.times(beats);
        let near = |is: f64, told: f64| (is - told).abs() <= told * 0.01;
        assert!(near(counts.commands, told.commands), "{counts}, {told:?}");
        assert!(near(counts.bytes_in, told.bytes_in), "{counts}, {told:?}");
        assert!(near(counts.bytes_out, told.bytes_out), "{counts}, {told:?}");
    }
    fleet.land(callers).await;
}
