//! The memory store, held to the store protocol under a paused clock.

use tower_singleflight::MemoryStore;

tower_singleflight::conformance_tests! {
    #[tokio::test(start_paused = true)]
    {
        let store = MemoryStore::new();
        move || std::future::ready(store.clone())
    }
}
