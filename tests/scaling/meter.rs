//! What a server counts.

use std::{collections::BTreeMap, fmt, future::Future, ops::Sub};

use crate::support::redis_server::RedisServer;

/// What was asked of a server, in the units of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) scripts: f64,
    /// All other commands, those in scripts among them.
    pub(crate) commands: f64,
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
    /// The server's time on a processor, for all that it does.
    pub(crate) micros: f64,
}

impl Counts {
    fn each(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            scripts: of(self.scripts, other.scripts),
            commands: of(self.commands, other.commands),
            bytes_in: of(self.bytes_in, other.bytes_in),
            bytes_out: of(self.bytes_out, other.bytes_out),
            micros: of(self.micros, other.micros),
        }
    }

    pub(crate) fn by(self, n: f64) -> Self {
        self.each(self, |count, _| count / n)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.each(other, |one, other| one + other)
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.each(other, |one, other| one - other)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scripts, commands, bytes_in, bytes_out, micros } = self;
        write!(f, "{scripts:.2} | {commands:.2} | {bytes_in:.1} | {bytes_out:.1} | {micros:.1}")
    }
}

/// Commands of the tests themselves, and of connections that begin.
const OWN: [&str; 13] = [
    "info",
    "quit",
    "ping",
    "hello",
    "keys",
    "ttl",
    "command",
    "config|resetstat",
    "client|list",
    "client|setinfo",
    "memory|usage",
    "pubsub|channels",
    "cluster|slots",
];

/// How often each command was called.
pub(crate) fn calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let lines = server.lines(&["INFO", "commandstats"]);
    let count = |line: &String| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse().ok()?;
        (!OWN.contains(&command)).then_some((command.to_owned(), calls))
    };
    lines.iter().filter_map(count).collect()
}

/// A figure of `INFO`.
pub(crate) fn figure(server: &RedisServer, section: &str, name: &str) -> f64 {
    let lines = server.lines(&["INFO", section]);
    let value = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name}")).trim().parse().expect("a number")
}

/// What came, went and was done so far.
fn moved(server: &RedisServer) -> Counts {
    let lines = [server.lines(&["INFO", "stats"]), server.lines(&["INFO", "cpu"])].concat();
    let of = |name: &str| {
        let value = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.expect("a figure").trim().parse::<f64>().expect("a number")
    };
    Counts {
        bytes_in: of("total_net_input_bytes"),
        bytes_out: of("total_net_output_bytes"),
        micros: (of("used_cpu_user") + of("used_cpu_sys")) * 1e6,
        ..Counts::default()
    }
}

/// What this work costs the server, without what it costs to ask it.
pub(crate) async fn measured<T>(
    server: &RedisServer,
    work: impl Future<Output = T>,
) -> (Counts, T) {
    let before = calls(server);
    let [first, start] = [moved(server), moved(server)];
    let done = work.await;
    let mut counts = moved(server) - start - (start - first);
    for (command, calls) in calls(server) {
        let calls = (calls - before.get(&command).copied().unwrap_or_default()) as f64;
        match command.starts_with("eval") {
            true => counts.scripts += calls,
            false => counts.commands += calls,
        }
    }
    (counts, done)
}
