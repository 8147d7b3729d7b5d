//! Which keys are in the air further up the call chain of this task.

use std::sync::Arc;

use tokio::task::futures::TaskLocalFuture;

use crate::key::Name;

tokio::task_local! {
    static CHAIN: Chain;
}

/// The keys of the runs that a call is made from, the nearest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain(Option<Arc<Link>>);

#[derive(Debug)]
struct Link {
    name: Arc<Name>,
    up: Chain,
}

impl Chain {
    /// That of the running task; empty outside any run.
    pub(crate) fn current() -> Self {
        CHAIN.try_with(Clone::clone).unwrap_or_default()
    }

    /// Whether the same key is there, be it of another layer that shares with this one.
    pub(crate) fn contains(&self, name: &Name) -> bool {
        let mut chain = self;
        while let Some(link) = &chain.0 {
            if link.name.digest() == name.digest() {
                return true;
            }
            chain = &link.up;
        }
        false
    }

    /// Runs a future as part of this chain with this key before it.
    pub(crate) fn scope<F: Future>(self, name: Arc<Name>, run: F) -> TaskLocalFuture<Self, F> {
        CHAIN.scope(Self(Some(Arc::new(Link { name, up: self }))), run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Digester, Key};

    #[tokio::test]
    async fn a_chain_knows_all_keys_above() {
        // Two layers of one namespace.
        let [here, there] = [(); 2].map(|()| Arc::new(Digester::new("", None)));
        let name = |key, layer| Arc::new(Name::new(Key::from(key), layer));
        let [a, b, c] = ["a", "b", "c"].map(|key| name(key, &here));
        let same = name("a", &there);
        assert!(!Chain::current().contains(&a));
        Chain::current()
            .scope(Arc::clone(&a), async {
                Chain::current()
                    .scope(Arc::clone(&b), async {
                        let chain = Chain::current();
                        assert!(chain.contains(&a) && chain.contains(&same));
                        assert!(chain.contains(&b) && !chain.contains(&c));
                    })
                    .await;
                assert!(!Chain::current().contains(&b));
            })
            .await;
    }
}
