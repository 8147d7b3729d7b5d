//! Changing settings, and checking them against each other.

use std::time::Duration;

use super::{Abandon, Config, ConfigError, Crowded, Delivery, LeaseLoss, StoreDown};

/// Changes single settings of a [`Config`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ConfigBuilder {
    config: Config,
    heartbeat: Option<Duration>,
}

impl ConfigBuilder {
    pub(super) fn new(config: Config) -> Self {
        Self { config, heartbeat: None }
    }

    /// How long an owner that is gone without a word blocks its key. Default: 3 s.
    ///
    /// Over Redis it should be four times `RedisStoreBuilder::operation_limit` at least, which
    /// is 1 s with the default of 250 ms: a shorter one leaves no time for a second try of a
    /// renewal, so that runs are lost that need not be.
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

    /// The most bytes of answers that a process holds, so that those that are used again
    /// (see [`reuse`](Self::reuse)) cost no word to the store. An answer counts as 1 KiB at
    /// least, and one that is larger than a sixteenth of this is not held. 0: none is.
    /// Default: 16 MiB.
    ///
    /// What is held is what the store would say: an answer that has ended well, whole, and
    /// that may be used again, for as long as it may. A process that
    /// [forgets](crate::SingleFlightLayer::forget) a key holds nothing of it by then; others
    /// hear of it as they do of pushes, at once, and where the connection is gone without a
    /// word they hold nothing a heartbeat later. Stores that cannot tell of changes (Redis
    /// without RESP3, or without `CLIENT TRACKING`) are asked at each use, as without it.
    pub fn local_results(mut self, bytes: usize) -> Self {
        self.config.local_results = bytes;
        self
    }

    /// How long a key whose answer may not be shared is left alone. Must be at
    /// least the lease and a second. One caller at a time runs as a probe meanwhile: the
    /// first whose answer may be shared ends it. Default: ten times the time to the head of
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

    /// How many followers one flight may have in this process: callers that find it in
    /// the air here, until they have their answer (of a stream, all of it) or leave.
    /// Whoever comes then is no part of it: see [`crowded`](Self::crowded). Must be more
    /// than zero. Default: no bound.
    pub fn max_followers_per_key(mut self, most: usize) -> Self {
        self.config.followers_per_key = Some(most);
        self
    }

    /// As [`max_followers_per_key`](Self::max_followers_per_key), over all flights of the
    /// layer in this process. It bounds what callers that wait hold of memory, their
    /// requests above all, where a flight's first caller counts as none. Must be more than
    /// zero. Default: no bound.
    pub fn max_followers(mut self, most: usize) -> Self {
        self.config.followers = Some(most);
        self
    }

    /// What becomes of a caller that comes to a flight which has as many followers as it
    /// may. Default: [`Crowded::Bypass`].
    pub fn crowded(mut self, crowded: Crowded) -> Self {
        self.config.crowded = crowded;
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

    /// Whether the layer runs every request all the same, and only finds out whether those
    /// that would have shared have got the same: shadow mode, to prove a key before it is
    /// trusted. Default: off.
    ///
    /// Every caller's own request is run, as it comes; its response, error or panic is its
    /// own, untouched, and nothing waits for a flight. In the response's
    /// [`FlightRole`](crate::FlightRole) stands [`Bypass::Shadow`](crate::Bypass::Shadow).
    /// Callers of one key that are in the air at the same moment, in all processes in
    /// shadow mode on the store, are compared: each with the run that it would have
    /// followed. They never meet those that share, so that one process of a fleet can try
    /// a key.
    ///
    /// Compared is what followers would have been given: status, headers without those that
    /// stay with their own caller ([`PER_REQUEST`](crate::PER_REQUEST), and what
    /// [`drop_header`](crate::SingleFlightLayer::drop_header) names), the bytes of the
    /// body, trailers; of values the bytes they are written as, in which a `HashMap` has no
    /// order of its own. The headers `age`, `cache-status`, `date`, `expires` and
    /// `server-timing` are left out, for no two runs have them alike. What may not be shared
    /// is not compared, nor is a body that was dropped. What is used again
    /// ([`reuse`](Self::reuse)) is not looked at.
    ///
    /// [`Stats`](crate::Stats) counts runs that agreed, differed, may not be shared, and
    /// could not be compared. A difference is logged at `WARN` with the key's digest and
    /// the parts that differ, by name; never with a value.
    ///
    /// It costs a hash over each body as it goes by, a task for each caller, and the store
    /// what sharing would cost it, with digests in place of answers; a value is written for
    /// each caller. A key that covers the body reads it before inner is run, as ever. Of one
    /// key 1000 callers are compared at a time in a process, and 10,000 in all: fewer where
    /// [`max_followers_per_key`](Self::max_followers_per_key) and
    /// [`max_followers`](Self::max_followers) say so.
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.config.shadow = shadow;
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
        for (setting, is_zero) in [
            ("release_rate", config.release_rate == Some(0)),
            ("max_followers_per_key", config.followers_per_key == Some(0)),
            ("max_followers", config.followers == Some(0)),
            ("max_share_bytes", config.max_share_bytes == 0),
        ] {
            if is_zero {
                return Err(ConfigError::new(setting, 0, "must be more than zero"));
            }
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
