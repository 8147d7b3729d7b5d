//! The settings.

use std::time::Duration;

use super::{Abandon, ConfigBuilder, Crowded, Delivery, LeaseLoss, StoreDown};

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
    pub(crate) local_results: usize,
    pub(crate) pass: Option<Duration>,
    pub(crate) wait_limit: Option<Duration>,
    pub(crate) release_rate: Option<u32>,
    pub(crate) followers_per_key: Option<usize>,
    pub(crate) followers: Option<usize>,
    pub(crate) crowded: Crowded,
    pub(crate) max_share_bytes: usize,
    pub(crate) delivery: Delivery,
    pub(crate) abandon: Abandon,
    pub(crate) lease_loss: LeaseLoss,
    pub(crate) store_down: StoreDown,
    pub(crate) shadow: bool,
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
            local_results: 16 * 1024 * 1024,
            pass: None,
            wait_limit: None,
            release_rate: None,
            followers_per_key: None,
            followers: None,
            crowded: Crowded::default(),
            max_share_bytes: 8 * 1024 * 1024,
            delivery: Delivery::default(),
            abandon: Abandon::default(),
            lease_loss: LeaseLoss::default(),
            store_down: StoreDown::default(),
            shadow: false,
        }
    }
}

impl Config {
    /// Starts from the defaults.
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::new(Self::default())
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

    /// Whether answers are used again by what this process holds of them.
    pub(crate) fn holds(&self) -> bool {
        !self.reuse.is_zero() && self.local_results > 0
    }

    /// How long the key of an answer that took `took` to its head is marked private.
    pub(crate) fn private_mark(&self, took: Duration) -> Duration {
        const MOST: Duration = Duration::from_secs(5 * 60);
        self.pass
            .unwrap_or_else(|| (took * 10).clamp(Duration::from_secs(5), MOST))
            .max(self.lease + Duration::from_secs(1))
    }

    /// What flights of digests go by, in shadow mode. They hold nobody up, so that what is
    /// about waiting callers falls away; who has its answer and waits to compare it is
    /// bounded instead.
    pub(crate) fn for_shadow(&self) -> Option<Self> {
        const PER_KEY: usize = 1000;
        const IN_ALL: usize = 10_000;
        self.shadow.then(|| Self {
            reuse: Duration::ZERO,
            wait_limit: None,
            release_rate: None,
            followers_per_key: Some(self.followers_per_key.unwrap_or(PER_KEY).min(PER_KEY)),
            followers: Some(self.followers.unwrap_or(IN_ALL).min(IN_ALL)),
            crowded: Crowded::Bypass,
            // Digests alone: far more than heads have.
            max_share_bytes: 4 * 1024 * 1024,
            delivery: Delivery::Buffered,
            abandon: Abandon::Abort,
            lease_loss: LeaseLoss::Abort,
            store_down: StoreDown::Open,
            shadow: false,
            ..self.clone()
        })
    }
}
