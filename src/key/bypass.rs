//! Why a request takes no part.

use std::fmt;

/// Why a request is not shared: it runs alone, without a word to the store.
///
/// See the [module docs](crate::key).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Bypass {
    /// The method is not one that is shared.
    Method,
    /// The request has a body that its key does not cover.
    Body,
    /// The body is larger than the limit for keys over bodies.
    BodyTooLarge,
    /// The body broke off while it was read for its key.
    BodyFailed,
    /// The request asks for another protocol on its connection.
    Upgrade,
    /// The request asks for a part of the response.
    Range,
    /// The request has a condition, such as `if-none-match`.
    Conditional,
    /// The request says `cache-control: no-store`.
    NoStore,
    /// The request does not say, or not clearly, whom it is for.
    NoAuthority,
    /// The tenant function gave no tenant.
    NoTenant,
    /// A predicate of the user said so.
    Predicate,
    /// The key function gave no key.
    NoKey,
    /// A request with this key is in the air further up the same call chain.
    Recursion,
    /// It waited for a flight whose response may not be shared, or whose key is
    /// known for such responses.
    Unshared,
    /// It was not made inside a Tokio runtime.
    NoRuntime,
    /// [`NoShare`](crate::NoShare) is in its extensions.
    KeptOut,
    /// Sharing is switched off: [`Switch`](crate::Switch).
    SwitchedOff,
    /// The flight of its key has as many followers as one may.
    CrowdedKey,
    /// The flights of this process have as many followers as they may in all.
    Crowded,
    /// The layer is in shadow mode:
    /// [`ConfigBuilder::shadow`](crate::ConfigBuilder::shadow).
    Shadow,
}

impl Bypass {
    /// How many reasons there are.
    pub(crate) const KINDS: usize = Self::Shadow as usize + 1;

    /// All of them, each in its place.
    pub(crate) const ALL: [Self; Self::KINDS] = [
        Self::Method,
        Self::Body,
        Self::BodyTooLarge,
        Self::BodyFailed,
        Self::Upgrade,
        Self::Range,
        Self::Conditional,
        Self::NoStore,
        Self::NoAuthority,
        Self::NoTenant,
        Self::Predicate,
        Self::NoKey,
        Self::Recursion,
        Self::Unshared,
        Self::NoRuntime,
        Self::KeptOut,
        Self::SwitchedOff,
        Self::CrowdedKey,
        Self::Crowded,
        Self::Shadow,
    ];

    /// A short name that never changes, fit for a label.
    ///
    /// ```
    /// assert_eq!(tower_singleflight::Bypass::NoStore.name(), "no_store");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Body => "body",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyFailed => "body_failed",
            Self::Upgrade => "upgrade",
            Self::Range => "range",
            Self::Conditional => "conditional",
            Self::NoStore => "no_store",
            Self::NoAuthority => "no_authority",
            Self::NoTenant => "no_tenant",
            Self::Predicate => "predicate",
            Self::NoKey => "no_key",
            Self::Recursion => "recursion",
            Self::Unshared => "unshared",
            Self::NoRuntime => "no_runtime",
            Self::KeptOut => "kept_out",
            Self::SwitchedOff => "switched_off",
            Self::CrowdedKey => "crowded_key",
            Self::Crowded => "crowded",
            Self::Shadow => "shadow",
        }
    }
}

impl fmt::Display for Bypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
