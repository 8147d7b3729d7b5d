//! Allocations of one call, beside those of its request and of inner.

use std::{convert::Infallible, time::Duration};

use allocation_counter::{AllocationInfo, measure};
use http::Method;
use tower::{Layer, Service, service_fn};
use tower_singleflight::{Bypass, Config, FlightRole, SingleFlightLayer, key_fn};

use crate::support::{Gated, Prompt, layer, look, now, request, runtime};

/// What the second of two goes costs: the first may fill what is used again.
fn second(mut go: impl FnMut()) -> AllocationInfo {
    go();
    measure(go)
}

/// What `count` allocations are allowed for.
#[track_caller]
fn within(used: AllocationInfo, count: u64) {
    assert!(used.count_total <= count, "{count} allocations are allowed: {used:?}");
    assert_eq!((used.count_current, used.bytes_current), (0, 0), "something is left: {used:?}");
}

#[test]
fn a_bypass_costs_none() {
    let key = key_fn(|_: &u64| None::<&str>);
    let inner = service_fn(|n: u64| std::future::ready(Ok::<_, Infallible>(n)));
    let mut service = SingleFlightLayer::values(key).layer(inner);
    let used = second(|| assert_eq!(now(service.call(7)).unwrap(), 7));
    assert_eq!(used, AllocationInfo::default());
}

#[test]
fn a_bypass_of_http_costs_none_but_what_is_said_of_it() {
    let measured = |mut service: tower_singleflight::SingleFlight<Prompt, _>| {
        let (mut first, mut request_two) = (Some(request(Method::PUT)), Some(request(Method::PUT)));
        let mut response = None;
        let used = second(|| {
            let request = first.take().or_else(|| request_two.take()).unwrap();
            // Kept, so that what is freed with it is not counted.
            response = Some(now(service.call(request)).unwrap());
        });
        (used.count_total, response.unwrap())
    };
    let (used, response) =
        measured(layer().flight_role(false).cache_status(false).layer(Prompt::new(9)));
    assert!(response.headers().is_empty() && response.extensions().is_empty());
    assert_eq!(used, 0);
    // The extensions, their table, and the role.
    let (used, response) = measured(layer().cache_status(false).layer(Prompt::new(9)));
    let role = FlightRole::Bypass(Bypass::Method);
    assert_eq!(response.extensions().get(), Some(&role));
    assert_eq!(used, 3);
    // A table of headers, and room for some.
    let (used, response) = measured(layer().flight_role(false).layer(Prompt::new(9)));
    assert!(response.headers().contains_key("cache-status"));
    assert_eq!(used, 2);
}

#[test]
fn a_lone_caller_of_a_value() {
    let runtime = runtime();
    let key = key_fn(|n: &u64| Some(n.to_string()));
    let inner = service_fn(|n: u64| std::future::ready(Ok::<_, Infallible>(n)));
    let mut service = SingleFlightLayer::values(key).layer(inner);
    let used = second(|| assert_eq!(runtime.block_on(async { service.call(7).await }).unwrap(), 7));
    within(used, 24);
}

#[test]
fn a_lone_caller_of_http() {
    let runtime = runtime();
    let mut service = layer().layer(Prompt::new(64));
    let alone = measure(|| drop(request(Method::GET))).count_total;
    let used = second(|| {
        drop(runtime.block_on(async { service.call(request(Method::GET)).await }).unwrap())
    });
    within(used, alone + 26);
}

/// What its key leaves out of a request is kept for an answer that says `vary`: a list, and
/// the values in it, which a request that came over a network shares with what was read.
#[test]
fn a_lone_caller_with_headers_outside_its_key() {
    let runtime = runtime();
    let key = key_fn(|request: &http::Request<_>| Some(request.uri().path().to_owned()));
    let mut service = SingleFlightLayer::new(key).layer(Prompt::new(64));
    let alone = measure(|| drop(request(Method::GET))).count_total;
    let used = second(|| {
        drop(runtime.block_on(async { service.call(request(Method::GET)).await }).unwrap())
    });
    // Its two headers are its own, and the path is made into a string before it is a key.
    within(used, alone + 26 + 1 + 2 + 1);
}

/// Who finds an answer that this process holds: a key, and what it says of the response.
#[test]
fn a_hit() {
    let runtime = runtime();
    let config = Config::builder().reuse(Duration::from_secs(10)).build().unwrap();
    let layer = layer().config(config);
    let mut service = layer.layer(Prompt::new(64));
    let alone = measure(|| drop(request(Method::GET))).count_total;
    let mut ask = || {
        drop(runtime.block_on(async { service.call(request(Method::GET)).await }).unwrap());
    };
    ask();
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    let used = second(ask);
    assert_eq!(layer.stats().reused_local, 2);
    within(used, alone + 8);
}

/// Who finds a flight in the air: the seat, the place, and what it says of the response.
#[test]
fn a_follower() {
    let runtime = runtime();
    let inner = Gated::default();
    let mut service = layer().layer(inner.clone());
    let _entered = runtime.enter();
    let mut first = Box::pin(service.call(request(Method::GET)));
    assert!(look(first.as_mut()).is_pending());
    let mut requests = [(); 9].map(|()| Some(request(Method::GET))).into_iter().flatten();
    let mut followers: Vec<_> = Vec::with_capacity(9);
    let came = measure(|| {
        followers.extend(requests.by_ref().map(|request| Box::pin(service.call(request))));
        followers.iter_mut().for_each(|follower| assert!(look(follower.as_mut()).is_pending()));
    });
    // A key and a seat; the future's own box is the test's. Places grow twice.
    assert!(came.count_total <= 9 * 3 + 2, "{came:?}");
    inner.gate.notify_one();
    drop(runtime.block_on(first).unwrap());
    let served = measure(|| {
        followers.drain(..).for_each(|follower| drop(runtime.block_on(follower).unwrap()));
    });
    // What is said of the response: a map of extensions and one of headers.
    assert!(served.count_total <= 9 * 5, "{served:?}");
}
