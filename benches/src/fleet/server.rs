//! A server of the bench's own, and what it says of its work.

use std::{collections::HashMap, time::Duration};

use super::redis_server::RedisServer;

/// A running server; gone when dropped.
pub struct Server(RedisServer);

/// Calls and microseconds by command. What a script calls is in the script's time, and
/// counted under its own name, too.
#[derive(Debug)]
pub struct Commands(HashMap<String, (u64, f64)>);

impl Server {
    pub fn start() -> Self {
        Self(RedisServer::start())
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Begins to count anew.
    pub fn reset(&self) {
        self.0.command(&["CONFIG", "RESETSTAT"]);
    }

    pub fn commands(&self) -> Commands {
        let text = self.0.command(&["INFO", "commandstats"]);
        let one = |line: &str| {
            let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            Some((name.to_owned(), (number(numbers, "calls=")? as u64, number(numbers, "usec=")?)))
        };
        Commands(text.lines().filter_map(one).collect())
    }

    /// How long the server has worked since it was started.
    pub fn cpu(&self) -> Duration {
        let text = self.0.command(&["INFO", "cpu"]);
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok())
        };
        let (user, system) = (field("used_cpu_user:"), field("used_cpu_sys:"));
        Duration::from_secs_f64(user.expect("a time") + system.expect("a time"))
    }
}

fn number(text: &str, name: &str) -> Option<f64> {
    let from = text.find(name)? + name.len();
    text[from..].split(',').next()?.trim().parse().ok()
}

impl Commands {
    pub fn calls(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |stat| stat.0)
    }

    pub fn micros(&self, name: &str) -> f64 {
        self.0.get(name).map_or(0.0, |stat| stat.1)
    }

    /// Scripts that ran.
    pub fn scripts(&self) -> u64 {
        self.calls("evalsha") + self.calls("eval")
    }

    /// The time of scripts.
    pub fn script_micros(&self) -> f64 {
        self.micros("evalsha") + self.micros("eval")
    }
}
