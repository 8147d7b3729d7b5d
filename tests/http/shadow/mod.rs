//! Shadow mode: everybody runs, and answers are compared.

use tower_singleflight::{
    Bypass, Config, ConfigBuilder, FlightRole, HttpKey, MemoryStore, SingleFlightLayer,
};

use crate::support::{ms, until};

mod apart;
mod bodies;
mod compared;
mod untouched;

const SHADOW: Option<FlightRole> = Some(FlightRole::Bypass(Bypass::Shadow));

type Layer = SingleFlightLayer<HttpKey>;

fn config() -> ConfigBuilder {
    Config::builder().shadow(true)
}

/// Layers in shadow mode that meet on one store, as processes of a fleet do.
fn shadows<const N: usize>(key: &HttpKey) -> [Layer; N] {
    let store = MemoryStore::new();
    std::array::from_fn(|_| {
        let layer = SingleFlightLayer::new(key.clone()).store(store.clone());
        layer.namespace("tests").config(config().build().unwrap())
    })
}

/// Runs that agreed, differed, may not be shared, could not be compared.
fn counted(layer: &Layer) -> [u64; 4] {
    let stats = layer.stats();
    [stats.shadow_agreed, stats.shadow_differed, stats.shadow_unshareable, stats.shadow_uncompared]
}

/// As [`counted`], over all of them, once nothing is compared any more.
async fn counts(layers: &[&Layer]) -> [u64; 4] {
    until("all are compared", || layers.iter().all(|layer| layer.flights().is_empty())).await;
    // The last to be compared may be a step behind its flight.
    tokio::time::sleep(ms(1)).await;
    layers
        .iter()
        .map(|layer| counted(layer))
        .fold([0; 4], |all, more| std::array::from_fn(|at| all[at] + more[at]))
}
