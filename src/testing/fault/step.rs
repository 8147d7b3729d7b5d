use std::time::Duration;

use crate::store::{Beat, StoreErrorKind};

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident,)*) => {
        /// What a store is asked for, or gives.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Step {
            $($(#[$doc])* $step,)*
        }

        impl Step {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$step),*];
        }
    };
}

steps! {
    /// [`Session::join`](crate::store::Session::join).
    Join,
    /// [`Session::fetch`](crate::store::Session::fetch).
    Fetch,
    /// [`Session::append`](crate::store::Session::append).
    Append,
    /// [`Session::read`](crate::store::Session::read).
    Read,
    /// [`Session::listen`](crate::store::Session::listen).
    Listen,
    /// [`Session::hear`](crate::store::Session::hear).
    Hear,
    /// [`Session::finish`](crate::store::Session::finish).
    Finish,
    /// [`Session::abandon`](crate::store::Session::abandon).
    Abandon,
    /// [`Session::forget`](crate::store::Session::forget).
    Forget,
    /// [`Session::stop`](crate::store::Session::stop).
    Stop,
    /// [`Session::hold`](crate::store::Session::hold).
    Hold,
    /// [`Heartbeat::beat`](crate::store::Heartbeat::beat): all operations of one beat.
    Beat,
    /// [`Beat::Renew`](crate::store::Beat::Renew), one operation of its beat. The others
    /// go with it, so that one that is held (`Lose`, `Delay`, `Freeze`) holds them all; it
    /// fails alone. So it is with the three that follow.
    Renew,
    /// [`Beat::Watch`](crate::store::Beat::Watch), one operation of its beat.
    Watch,
    /// [`Beat::Release`](crate::store::Beat::Release), one operation of its beat.
    Release,
    /// [`Beat::Leave`](crate::store::Beat::Leave), one operation of its beat.
    Leave,
    /// [`Store::inspect`](crate::Store::inspect).
    Inspect,
    /// [`Scan::next`](crate::store::Scan::next).
    Scan,
    /// A push that comes to [`Session::pushed`](crate::store::Session::pushed). It meets
    /// the fault of the moment when it is taken there, not when it was sent.
    Push,
}

impl Step {
    pub(super) fn of(beat: &Beat) -> Self {
        match beat {
            Beat::Renew { .. } => Self::Renew,
            Beat::Watch { .. } => Self::Watch,
            Beat::Release { .. } => Self::Release,
            Beat::Leave { .. } => Self::Leave,
        }
    }
}

/// What goes wrong with a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is not done, and fails at once with an error of this kind. A push is lost, and
    /// [`Pushed::Gap`](crate::store::Pushed::Gap) says so to all who listen on this line,
    /// as soon as pushes are heard on it: at once, unless what lasts keeps them away.
    Fail(StoreErrorKind),
    /// It never comes to the store, and fails as timed out when the
    /// [limit](super::FaultStore::limit) is over. A push is lost, and nobody is told.
    Lose,
    /// It is done; that it was is lost: it fails at once as disconnected. A push is lost,
    /// and nobody is told.
    LoseReply,
    /// It comes so late; or, beyond the [limit](super::FaultStore::limit), as with `Lose`.
    /// A push comes so late, and those after it wait behind it.
    Delay(Duration),
    /// It waits until the line [thaws](super::FaultStore::thaw); or, beyond the
    /// [limit](super::FaultStore::limit), as with `Lose`. A push waits without a limit.
    Freeze,
}
