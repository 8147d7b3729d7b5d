//! The command line.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

pub(crate) const USAGE: &str = "usage: playground [--listen 127.0.0.1:PORT] [--lease-ms N] \
    [--run-ms N] [--memory]";

/// What is below it where help is asked for.
pub(crate) const HELP: &str =
    "  --listen    default: 127.0.0.1:3000, or another port where that one is taken
  --lease-ms  the lease of who runs; default: 3000
  --run-ms    how long a run takes; default: 6000
  --memory    three layers in one process, also where there is a Redis
";

/// How quick everything is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) lease: Duration,
    /// How long a run takes.
    pub(crate) takes: Duration,
}

/// What this process is to be.
#[derive(Debug)]
pub(crate) enum Role {
    Playground(Options),
    /// One node of its fleet.
    Node {
        name: String,
        redis: String,
        pace: Pace,
    },
    /// Ends all of them.
    Warden {
        folder: PathBuf,
    },
    /// Says how it is used.
    Help,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) listen: SocketAddr,
    /// Nobody chose the port: another will do.
    pub(crate) any_port: bool,
    pub(crate) pace: Pace,
    /// Three layers in one process, also where there is a Redis.
    pub(crate) memory: bool,
}

impl Role {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut role = "playground".to_owned();
        let (mut name, mut redis, mut folder) = Default::default();
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 3000));
        let (mut listen, mut any_port, mut memory) = (local, true, false);
        let mut pace = Pace { lease: Duration::from_secs(3), takes: Duration::from_secs(6) };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value; {USAGE}"));
            match arg.as_str() {
                "node" | "warden" => role = arg,
                "--help" | "-h" => return Ok(Self::Help),
                "--name" => name = value()?,
                "--redis" => redis = value()?,
                "--folder" => folder = value()?,
                "--listen" => (listen, any_port) = (loopback(&value()?)?, false),
                "--lease-ms" => pace.lease = millis(&arg, &value()?)?,
                "--run-ms" => pace.takes = millis(&arg, &value()?)?,
                "--memory" => memory = true,
                _ => return Err(format!("{arg} is not known; {USAGE}")),
            }
        }
        Ok(match role.as_str() {
            "node" => Self::Node { name, redis, pace },
            "warden" => Self::Warden { folder: PathBuf::from(folder) },
            _ => Self::Playground(Options { listen, any_port, pace, memory }),
        })
    }
}

/// Who opens the page can kill processes: it is for this machine alone.
fn loopback(value: &str) -> Result<SocketAddr, String> {
    let numbers = match value.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => value.to_owned(),
    };
    let address = SocketAddr::from_str(&numbers).map_err(|error| {
        format!("--listen ({value}): {error}; it must be as `--listen 127.0.0.1:3001`")
    })?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => Ok(address),
        IpAddr::V6(ip) if ip.is_loopback() => Ok(address),
        _ => Err(format!("--listen ({address}) must be a loopback address, as 127.0.0.1")),
    }
}

fn millis(name: &str, value: &str) -> Result<Duration, String> {
    match value.parse() {
        Ok(ms @ 600..=60_000) => Ok(Duration::from_millis(ms)),
        _ => Err(format!("{name} ({value}) must be 600 to 60000 milliseconds")),
    }
}
