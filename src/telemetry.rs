//! What a layer shows of itself.

use crate::store::Badge;

/// What a layer shows of itself, and how.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    badge: Badge,
}

impl Telemetry {
    /// Of the process of this name; none: the process's number, and its host's name where
    /// that is known.
    pub(crate) fn new(instance: Option<&str>) -> Self {
        Self { badge: Badge::new(&instance.map_or_else(process, ToOwned::to_owned)) }
    }

    /// What is left beside flights that are owned here.
    pub(crate) fn badge(&self) -> Badge {
        self.badge.clone()
    }
}

fn process() -> String {
    let host = std::env::var("HOSTNAME").ok();
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty());
    match host {
        Some(host) => format!("{}@{host}", std::process::id()),
        None => std::process::id().to_string(),
    }
}
