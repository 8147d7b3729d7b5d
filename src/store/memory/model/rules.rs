//! How large a model is, and what may happen in it.

use tokio::time::Instant;

use crate::store::EndStatus;

/// Bounds of one search. Times are in ticks.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) nodes: u8,
    /// Callers that come to each node, in all.
    pub(super) callers: u8,
    pub(super) lease: u8,
    pub(super) margin: u8,
    /// Pieces of an answer; 0: it is not streamed.
    pub(super) pieces: u8,
    /// A run ends after so many ticks.
    pub(super) longest: u8,
    /// A pause is over after so many ticks.
    pub(super) pause: u8,
    /// Faults, in all.
    pub(super) faults: u8,
    pub(super) kinds: &'static [Fault],
    /// How runs may end.
    pub(super) ends: &'static [EndStatus],
    /// Runs end only when nobody wants them, and callers go away.
    pub(super) endless: bool,
    /// The server that loses its data gives its tokens out again.
    pub(super) forgets_tokens: bool,
    /// A rule that is broken on purpose.
    pub(super) mutant: Option<Mutant>,
    pub(super) base: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A request or its answer is lost, or late: its sender gives up.
    Silence,
    /// A request arrives a second time, later.
    Twice,
    LostPush,
    /// A process stands still and does not know it.
    Pause,
    Crash,
    /// A process does not reach the store, and the store not the process.
    Cut,
    /// The store loses all data.
    Loss,
    /// The store goes over to a replica that has not heard the newest.
    Failover,
    /// The key is forgotten by its users.
    Forget,
    /// A caller goes away.
    Depart,
}

/// A rule of the protocol that a model is made to break: each must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// `finish` does not compare token and flight.
    FinishByAnyone,
    /// `finish` is accepted again after the end.
    FinishAgain,
    /// `append` does not compare token and flight.
    AppendByAnyone,
    /// `join` grants while a lease stands.
    GrantTooEarly,
    /// `join` grants a flight that has ended.
    GrantAgain,
    /// `abandon` does not ask who waits.
    AbandonWanted,
    /// `watch` does not renew the waiter's mark.
    DeadMark,
    /// `release` lets whichever flight go.
    ReleaseAnyone,
    /// A new owner's token is not above those before.
    SameToken,
    /// Pushes of older flights are taken for those of the followed one.
    OlderPush,
    /// `join` does not say what its sender knows.
    Ignorant,
    /// An owner counts its lease from the answer, and without a margin.
    NoMargin,
    /// An owner that lost its lease releases it before it drops its run.
    NoDeadline,
    /// A follower that has missed a piece takes the next one.
    Hole,
    /// A body ends well although pieces of it are missing.
    ShortBody,
    /// A follower believes in pushes alone.
    NeverLooks,
    /// A follower whose owner is gone does not ask to own.
    NeverTakesOver,
    /// A driver waits again under a name that it has taken back.
    SameWaiter,
    /// What came too late is begun with.
    LateGrant,
}

impl Rules {
    pub(super) fn small() -> Self {
        Self {
            nodes: 2,
            callers: 1,
            lease: 3,
            margin: 1,
            pieces: 0,
            longest: 2,
            pause: 4,
            faults: 0,
            kinds: &[],
            ends: &[EndStatus::Done],
            endless: false,
            forgets_tokens: false,
            mutant: None,
            base: Instant::now(),
        }
    }

    /// Nothing but good runs, and nobody leaves: each flight is one run.
    pub(super) fn is_fair(&self) -> bool {
        self.faults == 0 && !self.endless && self.ends == [EndStatus::Done]
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// How long an owner believes in its lease, from when it asked for it.
    pub(super) fn stands(&self) -> u8 {
        if self.is(Mutant::NoMargin) { self.lease } else { self.lease - self.margin }
    }

    pub(super) fn retention(&self) -> u8 {
        2 * self.lease
    }
}
