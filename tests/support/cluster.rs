//! A cluster of three masters with a replica each, in processes of a test's own.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::redis_server::RedisServer;

const PATIENCE: Duration = Duration::from_secs(30);
const SLOTS: u16 = 16_384;
const MASTERS: usize = 3;

/// All of them; killed when dropped.
pub(crate) struct Cluster {
    /// The first three are the masters to begin with; each has the replica three on.
    pub(crate) nodes: Vec<RedisServer>,
    /// Their names among each other.
    ids: Vec<String>,
}

impl Cluster {
    /// Starts one whose nodes miss each other after a second.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with more arguments for each node.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        let quick = [
            "--cluster-node-timeout",
            "1000",
            "--repl-diskless-sync-delay",
            "0",
            "--cluster-replica-validity-factor",
            "0",
            "--enable-debug-command",
            "yes",
        ];
        let args = [&quick[..], args].concat();
        let nodes: Vec<_> = (0..2 * MASTERS).map(|_| RedisServer::start_node(&args)).collect();
        let ids = nodes.iter().map(|node| word(node, &["CLUSTER", "MYID"])).collect();
        let cluster = Self { nodes, ids };
        for (n, node) in cluster.nodes.iter().enumerate() {
            ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
        }
        for (n, master) in cluster.nodes[..MASTERS].iter().enumerate() {
            let first = SLOTS as usize * n / MASTERS;
            let last = SLOTS as usize * (n + 1) / MASTERS - 1;
            ok(master, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for node in &cluster.nodes[1..] {
            let (port, bus) = (cluster.nodes[0].port().to_string(), cluster.nodes[0].bus_port());
            ok(node, &["CLUSTER", "MEET", "127.0.0.1", &port, bus]);
        }
        until("all nodes know each other", || {
            cluster.nodes.iter().all(|node| table(node).lines().count() == 2 * MASTERS)
        });
        for (n, replica) in cluster.nodes[MASTERS..].iter().enumerate() {
            until("the replica knows its master", || {
                replica.command(&["CLUSTER", "REPLICATE", &cluster.ids[n]]) == "+OK\r\n"
            });
        }
        cluster.settle();
        cluster
    }

    /// Waits until all nodes that live agree that all slots are served, by masters with
    /// a replica that is up to date where there is one.
    pub(crate) fn settle(&self) {
        until("the cluster is in order", || {
            let maps: Vec<_> = self.living().map(owners).collect();
            maps.iter().all(|map| map.len() == SLOTS as usize && *map == maps[0])
                && self.living().all(|node| {
                    let state = node.lines(&["CLUSTER", "INFO"]);
                    let role = node.lines(&["INFO", "replication"]);
                    state.iter().any(|line| line == "cluster_state:ok")
                        && (role.iter().any(|line| line == "role:master")
                            || role.iter().any(|line| line == "master_link_status:up"))
                })
        });
    }

    /// The address, through all nodes; `login` is `user:password@`, or nothing.
    pub(crate) fn url(&self, login: &str) -> String {
        let places: Vec<String> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{login}{}", places.join(","))
    }

    fn living(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_there())
    }

    /// The place in `nodes` of who has this slot, where anybody who lives has.
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        let port = self.living().find_map(|node| owners(node).get(&slot).copied())?;
        self.nodes.iter().position(|node| node.port() == port)
    }

    /// The slot that a key has by the servers' word.
    pub(crate) fn slot(&self, name: &str) -> u16 {
        let node = self.living().next().expect("a node that lives");
        let answer = word(node, &["CLUSTER", "KEYSLOT", name]);
        answer.trim_start_matches(':').parse().expect("a slot")
    }

    /// The nodes that are masters, as far as they know.
    pub(crate) fn masters(&self) -> Vec<usize> {
        let is_master = |node: &RedisServer| {
            node.is_there()
                && node.lines(&["INFO", "replication"]).iter().any(|line| line == "role:master")
        };
        (0..self.nodes.len()).filter(|n| is_master(&self.nodes[*n])).collect()
    }

    /// Has a replica take its master's place, while that lives.
    pub(crate) fn fail_over(&self, replica: usize) {
        ok(&self.nodes[replica], &["CLUSTER", "FAILOVER"]);
        until("the replica is the master", || self.masters().contains(&replica));
    }

    /// Begins to move a slot.
    pub(crate) fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        ok(&self.nodes[to], &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        ok(&self.nodes[from], &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
    }

    /// Moves what the slot holds just now.
    pub(crate) fn move_keys(&self, slot: u16, from: usize, to: usize) {
        loop {
            let keys = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"];
            let keys = self.nodes[from].lines(&keys);
            if keys.is_empty() {
                return;
            }
            let port = self.nodes[to].port().to_string();
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.iter().map(String::as_str));
            let answer = self.nodes[from].command(&migrate);
            assert!(answer == "+OK\r\n" || answer == "+NOKEY\r\n", "{answer}");
        }
    }

    /// The slot is the other's from now on.
    pub(crate) fn end_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        // First who takes it, so that somebody has it at any time.
        for node in [to, from].into_iter().chain(0..MASTERS).filter(|node| *node < MASTERS) {
            ok(&self.nodes[node], &["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]]);
        }
    }
}

/// Who has each slot, by this node's word.
fn owners(node: &RedisServer) -> HashMap<u16, u16> {
    let mut owners = HashMap::new();
    // <id> <ip:port@bus> <flags> <master> <ping> <pong> <epoch> <link> <slot> ...
    for line in table(node).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let failed = |flag| matches!(flag, "fail" | "fail?");
        if words.len() < 9 || words[2].split(',').any(failed) {
            continue;
        }
        let port = words[1].split(['@', ',']).next().and_then(|place| place.rsplit(':').next());
        let Some(port) = port.and_then(|port| port.parse().ok()) else { continue };
        for slots in words[8..].iter().filter(|slots| !slots.starts_with('[')) {
            let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
            let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) else {
                continue;
            };
            owners.extend((first..=last).map(|slot| (slot, port)));
        }
    }
    owners
}

fn table(node: &RedisServer) -> String {
    word(node, &["CLUSTER", "NODES"])
}

fn word(node: &RedisServer, parts: &[&str]) -> String {
    node.lines(parts).into_iter().next().expect("an answer")
}

fn ok(node: &RedisServer, parts: &[&str]) {
    assert_eq!(node.command(parts), "+OK\r\n", "{parts:?}");
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
