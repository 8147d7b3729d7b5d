//! What it costs to hold answers in processes.

use std::time::{Duration, Instant};

use tower_singleflight::Config;

use crate::{
    fleet::{Asked, Fleet},
    meter::{calls, figure, measured},
    model::Steps,
    support::{eventually, redis_server::RedisServer},
};

const NODES: usize = 3;
const KEYS: usize = 200;
const BEAT: Duration = Duration::from_millis(1500);

fn tracked(server: &RedisServer) -> [u64; 2] {
    ["tracking_total_keys", "tracking_total_items"].map(|name| figure(server, "stats", name) as u64)
}

async fn ask_all(fleet: &Fleet, node: usize) {
    let asked: Vec<_> = (0..KEYS).map(|n| fleet.ask(node, &format!("key-{n:04}"))).collect();
    for asked in asked {
        asked.await.expect("an answer");
    }
}

/// Each answer that is used again is one script, until it is held; then no process says
/// more than that it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_costs_no_scripts() {
    let server = RedisServer::start_with(&["--hz", "1"]);
    let (lease, reuse) = (BEAT * 3, Duration::from_secs(25));
    let config = Config::builder().lease(lease).heartbeat(BEAT).reuse(reuse).build();
    let asked = Asked { groups: 0, group: 100 };
    let fleet = Fleet::start(&server.url(), NODES, &config.expect("settings"), asked).await;
    fleet.open(1);
    ask_all(&fleet, 0).await;
    let (keys, nodes) = (KEYS as u64, NODES as u64);
    eventually("the first holds all", async || tracked(&server) == [keys, keys]).await;
    for node in 1..NODES {
        let (counts, ()) = measured(&server, ask_all(&fleet, node)).await;
        assert_eq!(counts.scripts, KEYS as f64);
        let items = keys * (node as u64 + 1);
        eventually("another holds all", async || tracked(&server) == [keys, items]).await;
    }
    for node in 0..NODES {
        let used = || fleet.nodes[node].layer.stats().reused_local;
        eventually("all is there", async || {
            let before = used();
            ask_all(&fleet, node).await;
            used() == before + keys
        })
        .await;
    }
    // From here on nothing but signs of life.
    let pulse = Steps::read().one("pulse");
    let pulses = || calls(&server)["client|tracking"];
    let (start, began) = (pulses(), Instant::now());
    let (counts, ()) = measured(&server, async {
        for node in 0..NODES {
            ask_all(&fleet, node).await;
        }
        eventually("signs of life", async || pulses() >= start + 3 * nodes).await;
    })
    .await;
    let rate = counts.commands / began.elapsed().as_secs_f64();
    let told = nodes as f64 * 3.0 / BEAT.as_secs_f64();
    println!("{rate:.1} commands a second, by the page {told:.1}; {counts}");
    assert_eq!(counts.scripts, 0.0);
    // What the polls ask in between has no part in what comes of it.
    assert!(counts.commands <= (pulses() - start) as f64, "{counts}");
    assert!(rate > told * 0.5 && rate < told * 1.3, "{rate}");
    assert_eq!(pulse.commands, 1.0);
    // A server that remembers less of it says so, and asks are asks again.
    let most = keys / 3;
    server.command(&["CONFIG", "SET", "tracking-table-max-keys", &most.to_string()]);
    eventually("it forgets", async || tracked(&server)[0] <= most).await;
    eventually("they are asked", async || {
        let before = server.scripts();
        ask_all(&fleet, 1).await;
        server.scripts() - before >= keys / 2
    })
    .await;
    assert_eq!(fleet.nodes.iter().map(|node| node.layer.stats().owner).sum::<u64>(), keys);
}
