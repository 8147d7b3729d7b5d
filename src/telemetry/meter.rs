//! What is counted and measured, handed on to the `metrics` facade where the feature of
//! that name is on. Without it nothing of this costs anything.

use std::time::Duration;

use super::Ending;
use crate::{key::Bypass, store::StoreState};

#[cfg(feature = "metrics")]
use std::sync::{Arc, OnceLock};

#[cfg(feature = "metrics")]
use super::handles::Handles;
#[cfg(feature = "metrics")]
use crate::cache_status::FlightRole;

/// One layer's metrics; by default nobody's.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    #[cfg(feature = "metrics")]
    layer: Option<Arc<str>>,
    /// Made at the first event: by then there is a recorder.
    #[cfg(feature = "metrics")]
    handles: OnceLock<Box<Handles>>,
}

#[cfg(feature = "metrics")]
impl Meter {
    /// Of a layer of this name.
    pub(crate) fn new(layer: &Arc<str>) -> Self {
        Self { layer: Some(Arc::clone(layer)), handles: OnceLock::new() }
    }

    fn tell(&self, tell: impl FnOnce(&Handles)) {
        if let Some(layer) = &self.layer {
            tell(self.handles.get_or_init(|| Box::new(Handles::new(layer))));
        }
    }

    /// One more of these events.
    pub(crate) fn count(&self, event: usize) {
        self.tell(|handles| handles.count(event));
    }

    pub(crate) fn bypassed(&self, why: Bypass) {
        self.tell(|handles| handles.bypassed(why));
    }

    /// A caller got its answer after so long; none: a failure.
    pub(crate) fn waited(&self, role: Option<FlightRole>, time: Duration) {
        self.tell(|handles| handles.waited(role.map_or("failed", FlightRole::name), time));
    }

    /// A run that took so long has ended like this.
    pub(crate) fn ran(&self, ending: Ending, time: impl FnOnce() -> Duration) {
        self.tell(|handles| handles.ran(ending, time()));
    }

    /// A run that a caller did not have to have, which took so long at least.
    pub(crate) fn avoided(&self, time: Duration) {
        self.tell(|handles| handles.avoided(time));
    }

    pub(crate) fn published(&self, bytes: u64) {
        self.tell(|handles| handles.published(bytes));
    }

    /// A flight has begun here, or is over.
    pub(crate) fn in_air(&self, more: bool) {
        self.tell(|handles| handles.in_air(more));
    }

    pub(crate) fn store(&self, state: impl FnOnce() -> StoreState) {
        self.tell(|handles| handles.store(state()));
    }
}

#[cfg(not(feature = "metrics"))]
impl Meter {
    pub(crate) fn count(&self, _: usize) {}
    pub(crate) fn bypassed(&self, _: Bypass) {}
    pub(crate) fn ran(&self, _: Ending, _: impl FnOnce() -> Duration) {}
    pub(crate) fn published(&self, _: u64) {}
    pub(crate) fn in_air(&self, _: bool) {}
    pub(crate) fn store(&self, _: impl FnOnce() -> StoreState) {}
}
