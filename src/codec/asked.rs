use std::fmt;

use http::HeaderName;

/// What is known of a request whose response is [judged](super::Codec::judge).
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    covers: &'a dyn Fn(&HeaderName) -> bool,
    identified: bool,
    reuse: bool,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(
        covers: &'a dyn Fn(&HeaderName) -> bool,
        identified: bool,
        reuse: bool,
    ) -> Self {
        Self { covers, identified, reuse }
    }

    /// Whether this request header is part of the key.
    #[must_use]
    pub fn covers(&self, name: &HeaderName) -> bool {
        (self.covers)(name)
    }

    /// Whether the request carried a part that its key has as an identity.
    #[must_use]
    pub const fn is_identified(&self) -> bool {
        self.identified
    }

    /// Whether the layer uses responses again at all.
    #[must_use]
    pub const fn is_for_reuse(&self) -> bool {
        self.reuse
    }
}

impl fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked")
            .field("identified", &self.identified)
            .field("reuse", &self.reuse)
            .finish_non_exhaustive()
    }
}
