//! What can be seen and done from outside while a layer serves.

use std::{sync::Arc, time::Duration};

use crate::{
    counts::Stats,
    drain::drain,
    fleet::Fleet,
    flights::FlightInfo,
    id::KeyDigest,
    key::{Key, KeyExtractor},
    layer::SingleFlightLayer,
    store::{StoreError, StoreErrorKind, StoreState},
    switch::Switch,
};

impl<K: Clone, C: Clone> SingleFlightLayer<K, C> {
    /// What the layer has done so far, over all its clones and services.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.parts().core().counts.snapshot()
    }

    /// The flights that are in the air in this process; in
    /// [shadow mode](crate::ConfigBuilder::shadow) those in which answers are compared.
    #[must_use]
    pub fn flights(&self) -> Vec<FlightInfo> {
        let flights = self.parts().flying().flights.list();
        flights.iter().map(|flight| flight.info()).collect()
    }

    /// The flights that are in the air in the whole fleet, as the store knows them, and what
    /// can be done about them. See [`Fleet`].
    #[must_use]
    pub fn fleet(&self) -> Fleet {
        Fleet::of(self.parts().flying())
    }

    /// The digest that stands for requests like this one in the store, in logs and in
    /// [`fleet`](Self::fleet); none for one that takes no part. For one whose body is in its
    /// key there is [`digest_with_body`](Self::digest_with_body).
    #[must_use]
    pub fn digest<Req>(&self, request: &Req) -> Option<KeyDigest>
    where
        K: KeyExtractor<Req>,
    {
        self.key(request).map(|key| self.parts().flying().digester.digest(&key))
    }

    /// As [`digest`](Self::digest), for a key that covers the body: reads the request as it
    /// is read before it joins a flight.
    pub fn digest_with_body<Req>(
        &self,
        request: Req,
    ) -> impl Future<Output = Option<KeyDigest>> + Send + use<K, C, Req>
    where
        K: KeyExtractor<Req>,
        Req: Send + 'static,
    {
        let core = Arc::clone(self.parts().flying());
        let key = self.key_with_body(request);
        async move { key.await.map(|key| core.digester.digest(&key)) }
    }

    /// What turns sharing off and on while the layer serves. See [`Switch`].
    #[must_use]
    pub fn switch(&self) -> Switch {
        self.parts().core().switch.clone()
    }

    /// Forgets what is in the air, or kept for reuse, for requests like this one:
    /// who comes after begins a new flight, in every process. Those who wait get the
    /// old run's answer in the process that runs it, and the new one's elsewhere.
    ///
    /// A request that takes no part has nothing to be forgotten; for one whose body is
    /// in its key there is [`forget_with_body`](Self::forget_with_body). Another process's
    /// callers may still join a run of their own process for a heartbeat, or get an answer that
    /// it [holds](crate::ConfigBuilder::local_results): until it hears of this, as of a push,
    /// and where its connection is gone without a word for a heartbeat at most.
    ///
    /// # Errors
    ///
    /// The store did not hear of it; in this process it is forgotten all the same.
    pub fn forget<Req>(
        &self,
        request: &Req,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<K, C, Req>
    where
        K: KeyExtractor<Req>,
    {
        let core = Arc::clone(self.parts().core());
        let key = self.key(request);
        async move {
            match key {
                Some(key) => core.forget(key).await,
                None => Ok(()),
            }
        }
    }

    /// As [`forget`](Self::forget), for a key that covers the body: reads the request
    /// as it is read before it joins a flight.
    ///
    /// # Errors
    ///
    /// As those of [`forget`](Self::forget).
    pub fn forget_with_body<Req>(
        &self,
        request: Req,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<K, C, Req>
    where
        K: KeyExtractor<Req>,
        Req: Send + 'static,
    {
        let core = Arc::clone(self.parts().core());
        let key = self.key_with_body(request);
        async move {
            match key.await {
                Some(key) => core.forget(key).await,
                None => Ok(()),
            }
        }
    }

    /// Stops what is in the air for requests like this one, in every process: its run is
    /// aborted, and all who wait for it get a failure of the kind
    /// [`Stopped`](crate::FailureKind::Stopped) (503), or a body error where they have
    /// begun with its answer. Who comes after begins a new flight; an answer that is kept
    /// for reuse stays as it is.
    ///
    /// In this process it ends at once; elsewhere callers hear of it by push, and a run is
    /// aborted within a heartbeat. As every aborted run, one that does not yield goes on
    /// until it does. A run that is shared no longer (forgotten, or larger than what is
    /// shared) is its callers' own, and is not stopped.
    ///
    /// # Errors
    ///
    /// The store did not hear of it; in this process it is stopped all the same.
    pub fn stop<Req>(
        &self,
        request: &Req,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<K, C, Req>
    where
        K: KeyExtractor<Req>,
    {
        let core = Arc::clone(self.parts().core());
        let key = self.key(request);
        async move {
            match key {
                Some(key) => core.stop(key).await,
                None => Ok(()),
            }
        }
    }

    /// As [`stop`](Self::stop), for a key that covers the body: reads the request as it is
    /// read before it joins a flight.
    ///
    /// # Errors
    ///
    /// As those of [`stop`](Self::stop).
    pub fn stop_with_body<Req>(
        &self,
        request: Req,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<K, C, Req>
    where
        K: KeyExtractor<Req>,
        Req: Send + 'static,
    {
        let core = Arc::clone(self.parts().core());
        let key = self.key_with_body(request);
        async move {
            match key.await {
                Some(key) => core.stop(key).await,
                None => Ok(()),
            }
        }
    }

    /// Leaves the fleet: takes no more leases, waits up to `grace` for the runs under
    /// way, then gives up what is left, so that other processes take over at once
    /// instead of after a lease. Returns when the store has heard of it.
    ///
    /// Meanwhile new callers follow flights of other processes, or share a run within
    /// this process. Callers whose run is given up get a 503 with `retry-after`.
    ///
    /// To be awaited beside the server's own graceful shutdown, and to its end: a server
    /// may be done before the store has heard of its last answer. Dropped in the middle
    /// of the grace, it leaves the layer without new leases.
    pub fn drain(&self, grace: Duration) -> impl Future<Output = ()> + Send + use<K, C> {
        let core = Arc::clone(self.parts().flying());
        async move { drain(&core, grace).await }
    }

    /// What the store says of itself.
    #[must_use]
    pub fn store_state(&self) -> StoreState {
        self.parts().core().store.state()
    }

    /// The store's failed operations, by kind.
    #[must_use]
    pub fn store_errors(&self) -> Vec<(StoreErrorKind, u64)> {
        self.parts().core().store.errors()
    }

    /// The key of a request that takes part.
    fn key<Req>(&self, request: &Req) -> Option<Key>
    where
        K: KeyExtractor<Req>,
    {
        self.parts().key.extract(request).ok()
    }

    /// As [`key`](Self::key), for one whose body is in its key.
    fn key_with_body<Req>(
        &self,
        request: Req,
    ) -> impl Future<Output = Option<Key>> + Send + use<K, C, Req>
    where
        K: KeyExtractor<Req>,
        Req: Send + 'static,
    {
        let key = self.parts().key.clone();
        async move {
            let key = match key.reads(&request) {
                true => key.read(request).await.1,
                false => key.extract(&request),
            };
            key.ok()
        }
    }
}
