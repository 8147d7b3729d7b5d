use std::{future::Future, sync::Arc, time::Duration};

use crate::store::{BoxFuture, Store};

/// Where the processes of one test meet: a server of its own, or whatever the store
/// stands on.
///
/// A closure that connects is one, where all that the rules ask for is there and time is
/// the runtime's:
///
/// ```
/// use tower_singleflight::{MemoryStore, testing::conformance};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let store = MemoryStore::new();
/// conformance::run(move || std::future::ready(store.clone())).await;
/// # }
/// ```
pub trait Engine: Send + Sync {
    /// A store of a process of its own. All of one engine meet in the same data.
    fn node(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// Lets time pass, for the processes and for the data. Default: it sleeps, which costs
    /// nothing under a paused clock.
    fn elapse(&self, time: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(time)
    }

    /// Whether processes are told what happens, and need not look. Default: they are.
    fn pushes(&self) -> bool {
        true
    }

    /// Whether [`Store::inspect`] and [`Store::scan`] tell what there is. Default: they do.
    fn tells(&self) -> bool {
        true
    }

    /// Whether answers can be [held](crate::store::Session::hold). Default: they can.
    fn holds(&self) -> bool {
        true
    }
}

impl<F, Connecting, S> Engine for F
where
    F: Fn() -> Connecting + Send + Sync,
    Connecting: Future<Output = S> + Send,
    S: Store,
{
    async fn node(&self) -> Arc<dyn Store> {
        Arc::new(self().await)
    }
}

/// An engine whose type is nobody's business: the rules are compiled once, here.
pub(crate) trait Place: Send + Sync {
    fn node(&self) -> BoxFuture<'_, Arc<dyn Store>>;
    fn elapse(&self, time: Duration) -> BoxFuture<'_, ()>;
    fn pushes(&self) -> bool;
}

impl<E: Engine> Place for E {
    fn node(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(Engine::node(self))
    }

    fn elapse(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(Engine::elapse(self, time))
    }

    fn pushes(&self) -> bool {
        Engine::pushes(self)
    }
}
