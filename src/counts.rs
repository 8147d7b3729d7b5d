//! What a layer has done, in numbers.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{cache_status::FlightRole, key::Bypass, telemetry::Meter};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters that only grow.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $($name: AtomicU64,)*
            published_bytes: AtomicU64,
            alone: [AtomicU64; Bypass::KINDS],
            pub(crate) meter: Meter,
        }

        /// What is counted.
        #[allow(non_camel_case_types, reason = "named as what counts it")]
        #[derive(Clone, Copy)]
        pub(crate) enum Event {
            $($name,)*
        }

        #[cfg(feature = "metrics")]
        impl Event {
            /// All of them, each in its place.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }

        impl Counts {
            $(
                pub(crate) fn $name(&self) {
                    self.$name.fetch_add(1, Ordering::Relaxed);
                    self.meter.count(Event::$name as usize);
                }
            )*

            pub(crate) fn snapshot(&self) -> Stats {
                Stats {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    published_bytes: self.published_bytes.load(Ordering::Relaxed),
                    bypassed: Bypassed(std::array::from_fn(|why| {
                        self.alone.get(why).map_or(0, |count| count.load(Ordering::Relaxed))
                    })),
                }
            }
        }

        /// What a layer has done since it was made, over all its clones.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Bytes of answers that the store was given, for callers elsewhere or later.
            pub published_bytes: u64,
            bypassed: Bypassed,
        }
    };
}

/// Callers whose request was run alone, by the place of the reason.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Bypassed([u64; Bypass::KINDS]);

/// The reasons that there were, by name.
impl fmt::Debug for Bypassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (why, count) in Bypass::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0) {
            map.entry(&format_args!("{why}"), &count);
        }
        map.finish()
    }
}

counts! {
    /// Callers whose own request was run for a flight.
    owner,
    /// Callers answered by a run of this process that was not their own.
    follower_local,
    /// Callers answered by a run of another process.
    follower_remote,
    /// Callers answered by a flight that had ended before they came.
    reused,
    /// Of those that are [`reused`](Self::reused): callers answered by what this process
    /// [holds](crate::ConfigBuilder::local_results), without a word to the store.
    reused_local,
    /// Callers whose request was run alone: bypasses, and followers of an answer
    /// that may not be shared.
    bypass,
    /// Callers that got a failure of the layer's own.
    failed,
    /// Leases taken after another process had lost or let go its own.
    takeovers,
    /// Leases that ended before their run did.
    leases_lost,
    /// Runs that ended in an error, a panic, a broken body or a time limit.
    failed_runs,
    /// Of those, runs that passed a time limit.
    timed_out_runs,
    /// Runs whose answer may not be shared.
    private_runs,
    /// Runs whose answer was larger than what is shared.
    large_runs,
    /// Leases given up since the process was leaving.
    hand_overs,
    /// Runs of this process that were stopped for all their callers.
    stopped,
    /// Outcomes that the store refused, since the lease was another's.
    fenced,
    /// Keys found in quarantine.
    quarantined,
    /// Shared answers that could not be read, and counted as a miss.
    bad_records,
    /// Callers that found as many followers as their flight may have; they ran alone, or
    /// got a failure.
    crowded_key,
    /// Callers that found as many followers as this process may have in all; they ran
    /// alone, or got a failure.
    crowded,
    /// In shadow mode: runs that gave what another run of their key gave, and that sharing
    /// would have spared.
    shadow_agreed,
    /// In shadow mode: runs that gave something else than what their callers would have
    /// been given. Each is logged.
    shadow_differed,
    /// In shadow mode: runs that sharing would not have spared, since their own answer, or
    /// that of the run they met, may not be shared, or not with them.
    shadow_unshareable,
    /// In shadow mode: runs that nothing can be said of. They gave no whole answer (an
    /// error, a panic, a body that broke off or was dropped), or the run they met gave
    /// none, or too many met.
    shadow_uncompared,
}

#[cfg(feature = "metrics")]
impl Event {
    /// The role of a caller, where it is about one.
    pub(crate) const fn role(self) -> Option<&'static str> {
        match self {
            Self::owner
            | Self::follower_local
            | Self::follower_remote
            | Self::reused
            | Self::bypass
            | Self::failed => Some(self.name()),
            _ => None,
        }
    }
}

impl Counts {
    /// As they are to be told by this one.
    pub(crate) fn told_by(meter: Meter) -> Self {
        Self { meter, ..Self::default() }
    }

    /// The store was given so many bytes.
    pub(crate) fn published(&self, bytes: u64) {
        self.published_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.meter.published(bytes);
    }

    /// A caller that got an answer in this role.
    pub(crate) fn answered(&self, role: FlightRole) {
        match role {
            FlightRole::Owner => self.owner(),
            FlightRole::FollowerLocal => self.follower_local(),
            FlightRole::FollowerRemote => self.follower_remote(),
            FlightRole::Reused { .. } => self.reused(),
            FlightRole::Bypass(why) => self.bypassed(why),
        }
    }

    /// A caller whose request was run alone.
    pub(crate) fn bypassed(&self, why: Bypass) {
        self.bypass();
        self.meter.bypassed(why);
        if let Some(count) = self.alone.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Stats {
    /// Callers that were answered without a run of their own.
    #[must_use]
    pub fn runs_avoided(&self) -> u64 {
        self.follower_local + self.follower_remote + self.reused
    }

    /// Callers whose request was run alone for this reason; [`bypass`](Self::bypass) is
    /// the sum over all of them.
    #[must_use]
    pub fn bypassed(&self, why: Bypass) -> u64 {
        self.bypassed.0.get(why as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_printed_by_name_where_there_are_any() {
        let counts = Counts::default();
        let printed = |stats| format!("{stats:?}");
        assert!(printed(counts.snapshot()).ends_with("published_bytes: 0, bypassed: {} }"));
        counts.bypassed(Bypass::Shadow);
        counts.bypassed(Bypass::NoStore);
        counts.bypassed(Bypass::NoStore);
        let stats = counts.snapshot();
        assert!(printed(stats).ends_with("bypassed: {no_store: 2, shadow: 1} }"), "{stats:?}");
    }

    #[test]
    fn every_reason_is_in_its_place() {
        for (place, why) in Bypass::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, place, "{why}");
        }
    }
}
