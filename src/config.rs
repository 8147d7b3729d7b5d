//! Settings, checked when they are made.

use std::{fmt, time::Duration};

/// The settings of a layer, known to work together.
///
/// [`Config::default`] is right for most services; [`Config::builder`] changes
/// single settings and refuses what cannot work.
///
/// ```
/// use std::time::Duration;
/// use tower_singleflight::Config;
///
/// let config = Config::builder()
///     .lease(Duration::from_secs(6))
///     .hard_timeout(Duration::from_secs(60))
///     .build()?;
/// assert_eq!(config.heartbeat(), Duration::from_secs(2));
///
/// let refused = Config::builder()
///     .lease(Duration::from_secs(3))
///     .heartbeat(Duration::from_secs(2))
///     .build()
///     .unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "heartbeat (2s) must be under half of lease (3s)",
/// );
/// # Ok::<(), tower_singleflight::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) lease: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) hard_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) retention: Duration,
    pub(crate) reuse: Duration,
    pub(crate) pass: Option<Duration>,
    pub(crate) wait_limit: Option<Duration>,
    pub(crate) release_rate: Option<u32>,
    pub(crate) max_share_bytes: usize,
    pub(crate) delivery: Delivery,
    pub(crate) abandon: Abandon,
    pub(crate) lease_loss: LeaseLoss,
    pub(crate) store_down: StoreDown,
}

/// When callers get what a shared run answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// A body that is known to have at most 64 KiB, or that is there at once, when it
    /// is whole, so that a takeover stays unseen; any other frame by frame, as it
    /// comes. The default.
    #[default]
    Auto,
    /// When the body is whole. One that never ends holds its callers up until it is
    /// larger than what is shared.
    Buffered,
    /// Frame by frame, as it comes.
    Streaming,
}

/// What becomes of a run that nobody waits for any more, in any process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Abandon {
    /// It is aborted. The default.
    #[default]
    Abort,
    /// It runs to its end, for those who ask within the reuse window.
    Finish,
}

/// What becomes of a run that is cut off from the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseLoss {
    /// It is aborted before another process may own the key. The default.
    #[default]
    Abort,
    /// It goes on for the callers of its own process; nothing is published.
    FinishLocally,
}

/// What becomes of requests while the store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreDown {
    /// They share within their process. The default.
    #[default]
    Open,
    /// They are answered with 503.
    Reject,
}

impl Default for Config {
    fn default() -> Self {
        let lease = Duration::from_secs(3);
        Self {
            lease,
            heartbeat: lease / 3,
            hard_timeout: Duration::from_secs(5 * 60),
            idle_timeout: Duration::from_secs(60),
            retention: Duration::from_secs(30),
            reuse: Duration::ZERO,
            pass: None,
            wait_limit: None,
            release_rate: None,
            max_share_bytes: 8 * 1024 * 1024,
            delivery: Delivery::default(),
            abandon: Abandon::default(),
            lease_loss: LeaseLoss::default(),
            store_down: StoreDown::default(),
        }
    }
}

impl Config {
    /// Starts from the defaults.
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder { config: Self::default(), heartbeat: None }
    }

    /// How long an owner that is gone without a word blocks its key.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How often an owner renews its lease, and a follower looks.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// How long before the store forgets a lease its owner stops: a sixth of it.
    #[must_use]
    pub fn margin(&self) -> Duration {
        self.lease / 6
    }

    /// How long the key of an answer that took `took` to its head is marked private.
    pub(crate) fn private_mark(&self, took: Duration) -> Duration {
        const MOST: Duration = Duration::from_secs(5 * 60);
        self.pass
            .unwrap_or_else(|| (took * 10).clamp(Duration::from_secs(5), MOST))
            .max(self.lease + Duration::from_secs(1))
    }
}

/// Changes single settings of a [`Config`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ConfigBuilder {
    config: Config,
    heartbeat: Option<Duration>,
}

impl ConfigBuilder {
    /// How long an owner that is gone without a word blocks its key. Default: 3 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// How often an owner renews its lease, and a follower looks. Must be under
    /// half of the lease. Default: a third of the lease.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// How long one run may take in all. Default: 5 min.
    pub fn hard_timeout(mut self, hard_timeout: Duration) -> Self {
        self.config.hard_timeout = hard_timeout;
        self
    }

    /// How long a run that has begun to answer may give nothing: then it is ended as
    /// one that passed its hard timeout is. Default: 60 s.
    pub fn idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.config.idle_timeout = idle_timeout;
        self
    }

    /// How long a finished flight's record stays in the store, for followers that
    /// are late to read it. Must be at least two leases. Default: 30 s.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.config.retention = retention;
        self
    }

    /// How old an answer may be that a caller gets who came after the flight had
    /// ended. Must not exceed the retention. Default: 0, nothing is reused.
    pub fn reuse(mut self, reuse: Duration) -> Self {
        self.config.reuse = reuse;
        self
    }

    /// How long a key whose answer may not be shared is left alone. Must be at
    /// least the lease and a second. Default: ten times the time to the head of
    /// that answer, within 5 s and 5 min.
    pub fn private_mark(mut self, mark: Duration) -> Self {
        self.config.pass = Some(mark);
        self
    }

    /// How long a follower waits at most before it gets a 504; the run itself is
    /// not touched by it. Default: none.
    pub fn wait_limit(mut self, limit: Duration) -> Self {
        self.config.wait_limit = Some(limit);
        self
    }

    /// How many of the callers that are let go together enter inner in a second, in this
    /// process and over all keys of the layer. Default: no bound, all at once.
    ///
    /// They are let go when what they have waited for may not be shared, or cannot be
    /// read: each then runs its own request. The first enters at once, the others follow
    /// in the order in which they came to wait, one each `1 / per_second` of a second;
    /// who leaves gives its turn to the next. Until its turn a caller holds nothing of
    /// inner. [`wait_limit`](Self::wait_limit) goes on meanwhile. Callers that have waited
    /// for no run are not held up: those who come while a key is marked private, and
    /// those who bypass.
    pub fn release_rate(mut self, per_second: u32) -> Self {
        self.config.release_rate = Some(per_second);
        self
    }

    /// The most bytes of one response that are held to be shared, trailers included
    /// and each frame counted as 64 bytes at least. Default: 8 MiB.
    ///
    /// A larger one that is buffered, or known to be larger, goes to its own caller
    /// alone. One that is handed out as it comes goes on for those who have begun with
    /// it, inside a window of this size; the fastest of them sets the pace, who falls
    /// behind the window gets a body error, and who comes later another run.
    pub fn max_share_bytes(mut self, bytes: usize) -> Self {
        self.config.max_share_bytes = bytes;
        self
    }

    /// When callers get what a shared run answers. Default: [`Delivery::Auto`].
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.config.delivery = delivery;
        self
    }

    /// What becomes of a run that nobody waits for. Default: [`Abandon::Abort`].
    pub fn abandon(mut self, abandon: Abandon) -> Self {
        self.config.abandon = abandon;
        self
    }

    /// What becomes of a run that is cut off from the store. Default:
    /// [`LeaseLoss::Abort`].
    pub fn lease_loss(mut self, lease_loss: LeaseLoss) -> Self {
        self.config.lease_loss = lease_loss;
        self
    }

    /// What becomes of requests while the store is away. Default:
    /// [`StoreDown::Open`].
    pub fn store_down(mut self, store_down: StoreDown) -> Self {
        self.config.store_down = store_down;
        self
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work, its value, and what it clashes with.
    pub fn build(self) -> Result<Config, ConfigError> {
        let Self { mut config, heartbeat } = self;
        config.heartbeat = heartbeat.unwrap_or(config.lease / 3);
        for (setting, value) in [
            ("lease", config.lease),
            ("heartbeat", config.heartbeat),
            ("hard_timeout", config.hard_timeout),
            ("idle_timeout", config.idle_timeout),
            ("retention", config.retention),
        ] {
            if value < Duration::from_millis(1) {
                return Err(ConfigError::new(setting, value, "must be at least 1ms"));
            }
        }
        if config.wait_limit.is_some_and(|limit| limit.is_zero()) {
            return Err(ConfigError::new("wait_limit", Duration::ZERO, "must be more than zero"));
        }
        if config.release_rate == Some(0) {
            return Err(ConfigError::new("release_rate", 0, "must be more than zero"));
        }
        if config.max_share_bytes == 0 {
            return Err(ConfigError::new("max_share_bytes", 0, "must be more than zero"));
        }
        let bounds = [
            (
                "heartbeat",
                config.heartbeat < config.lease / 2,
                config.heartbeat,
                "under half of lease",
                config.lease,
            ),
            (
                "retention",
                config.retention >= config.lease * 2,
                config.retention,
                "at least twice lease",
                config.lease,
            ),
            (
                "reuse",
                config.reuse <= config.retention,
                config.reuse,
                "at most retention",
                config.retention,
            ),
        ];
        for (setting, holds, value, rule, other) in bounds {
            if !holds {
                return Err(ConfigError::new(
                    setting,
                    value,
                    format!("must be {rule} ({other:?})"),
                ));
            }
        }
        if let Some(mark) = config.pass
            && mark < config.lease + Duration::from_secs(1)
        {
            let rule = format!(
                "must be at least lease and a second ({:?})",
                config.lease + Duration::from_secs(1)
            );
            return Err(ConfigError::new("private_mark", mark, rule));
        }
        // Far beyond any use, and below where arithmetic on instants could fail.
        const MOST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
        for (setting, value) in [
            ("lease", config.lease),
            ("hard_timeout", config.hard_timeout),
            ("idle_timeout", config.idle_timeout),
            ("retention", config.retention),
            ("private_mark", config.pass.unwrap_or_default()),
            ("wait_limit", config.wait_limit.unwrap_or_default()),
        ] {
            if value > MOST {
                return Err(ConfigError::new(setting, value, "must be at most a year"));
            }
        }
        Ok(config)
    }
}

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    setting: &'static str,
    value: String,
    rule: String,
}

impl ConfigError {
    fn new(setting: &'static str, value: impl fmt::Debug, rule: impl Into<String>) -> Self {
        Self { setting, value: format!("{value:?}"), rule: rule.into() }
    }

    /// The name of the setting.
    #[must_use]
    pub fn setting(&self) -> &'static str {
        self.setting
    }

    /// The value that was given.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {}", self.setting, self.value, self.rule)
    }
}

impl std::error::Error for ConfigError {}
