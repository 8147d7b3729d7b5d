use std::sync::Arc;

use crate::{core::Core, key::Name, store::Session};

/// A driver's session, opened when it is first used.
pub(super) struct Line {
    core: Arc<Core>,
    name: Arc<Name>,
    session: Option<Box<dyn Session>>,
}

impl Line {
    pub(super) fn new(core: &Arc<Core>, name: &Arc<Name>) -> Self {
        Self { core: Arc::clone(core), name: Arc::clone(name), session: None }
    }

    pub(super) fn open(&mut self) -> &mut dyn Session {
        let Self { core, name, session } = self;
        &mut **session.get_or_insert_with(|| {
            let mut session = core.store.session(*name.digest());
            session.introduce(core.telemetry.badge());
            session
        })
    }
}
