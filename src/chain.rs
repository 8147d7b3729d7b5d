//! Which keys are in the air further up the call chain of this task.

use std::sync::Arc;

use tokio::task::futures::TaskLocalFuture;

use crate::id::KeyDigest;

tokio::task_local! {
    static CHAIN: Chain;
}

/// The keys of the runs that a call is made from, the nearest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain(Option<Arc<Link>>);

#[derive(Debug)]
struct Link {
    key: KeyDigest,
    up: Chain,
}

impl Chain {
    /// That of the running task; empty outside any run.
    pub(crate) fn current() -> Self {
        CHAIN.try_with(Clone::clone).unwrap_or_default()
    }

    pub(crate) fn contains(&self, key: &KeyDigest) -> bool {
        let mut chain = self;
        while let Some(link) = &chain.0 {
            if link.key == *key {
                return true;
            }
            chain = &link.up;
        }
        false
    }

    /// Runs a future as part of this chain with `key` before it.
    pub(crate) fn scope<F: Future>(self, key: KeyDigest, run: F) -> TaskLocalFuture<Self, F> {
        CHAIN.scope(Self(Some(Arc::new(Link { key, up: self }))), run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_chain_knows_all_keys_above() {
        let [a, b, c] = [1, 2, 3].map(|byte| KeyDigest::from_bytes([byte; 32]));
        assert!(!Chain::current().contains(&a));
        Chain::current()
            .scope(a, async {
                Chain::current()
                    .scope(b, async {
                        let chain = Chain::current();
                        assert!(chain.contains(&a) && chain.contains(&b) && !chain.contains(&c));
                    })
                    .await;
                assert!(!Chain::current().contains(&b));
            })
            .await;
    }
}
