//! Connections: as many as there are processes, whatever they do.

use std::time::Duration;

use tower_singleflight::{Config, FlightPhase, RedisStore};

use crate::{
    fleet::{Asked, Fleet},
    meter::calls,
    model::Steps,
    page::{number, table},
    rig::{Part, random_key},
    support::{cluster::Cluster, eventually, redis_server::RedisServer, sentinels},
};

const BEAT: Duration = Duration::from_millis(300);
// Staged, so that it goes its own way.
const ASKED: Asked = Asked { groups: 0, group: 5000 };

/// Processes also hold what they have.
fn config() -> Config {
    let reuse = Duration::from_secs(10);
    Config::builder().lease(BEAT * 4).heartbeat(BEAT).reuse(reuse).build().expect("settings")
}

fn told(server: &str) -> usize {
    number(table("connections")[server][0]) as usize
}

/// Connections of all but tests, replicas and sentinels.
fn connections(server: &RedisServer) -> usize {
    let clients = server.command(&["CLIENT", "LIST"]);
    let ours = |line: &&str| {
        line.contains(" addr=127.0.0.1:")
            && !line.contains("name=sentinel-")
            && !line.contains("flags=S")
            && !line.contains("flags=M")
    };
    clients.lines().filter(ours).count()
}

/// Flights that each process owns, and another one follows, for some beats.
async fn fly(fleet: &Fleet, flights: usize) {
    let n = fleet.nodes.len();
    for owner in 0..n {
        let keys: Vec<_> = (0..flights).map(|k| format!("of-{owner}-{flights}-{k}")).collect();
        let mut callers = fleet.all(owner, &keys, FlightPhase::Owning).await;
        let next = (owner + 1) % n;
        if next != owner {
            callers.extend(fleet.all(next, &keys, FlightPhase::Following).await);
        }
        let so_far =
            [owner, next].map(|node| fleet.nodes[node].beats.lock().expect("a lock").len());
        eventually("a beat of all", async || {
            [owner, next].iter().zip(so_far).all(|(node, before)| {
                fleet.nodes[*node].beats.lock().expect("a lock").len() > before
            })
        })
        .await;
        fleet.land(callers).await;
    }
}

async fn grows_not(fleet: &Fleet, servers: &[&RedisServer], each: usize) {
    let all = fleet.nodes.len() * each;
    let counts = || servers.iter().map(|server| connections(server)).collect::<Vec<_>>();
    // So many that each master of a cluster has some.
    let few = if servers.len() > 1 { 40 } else { 1 };
    fly(fleet, few).await;
    eventually("all connections", async || counts().iter().all(|count| *count == all)).await;
    fly(fleet, 50).await;
    assert_eq!(counts(), vec![all; servers.len()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_server() {
    let one = async |n: usize, protocol: &str, to: &str| {
        let server = RedisServer::start();
        let url = format!("{}{protocol}", server.url());
        let fleet = Fleet::start(&url, n, &config(), ASKED).await;
        grows_not(&fleet, &[&server], told(to)).await;
    };
    let two = one(2, "?protocol=resp2", "one server, no pushes");
    tokio::join!(one(1, "", "one server"), one(4, "", "one server"), two);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels() {
    let servers = sentinels::Fleet::start();
    let fleet = Fleet::start(&servers.url(""), 2, &config(), ASKED).await;
    grows_not(&fleet, &[&servers.servers[0]], told("behind sentinels: the master")).await;
    assert_eq!(connections(&servers.servers[1]) + connections(&servers.servers[2]), 0);
    let each = told("behind sentinels: each sentinel");
    eventually("none at the sentinels", async || {
        servers.at_sentinels().iter().all(|count| *count == 2 * each)
    })
    .await;
}

/// And who has what of a cluster: flights go by their keys' digests, and the token counter
/// is told of grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster() {
    let cluster = Cluster::start();
    let fleet = Fleet::start(&cluster.url(""), 2, &config(), ASKED).await;
    let masters = [&cluster.nodes[0], &cluster.nodes[1], &cluster.nodes[2]];
    grows_not(&fleet, &masters, told("a cluster: each master")).await;
    let of = |server: &RedisServer| {
        let keys = server.lines(&["KEYS", "ai:flight:meta:*"]);
        keys.len()
    };
    let records = masters.map(of);
    let all: usize = records.iter().sum();
    assert_eq!(all, 2 * (40 + 50));
    // A third each, and no more than four deviations off.
    let off = 4.0 * (all as f64 * 2.0 / 9.0).sqrt();
    assert!(records.iter().all(|n| (*n as f64 - all as f64 / 3.0).abs() < off), "{records:?}");
    println!("{records:?} records");
    // A grant elsewhere is told the counter, once.
    let home = cluster.owner(cluster.slot("ai:flight:owner-seq")).expect("its master");
    let key = loop {
        let key = random_key();
        if cluster.owner(cluster.slot(&format!("ai:flight:meta:{{{key}}}"))) != Some(home) {
            break key;
        }
    };
    let store = RedisStore::connect(&cluster.url("")).await.expect("a store");
    let home = &cluster.nodes[home];
    let of = |command: &str| calls(home).get(command).copied().unwrap_or_default();
    let scripts = || of("evalsha") + of("eval");
    let (before, sets) = (scripts(), of("set"));
    let mut part = Part::new(&store, key);
    let ask = part.ask();
    part.own(ask).await;
    eventually("the counter is told", async || of("set") == sets + 1).await;
    let count = Steps::read().one("count");
    assert_eq!((scripts() - before) as f64, count.scripts);
}
