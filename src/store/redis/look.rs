//! Looking at what there is: one key, or all of them, page by page.
//!
//! Nothing here writes, and all of it goes beside what callers wait for.

use std::{collections::VecDeque, sync::Arc};

use bb8_redis::redis::{Cmd, Value};
use tokio::task::JoinSet;

use super::{
    error,
    handle::{Servers, Shared},
    pool::Request,
    question::{Question, Way},
    reply,
    shard::Shard,
    step,
};
use crate::{
    id::KeyDigest,
    store::{BoxFuture, KeyView, Page, Scan, StoreError, StoreErrorKind},
};

/// So many names a server looks at in one go.
const NAMES: u64 = 500;
/// So many keys are on a page.
const KEYS: usize = 64;

/// What there is of a key.
pub(super) async fn inspect(
    shared: &Shared,
    key: KeyDigest,
) -> Result<Option<KeyView>, StoreError> {
    let call = step::inspect(&shared.names, key);
    let (request, way) = (Request::script(&call), Way::Small);
    let answer = shared.ask(Question { key, request, way }).await?;
    reply::viewed(answer, key).inspect_err(|error| shared.errors.count(error.kind()))
}

/// A walk over all servers.
pub(super) struct RedisScan {
    shared: Arc<Shared>,
    /// Those that are still to be walked over, the first of them from `cursor` on; none
    /// before it has begun.
    servers: Option<VecDeque<Arc<Shard>>>,
    cursor: u64,
    /// Found, and not yet looked at.
    found: Vec<KeyDigest>,
}

impl RedisScan {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, servers: None, cursor: 0, found: Vec::new() }
    }

    async fn page(&mut self) -> Result<Option<Page>, StoreError> {
        if self.servers.is_none() {
            self.servers = Some(match &self.shared.servers {
                Servers::One(shard) => [Arc::clone(shard)].into(),
                Servers::Many(cluster) => cluster.masters().await?.into(),
            });
        }
        let mut looked = 0;
        if self.found.is_empty() {
            let Some(servers) = &mut self.servers else { return Ok(None) };
            let Some(server) = servers.front() else { return Ok(None) };
            let (cursor, found) = names(&self.shared, server, self.cursor).await?;
            // From here on nothing is waited for, so that all of it is taken in or nothing.
            (self.cursor, self.found, looked) = (cursor, found, NAMES);
            if cursor == 0 {
                servers.pop_front();
            }
        }
        let rest = self.found.len().saturating_sub(KEYS);
        let mut looks = JoinSet::new();
        for key in &self.found[rest..] {
            let (shared, key) = (Arc::clone(&self.shared), *key);
            looks.spawn(async move { inspect(&shared, key).await });
        }
        let mut keys = Vec::with_capacity(looks.len());
        while let Some(looked) = looks.join_next().await {
            // It may have gone meanwhile.
            keys.extend(looked.unwrap_or_else(|_| Err(error::timed_out()))?);
        }
        self.found.truncate(rest);
        Ok(Some(Page::new(keys, looked)))
    }
}

impl Scan for RedisScan {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>, StoreError>> {
        Box::pin(self.page())
    }
}

/// The next names of a server, and where it goes on; 0 at its end.
async fn names(
    shared: &Shared,
    server: &Arc<Shard>,
    cursor: u64,
) -> Result<(u64, Vec<KeyDigest>), StoreError> {
    let mut scan = Cmd::new();
    scan.arg("SCAN").arg(cursor).arg("MATCH").arg(shared.names.any_meta());
    scan.arg("COUNT").arg(NAMES).arg("TYPE").arg("hash");
    let (key, request) = (KeyDigest::from_bytes([0; 32]), Request::command(&scan));
    let mut question = Question { key, request, way: Way::Large };
    let limit = question.limit(&server.gate);
    // Whether this user may scan says nothing of whether the server is there for the rest.
    let answer = server.asked(&mut question, limit, Ok).await?;
    let answered = error::answered(answer).map_err(|error| match error.kind() {
        StoreErrorKind::Denied => StoreError::new(
            StoreErrorKind::Denied,
            format!("{}: the user lacks the right to SCAN", server.connector),
        ),
        _ => error,
    });
    let Value::Array(parts) = answered? else { return Err(error::bad_reply()) };
    let [Value::BulkString(cursor), Value::Array(names)] = &parts[..] else {
        return Err(error::bad_reply());
    };
    let cursor = std::str::from_utf8(cursor).ok().and_then(|cursor| cursor.parse().ok());
    let keys = names.iter().filter_map(|name| match name {
        Value::BulkString(name) => shared.names.key_of_meta(name),
        _ => None,
    });
    Ok((cursor.ok_or_else(error::bad_reply)?, keys.collect()))
}
