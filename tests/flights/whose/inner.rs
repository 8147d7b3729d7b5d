//! What inner answers: anything, by the seed and the run; it says itself whose it is.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header::AUTHORIZATION};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService;
use tower_singleflight::Share;

use crate::rig::*;

/// Header fields that the key does not have.
pub(crate) const OUTSIDE: [&str; 3] = ["x-a", "x-b", "user-agent"];

/// What is said of one run's answer.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// How old it may be where it is used again.
    pub(crate) fresh: Duration,
    pub(crate) status: u16,
    /// When all of it was there.
    pub(crate) over: Option<Instant>,
}

/// All runs so far.
pub(crate) struct Runs {
    seed: u64,
    pub(crate) said: Mutex<HashMap<u64, Said>>,
}

/// What a request has of a header, line by line; an empty one is another than none.
pub(crate) fn values(headers: &HeaderMap, name: &str) -> String {
    let lines = headers.get_all(name).iter().map(|value| value.to_str().unwrap());
    let lines = lines.collect::<Vec<_>>().join("|").replace(' ', "_");
    if headers.contains_key(name) { format!("<{lines}>") } else { "none".into() }
}

/// An answer that takes shape.
struct Plan {
    fields: HeaderMap,
    varies: Vec<&'static str>,
    share: Option<Share>,
    /// Whether it is for the caller alone whose request is run.
    solo: bool,
    fresh: Duration,
}

impl Plan {
    fn add(&mut self, name: &'static str, value: impl AsRef<str>) {
        self.fields.append(name, HeaderValue::from_str(value.as_ref()).unwrap());
    }

    /// One that is the same in every run, and depends on one header.
    fn steady() -> Self {
        let (fields, varies) = (HeaderMap::new(), vec!["x-a"]);
        Self { fields, varies, share: None, solo: false, fresh: Duration::MAX }
    }

    fn random(rng: &mut StdRng, asked: &HeaderMap) -> Self {
        let mut plan = Self::steady();
        plan.varies = OUTSIDE.into_iter().filter(|_| rng.random_ratio(1, 5)).collect();
        let mut star = false;
        match rng.random_range(0..24) {
            0 => {
                star = true;
                plan.add("vary", ["*", "x-a, *", "*,", "x-a\tb"].choose(rng).unwrap());
            }
            1 => {
                plan.solo = true;
                plan.add("set-cookie", asked["x-request-id"].to_str().unwrap());
            }
            2 => {
                plan.solo = true;
                plan.add("cache-control", "No-Store");
            }
            3..6 => {
                plan.solo = asked.get(AUTHORIZATION).is_none_or(HeaderValue::is_empty);
                plan.fresh = ms(9000);
                plan.add("cache-control", "max-age=9, Private");
            }
            6 => {
                plan.fresh = ms(1000);
                plan.add("cache-control", "max-age=1");
            }
            7 => {
                plan.fresh = Duration::ZERO;
                plan.add("cache-control", "s-maxage=0, max-age=9");
            }
            8 => {
                plan.fresh = Duration::ZERO;
                plan.add("cache-control", "no-cache");
            }
            _ => {}
        }
        match rng.random_range(0..10) {
            0 => (plan.share, plan.solo) = (Some(Share::Never), true),
            1 => (plan.share, plan.solo) = (Some(Share::Always), false),
            2 => {
                (plan.share, plan.solo) = (Some(Share::For(ms(2000))), false);
                plan.fresh = ms(2000);
            }
            _ => {}
        }
        plan.solo |= star;
        plan
    }

    /// Says by what it varies, in one of the ways to say so.
    fn say_varies(&mut self, rng: &mut StdRng) {
        if self.varies.is_empty() {
            return;
        }
        // Names that the key has, and that nobody has, as well.
        let more = ["accept-language", "x-nobody"].into_iter().filter(|_| rng.random());
        self.varies.extend(more);
        let mut names = self.varies.clone();
        names.reverse();
        let names = names.into_iter().map(|name| match rng.random() {
            true => name.to_ascii_uppercase(),
            false => name.to_owned(),
        });
        let names: Vec<String> = names.collect();
        match rng.random_range(0..3) {
            0 => names.iter().for_each(|name| self.add("vary", name)),
            n => self.add("vary", names.join([",", " , ,"][n - 1])),
        }
    }
}

impl Runs {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { seed, said: Mutex::default() })
    }

    pub(crate) fn inner(self: &Arc<Self>) -> InnerService {
        let this = Arc::clone(self);
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let this = Arc::clone(&this);
            async move { Ok::<_, Infallible>(this.run(&request).await) }
        }))
    }

    fn begin(&self) -> (u64, StdRng) {
        let mut said = self.said.lock().unwrap();
        let nth = said.len() as u64;
        said.insert(nth, Said { fresh: Duration::MAX, status: 200, over: None });
        (nth, StdRng::seed_from_u64(self.seed ^ (nth + 1) << 20))
    }

    fn say(&self, nth: u64, change: impl FnOnce(&mut Said)) {
        change(self.said.lock().unwrap().get_mut(&nth).unwrap());
    }

    async fn run(self: Arc<Self>, request: &Request<Body>) -> Response<Reply> {
        let (nth, mut rng) = self.begin();
        let (asked, path) = (request.headers(), request.uri().path());
        sleep(ms(rng.random_range(0..1500))).await;

        let steady = path == "/0";
        let mut plan = match steady {
            true => Plan::steady(),
            false => Plan::random(&mut rng, asked),
        };
        plan.say_varies(&mut rng);
        let caller = asked["x-request-id"].to_str().unwrap();
        plan.add("x-request-id", caller);
        plan.add("x-run", nth.to_string());
        let status = if !steady && rng.random_ratio(1, 8) { 503 } else { 200 };
        self.say(nth, |said| (said.fresh, said.status) = (plan.fresh, status));

        let varied = plan.varies.iter().map(|name| format!("{name}={}", values(asked, name)));
        let lines = if steady { 40 } else { rng.random_range(0..40) };
        let line = format!(
            "{path} {} {} {} {} {} {lines}",
            values(asked, "accept-language"),
            values(asked, "authorization"),
            if plan.solo { caller } else { "all" },
            varied.collect::<Vec<_>>().join(";"),
            // Of the steady one all runs say the same.
            if steady { 0 } else { nth },
        );
        let body = self.body(&mut rng, nth, &line, lines, steady);
        let mut response = Response::new(body);
        *response.status_mut() = status.try_into().unwrap();
        *response.headers_mut() = plan.fields;
        if let Some(share) = plan.share {
            response.extensions_mut().insert(share);
        }
        response
    }

    /// So many lines like this one: at once, or one by one and then in trailers too, if it
    /// does not break off.
    fn body(
        self: &Arc<Self>,
        rng: &mut StdRng,
        nth: u64,
        line: &str,
        lines: usize,
        steady: bool,
    ) -> Reply {
        let all = (0..lines).map(|n| format!("{n} {line}\n"));
        if rng.random_ratio(1, 3) {
            self.say(nth, |said| said.over = Some(Instant::now()));
            let whole = Full::new(Bytes::from(all.collect::<String>()));
            return whole.map_err(|never| match never {}).boxed_unsync();
        }
        let (breaks, pause) = (!steady && rng.random_ratio(1, 8), rng.random_range(0..120));
        let last = (HeaderName::from_static("x-line"), HeaderValue::from_str(line).unwrap());
        let last = match breaks {
            true => Err(io::Error::other("broke off")),
            false => Ok(Frame::trailers(HeaderMap::from_iter([last]))),
        };
        let all = all.map(|line| Ok(Frame::data(Bytes::from(line))));
        let frames: Vec<_> = all.chain([last]).collect();
        let this = Arc::clone(self);
        let frames = stream::unfold(frames.into_iter(), move |mut frames| {
            let this = Arc::clone(&this);
            async move {
                sleep(ms(pause)).await;
                let frame = frames.next()?;
                this.say(nth, |said| said.over = Some(Instant::now()));
                Some((frame, frames))
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }
}
