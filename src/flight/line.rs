use std::sync::Arc;

use crate::{
    key::Name,
    store::{Session, Store},
};

/// A driver's session, opened when it is first used.
pub(super) struct Line {
    store: Arc<dyn Store>,
    name: Arc<Name>,
    session: Option<Box<dyn Session>>,
}

impl Line {
    pub(super) fn new(store: &Arc<dyn Store>, name: &Arc<Name>) -> Self {
        Self { store: Arc::clone(store), name: Arc::clone(name), session: None }
    }

    pub(super) fn open(&mut self) -> &mut dyn Session {
        let Self { store, name, session } = self;
        &mut **session.get_or_insert_with(|| store.session(*name.digest()))
    }
}
