//! Whose answer goes to whom (rows L1, L2, L5, L7, L10, C14): callers, answers and faults at
//! random. Every line of a body says for which requests it is, and every caller holds it to
//! its own.
//!
//! `WHOSE_SEED=7 WHOSE_ROUNDS=500 cargo test --test flights whose -- --nocapture` runs so
//! many seeds from there on.

mod inner;

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Request, header::AUTHORIZATION, response::Parts};
use http_body_util::BodyExt;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tokio::{
    runtime::Builder,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, ServiceExt};
use tower_singleflight::{
    Bypass, Config, Delivery, Failure, FlightRole, HttpKey, MemoryStore, NoShare, ResponseBody,
    Share, SingleFlight, SingleFlightLayer,
};

use self::inner::{OUTSIDE, Runs, values};
use crate::rig::*;

const NODES: usize = 3;
const CALLERS: usize = 120;
/// Nobody waits so long.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often each thing came about.
type Tally = Mutex<HashMap<&'static str, usize>>;

/// A caller: what it asked, and when.
struct Caller {
    seed: u64,
    asked: HeaderMap,
    path: String,
    kept_out: bool,
    came: Instant,
}

impl Caller {
    fn new(seed: u64, request: &Request<Body>) -> Self {
        Self {
            seed,
            asked: request.headers().clone(),
            path: request.uri().path().to_owned(),
            kept_out: request.extensions().get::<NoShare>().is_some(),
            came: Instant::now(),
        }
    }

    /// Asks, and holds all of the answer to what was asked; what it was.
    async fn ask(
        self,
        service: SingleFlight<InnerService, HttpKey>,
        request: Request<Body>,
        runs: Arc<Runs>,
    ) -> &'static str {
        let response = timeout(PATIENCE, service.oneshot(request)).await;
        let (parts, body) = response.expect("a caller hangs").unwrap().into_parts();
        if parts.extensions.get::<Failure>().is_some() {
            assert!(!self.kept_out);
            return "failed";
        }
        let role = *parts.extensions.get::<FlightRole>().unwrap();
        let run = parts.headers["x-run"].to_str().unwrap();
        let at = format!("seed {}, run {run}, {role:?}", self.seed);
        self.check_head(&parts, role, &runs, &at);
        match timeout(PATIENCE, self.check_body(body, &at)).await.expect("a body hangs") {
            true => role.name(),
            false => "broken",
        }
    }

    fn check_head(&self, parts: &Parts, role: FlightRole, runs: &Runs, at: &str) {
        assert_eq!(self.kept_out, role == FlightRole::Bypass(Bypass::KeptOut), "{at}");
        assert!(parts.extensions.get::<Share>().is_none(), "{at}");
        for name in ["x-request-id", "set-cookie"] {
            let value = parts.headers.get(name);
            assert!(value.is_none_or(|value| *value == self.asked["x-request-id"]), "{at}: {name}");
            assert!(!role.is_shared() || value.is_none(), "{at}: {name}");
        }
        let FlightRole::Reused { age } = role else { return };
        assert_eq!(parts.headers["age"], age.as_secs().to_string(), "{at}");
        let run = parts.headers["x-run"].to_str().unwrap().parse().unwrap();
        let said = runs.said.lock().unwrap()[&run].clone();
        assert!(said.status < 500, "{at}: {said:?}");
        let since = self.came.saturating_duration_since(said.over.expect("an end"));
        // The store hears of an end a little later.
        assert!(since <= said.fresh.saturating_add(ms(1500)), "{at}: {since:?}, {said:?}");
    }

    /// False where it broke off.
    async fn check_body(&self, body: ResponseBody<Reply>, at: &str) -> bool {
        let (mut text, mut trailers, mut whole) = (Vec::new(), None, true);
        let mut body = pin!(body);
        while let Some(frame) = body.frame().await {
            match frame.map(|frame| frame.into_data()) {
                Ok(Ok(data)) => text.extend_from_slice(&data),
                Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
                Err(_) => {
                    whole = false;
                    break;
                }
            }
        }
        let text = String::from_utf8(text).unwrap();
        let mut first: Option<&str> = None;
        for (n, line) in text.lines().enumerate() {
            let (number, line) = line.split_once(' ').unwrap();
            assert_eq!(number, n.to_string(), "{at}");
            assert_eq!(*first.get_or_insert(line), line, "{at}: of two runs");
        }
        let last = trailers.as_ref().map(|trailers| trailers["x-line"].to_str().unwrap());
        [first, last].into_iter().flatten().for_each(|line| self.fits(line, at));
        if let (true, Some(line)) = (whole, first) {
            let said = line.rsplit_once(' ').unwrap().1;
            assert_eq!(text.lines().count().to_string(), said, "{at}");
        }
        whole
    }

    fn fits(&self, line: &str, at: &str) {
        let parts: Vec<_> = line.split(' ').collect();
        let [path, language, user, whom, varied, _, _] = parts[..] else { panic!("{at}: {line}") };
        let own = self.asked["x-request-id"].to_str().unwrap();
        assert!(path == self.path && (whom == "all" || whom == own), "{at}: {own} got {line}");
        let varied = varied.split(';').filter_map(|varied| varied.split_once('='));
        let key = [("accept-language", language), ("authorization", user)];
        for (name, has) in varied.chain(key) {
            assert_eq!(values(&self.asked, name), has, "{at}: {line}");
        }
    }
}

fn request(rng: &mut StdRng, caller: usize) -> Request<Body> {
    let request = Request::get(format!("http://a.test/{}", rng.random_range(0..3)));
    let mut request = request.body(Body::default()).unwrap();
    let headers = request.headers_mut();
    let mut add = |name: &'static str, value: &'static str| {
        headers.append(name, HeaderValue::from_static(value));
    };
    for name in OUTSIDE {
        let lines: [&[_]; 8] = [&[], &[], &["1"], &["1"], &["2"], &[""], &["1", "2"], &["1, 2"]];
        lines.choose(rng).unwrap().iter().for_each(|line| add(name, line));
    }
    add("accept-language", ["en", "en", "en", "de"].choose(rng).unwrap());
    let users: [&[_]; 6] = [&[], &[], &[], &[""], &["U1"], &["U2"]];
    users.choose(rng).unwrap().iter().for_each(|user| add("authorization", user));
    headers.insert("x-request-id", caller.to_string().parse().unwrap());
    if rng.random_ratio(1, 30) {
        request.extensions_mut().insert(NoShare);
    }
    request
}

fn config(rng: &mut StdRng) -> Config {
    let config = Config::builder()
        .reuse(if rng.random() { ms(5000) } else { ms(0) })
        .private_mark(ms(4000))
        .max_share_bytes(*[1 << 20, 2500].choose(rng).unwrap())
        .delivery(match rng.random_range(0..4) {
            0 => Delivery::Buffered,
            1 => Delivery::Streaming,
            _ => Delivery::Auto,
        });
    let crowded = rng.random_ratio(1, 4);
    let config = if crowded { config.max_followers_per_key(3).max_followers(12) } else { config };
    config.build().unwrap()
}

type Fleet = Vec<(SingleFlightLayer<HttpKey>, Line)>;

/// Something happens to a node, or to what flies there.
fn disturb(rng: &mut StdRng, fleet: &Fleet, callers: &[JoinHandle<&'static str>]) {
    let (layer, line) = fleet.choose(rng).unwrap();
    let like = request(rng, 0);
    match rng.random_range(0..80) {
        0..2 => line.cut(),
        2..10 => line.heal(),
        10..12 => line.lose_beats(),
        12..20 => line.find_beats(),
        20..22 => line.slow(ms(100)),
        22..26 => line.slow(ms(0)),
        26..28 => drop(tokio::spawn(layer.forget(&like))),
        28 => drop(tokio::spawn(layer.stop(&like))),
        29 => layer.switch().turn_off(),
        30..40 => layer.switch().turn_on(),
        40..46 => callers.choose(rng).unwrap().abort(),
        _ => {}
    }
}

async fn history(seed: u64, tally: &Tally) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (runs, store, config) = (Runs::new(seed), MemoryStore::new(), config(&mut rng));
    let node = |_| {
        let key = HttpKey::new().identity(AUTHORIZATION);
        let key =
            ["x-a", "x-b"].into_iter().map(HeaderName::from_static).fold(key, HttpKey::ignore);
        let line = Line::new(&store);
        let layer = SingleFlightLayer::new(key).store(line.clone()).namespace("test");
        (layer.config(config.clone()), line)
    };
    let fleet: Fleet = (0..NODES).map(node).collect();
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let request = request(&mut rng, caller);
        let service = fleet.choose(&mut rng).unwrap().0.layer(runs.inner());
        let asking = Caller::new(seed, &request).ask(service, request, Arc::clone(&runs));
        callers.push(tokio::spawn(asking));
        sleep(ms(*[0, 0, 0, 1, 20, 200].choose(&mut rng).unwrap())).await;
        disturb(&mut rng, &fleet, &callers);
    }
    for (layer, line) in &fleet {
        line.heal();
        line.find_beats();
        layer.switch().turn_on();
    }
    for caller in callers {
        let what = match caller.await {
            Ok(what) => what,
            Err(left) if left.is_cancelled() => "left",
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        *tally.lock().unwrap().entry(what).or_default() += 1;
    }
    until(|| fleet.iter().all(|(layer, _)| layer.flights().is_empty())).await;
}

#[test]
fn every_answer_fits_the_request_that_it_is_given_to() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, rounds) = (number("WHOSE_SEED").unwrap_or(0), number("WHOSE_ROUNDS").unwrap_or(15));
    let tally = Tally::default();
    for seed in first..first + rounds {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(history(seed, &tally));
    }
    let tally = tally.into_inner().unwrap();
    println!("{tally:?}");
    for what in ["owner", "follower_local", "follower_remote", "reused", "bypass", "broken"] {
        assert!(tally.contains_key(what), "none was {what}: {tally:?}");
    }
}
