//! What crosses processes, over a Redis and real connections on HTTP/1.1 and HTTP/2:
//! two axum servers, each with a layer of its own (rows K6, L1, L7, L10, C14).

use std::net::SocketAddr;

use axum::{Extension, Router, body::Body, extract::Request, routing::get as route_get};
use futures_util::{StreamExt, future::join_all, stream};
use http::{HeaderName, Response, header::AUTHORIZATION};
use http_body_util::StreamBody;
use tokio::task::JoinHandle;
use tower_singleflight::{Config, FlightPhase, HttpKey, RedisStore, Share, SingleFlightLayer};

use crate::{
    machine::redis_server::RedisServer,
    net,
    support::{Answer, Gate, Req, Runs, callers, get, ms, until, with},
};

const PLAN: HeaderName = HeaderName::from_static("x-plan");
const ALONE: HeaderName = HeaderName::from_static("x-alone");

struct Fleet {
    redis: RedisServer,
    nodes: Vec<SingleFlightLayer<HttpKey>>,
    servers: Vec<SocketAddr>,
    runs: Runs,
    gate: Gate,
}

impl Fleet {
    /// Two servers whose handler waits for the gate and then gives what `answer` makes of
    /// a request; the layer's beats are too far apart to be seen.
    async fn start<F>(key: HttpKey, config: Config, answer: F) -> Self
    where
        F: Fn(usize, &Request) -> Response<Body> + Clone + Send + Sync + 'static,
    {
        let redis = RedisServer::start();
        let (runs, gate) = (Runs::default(), Gate::new());
        let (mut nodes, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let store = RedisStore::connect(&redis.url()).await.unwrap();
            let node = SingleFlightLayer::new(key.clone().authority("fleet"));
            let node = node.store(store).namespace("tests").config(config.clone());
            let (runs, gate, answer) = (runs.clone(), gate.clone(), answer.clone());
            let handler = move |request: Request| {
                let (run, gate, answer) = (runs.begin(), gate.clone(), answer.clone());
                async move {
                    gate.passed().await;
                    let response = answer(run.number, &request);
                    run.finish();
                    response
                }
            };
            let app = Router::new().fallback(handler).layer(node.clone());
            servers.push(net::axum(app).await);
            nodes.push(node);
        }
        Self { redis, nodes, servers, runs, gate }
    }

    fn asked(&self) -> usize {
        self.nodes.iter().map(callers).sum()
    }

    /// Asks a server in the background, over a connection of its own.
    async fn ask(&self, server: usize, http2: bool, request: Req) -> JoinHandle<Answer> {
        let server = self.servers[server];
        let mut client = if http2 { net::http2(server).await } else { net::http1(server).await };
        tokio::spawn(async move { client.ask(request).await })
    }

    /// Waits until so many callers are in flights, of which one is run.
    async fn until_waiting(&self, count: usize) {
        until("all callers", || self.asked() == count).await;
    }

    /// How many processes listen to the one channel that there is.
    fn listeners(&self) -> usize {
        match &self.redis.lines(&["PUBSUB", "CHANNELS"])[..] {
            [channel] => self.redis.lines(&["PUBSUB", "NUMSUB", channel])[1][1..].parse().unwrap(),
            _ => 0,
        }
    }

    /// How often any process has stopped to listen.
    fn deafened(&self) -> u64 {
        let stats = self.redis.lines(&["INFO", "commandstats"]);
        let calls = stats.iter().find_map(|line| line.strip_prefix("cmdstat_unsubscribe:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    }

    /// Commands that the server ran on anybody's data so far.
    fn commands(&self) -> u64 {
        let stats = self.redis.lines(&["INFO", "commandstats"]);
        let ours = ["info", "quit", "ping", "pubsub", "hello", "client"];
        let calls = stats.iter().filter_map(|line| line.strip_prefix("cmdstat_"));
        calls
            .filter(|line| !ours.iter().any(|name| line.starts_with(name)))
            .filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok())
            .sum()
    }
}

fn quiet() -> Config {
    Config::builder().lease(ms(60_000)).retention(ms(120_000)).build().unwrap()
}

fn whole(text: String) -> Response<Body> {
    Response::new(Body::from(text))
}

/// As a stream of unknown length.
fn pieces(text: &str) -> Response<Body> {
    let frames: Vec<_> = text.split_inclusive(' ').map(|part| part.to_owned()).collect();
    let frames = stream::iter(frames).map(|part| {
        Ok::<_, std::convert::Infallible>(http_body::Frame::data(bytes::Bytes::from(part)))
    });
    Response::new(Body::new(StreamBody::new(frames)))
}

#[tokio::test]
async fn l7_a_vary_beyond_the_key_is_compared_with_each_callers_own_request() {
    for streamed in [false, true] {
        let fleet = Fleet::start(HttpKey::new().ignore(PLAN), quiet(), move |run, request| {
            let plan = request.headers().get(PLAN).map_or("none", |plan| match plan.as_bytes() {
                b"plan-of-the-secret-kind" => "one",
                _ => "another",
            });
            let text = format!("for {plan} in run {run}");
            let mut response = if streamed { pieces(&text) } else { whole(text) };
            response.headers_mut().insert("vary", "X-Plan".parse().unwrap());
            response
        });
        let fleet = fleet.await;
        let plan = |plan| with(get("/"), "x-plan", plan);
        let (a, b) = ("plan-of-the-secret-kind", "another-plan");
        let owner = fleet.ask(0, false, plan(a)).await;
        until("the run", || fleet.runs.running() == 1).await;
        let mut others = Vec::new();
        for (server, http2, name) in
            [(0, false, a), (0, true, b), (1, true, a), (1, false, a), (1, false, b), (1, true, b)]
        {
            others.push((name, fleet.ask(server, http2, plan(name)).await));
        }
        fleet.until_waiting(7).await;
        fleet.gate.open();
        let first = owner.await.unwrap();
        assert_eq!(first.text(), "for one in run 0", "{streamed}");
        for (name, asked) in others {
            let answer = asked.await.unwrap();
            let status = answer.headers["cache-status"].to_str().unwrap();
            if name == a {
                assert_eq!(answer.text(), "for one in run 0", "{streamed}");
                assert_eq!(status, "tower-singleflight; fwd=miss; collapsed");
            } else {
                assert!(answer.text().starts_with("for another"), "{}", answer.text());
                assert_eq!(status, "tower-singleflight; fwd=bypass");
            }
        }
        assert_eq!(fleet.runs.total(), 4, "{streamed}");
        // What the answer was selected by is nowhere in clear.
        for name in fleet.redis.lines(&["KEYS", "*"]) {
            let found = fleet.redis.command(&["DUMP", &name]);
            assert!(!found.contains("secret-kind") && !name.contains("secret"), "{name}");
        }
    }
}

#[tokio::test]
async fn l7_what_both_lack_is_equal_and_a_star_never_is() {
    for (vary, total) in [("x-plan", 1), ("*", 4)] {
        let fleet = Fleet::start(HttpKey::new().ignore(PLAN), quiet(), move |run, _| {
            let mut response = whole(format!("run {run}"));
            response.headers_mut().insert("vary", vary.parse().unwrap());
            response
        });
        let fleet = fleet.await;
        let mut asked = Vec::new();
        for (server, http2) in [(0, false), (0, true), (1, false), (1, true)] {
            asked.push(fleet.ask(server, http2, get("/")).await);
        }
        fleet.until_waiting(4).await;
        fleet.gate.open();
        join_all(asked).await;
        assert_eq!(fleet.runs.total(), total, "{vary}");
    }
}

#[tokio::test]
async fn l10_chosen_requests_take_no_part() {
    let key = HttpKey::new()
        .ignore(ALONE)
        .bypass_if(|request| request.headers().get(ALONE).is_some_and(|value| value == "1"))
        .bypass_if(|request| request.uri().path() == "/me");
    let fleet = Fleet::start(key, quiet(), |run, _| whole(format!("run {run}"))).await;
    let alone = || with(get("/"), "x-alone", "1");
    for shared in [false, true] {
        let (runs, mut waiting) = (fleet.runs.total(), Vec::new());
        if shared {
            let deafened = fleet.deafened();
            // A flight of the very key that they would have.
            for (server, http2) in [(0, false), (1, true), (1, false)] {
                waiting.push(fleet.ask(server, http2, get("/")).await);
            }
            fleet.until_waiting(3).await;
            until("the run", || fleet.runs.running() == 1).await;
            until("both join", || {
                let flights = fleet.nodes.iter().flat_map(SingleFlightLayer::flights);
                let joining = tower_singleflight::FlightPhase::Joining;
                flights.filter(|flight| flight.phase != joining).count() == 2
            })
            .await;
            // The owner has heard of who follows, and listens no more.
            let follows = || fleet.deafened() > deafened && fleet.listeners() == 1;
            until("the follower listens alone", follows).await;
        }
        let before = fleet.commands();
        let mut asked = Vec::new();
        for n in 0..10 {
            for request in [alone(), get("/me")] {
                asked.push(fleet.ask(n % 2, n % 4 < 2, request).await);
            }
        }
        let running = usize::from(shared);
        until("all run alone", || fleet.runs.running() == 20 + running).await;
        assert_eq!(fleet.asked(), waiting.len());
        assert_eq!(fleet.commands(), before, "they send no command");
        fleet.gate.open();
        let mut bodies = std::collections::HashSet::new();
        for answer in join_all(asked).await {
            let answer = answer.unwrap();
            assert_eq!(answer.headers["cache-status"], "tower-singleflight; fwd=bypass");
            bodies.insert(answer.body);
        }
        assert_eq!((bodies.len(), fleet.runs.total()), (20, runs + 20 + running));
        let answers = join_all(waiting).await;
        let shared: std::collections::HashSet<_> =
            answers.into_iter().map(|answer| answer.unwrap().body).collect();
        assert_eq!(shared.len(), running);
        fleet.gate.close();
    }
}

#[tokio::test]
async fn c14_who_waited_has_the_answer_however_old_it_says_it_is() {
    for (name, value) in
        [("cache-control", "max-age=0"), ("expires", "Thu, 01 Jan 1970 00:00:00 GMT")]
    {
        let config = Config::builder().reuse(ms(20_000)).build().unwrap();
        let fleet = Fleet::start(HttpKey::new(), config, move |run, _| {
            let mut response = whole(format!("run {run}"));
            response.headers_mut().insert(name, value.parse().unwrap());
            response
        });
        let fleet = fleet.await;
        let mut asked = Vec::new();
        for n in 0..20 {
            asked.push(fleet.ask(n % 2, n % 4 < 2, get("/")).await);
        }
        fleet.until_waiting(20).await;
        fleet.gate.open();
        for answer in join_all(asked).await {
            assert_eq!(answer.unwrap().text(), "run 0", "{name}");
        }
        assert_eq!(fleet.runs.total(), 1, "{name}");
        // Whoever comes later has another.
        let later = fleet.ask(1, true, get("/")).await.await.unwrap();
        assert_eq!(later.text(), "run 1");
    }
}

/// How fresh an answer is goes along with it.
#[tokio::test]
async fn an_answer_is_used_again_elsewhere_while_it_is_fresh() {
    for (max_age, again) in [("max-age=1", false), ("max-age=100", true)] {
        let config = Config::builder().reuse(ms(20_000)).build().unwrap();
        let fleet = Fleet::start(HttpKey::new(), config, move |run, _| {
            let mut response = whole(format!("run {run}"));
            response.headers_mut().insert("cache-control", max_age.parse().unwrap());
            response
        });
        let fleet = fleet.await;
        fleet.gate.open();
        let first = fleet.ask(0, false, get("/")).await.await.unwrap();
        assert_eq!(first.text(), "run 0");
        until("the store knows", || fleet.nodes[0].flights().is_empty()).await;
        let soon = fleet.ask(1, true, get("/")).await.await.unwrap();
        assert_eq!(
            (soon.text(), soon.headers["cache-status"].to_str().unwrap()),
            ("run 0", "tower-singleflight; hit")
        );
        // Its age is told by the clock of the store, which nobody here can turn on.
        tokio::time::sleep(ms(1100)).await;
        let later = fleet.ask(1, true, get("/")).await.await.unwrap();
        assert_eq!(later.text() == "run 0", again, "{max_age}: {}", later.text());
    }
}

#[tokio::test]
async fn l1_what_is_private_stays_with_its_user_across_a_fleet() {
    let key = HttpKey::new().identity(AUTHORIZATION);
    let fleet = Fleet::start(key, quiet(), |run, request| {
        let user = request.headers().get(AUTHORIZATION).map_or("", |user| user.to_str().unwrap());
        let mut response = whole(format!("{user} in run {run}"));
        response.headers_mut().insert("cache-control", "private".parse().unwrap());
        response
    });
    let fleet = fleet.await;
    let mut asked = Vec::new();
    for (server, http2) in [(0, false), (0, true), (1, false), (1, true)] {
        for user in ["A", "B", ""] {
            let request = match user {
                "" => get("/"),
                user => with(get("/"), "authorization", user),
            };
            asked.push((user, fleet.ask(server, http2, request).await));
        }
    }
    fleet.until_waiting(12).await;
    fleet.gate.open();
    let mut bodies = std::collections::HashSet::new();
    for (user, answer) in asked {
        let answer = answer.await.unwrap();
        assert!(answer.text().starts_with(&format!("{user} in")), "{}", answer.text());
        bodies.insert(answer.body);
    }
    assert_eq!((fleet.runs.total(), bodies.len()), (1 + 1 + 4, 6));
}

/// A handler's own word, as axum has it.
#[tokio::test]
async fn inner_says_never_across_a_fleet() {
    let redis = RedisServer::start();
    let runs = Runs::default();
    let mut servers = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::connect(&redis.url()).await.unwrap();
        let node = SingleFlightLayer::new(HttpKey::new().authority("fleet"));
        let runs = runs.clone();
        let handler = move || {
            let run = runs.begin();
            let number = run.number;
            run.finish();
            async move { (Extension(Share::Never), format!("number {number}")) }
        };
        let app = Router::new().route("/", route_get(handler));
        servers.push(net::axum(app.layer(node.store(store).namespace("tests"))).await);
    }
    let mut bodies = std::collections::HashSet::new();
    for server in servers {
        let (mut one, mut two) = (net::http1(server).await, net::http2(server).await);
        let (one, two) = tokio::join!(one.ask(get("/")), two.ask(get("/")));
        bodies.extend([one.body, two.body]);
    }
    assert_eq!((bodies.len(), runs.total()), (4, 4));
}

/// In shadow mode everybody runs, and answers of both servers are compared by digests
/// in Redis.
#[tokio::test]
async fn shadow_mode_compares_what_servers_answer() {
    let config = Config::builder().shadow(true).lease(ms(60_000)).retention(ms(120_000));
    let answer = |_, request: &Request| {
        let plan = request.headers().get(PLAN).map_or("none", |plan| plan.to_str().unwrap());
        pieces(&format!("an answer for {plan}"))
    };
    let key = HttpKey::new().ignore(PLAN);
    let fleet = Fleet::start(key, config.build().unwrap(), answer).await;
    let mut asked = vec![("a", fleet.ask(0, false, with(get("/"), "x-plan", "a")).await)];
    let phase = |node: &SingleFlightLayer<HttpKey>| node.flights().first().map(|it| it.phase);
    until("its flight", || phase(&fleet.nodes[0]) == Some(FlightPhase::Owning)).await;
    for (server, http2, plan) in [(0, true, "b"), (1, false, "a"), (1, true, "b"), (1, true, "a")] {
        asked.push((plan, fleet.ask(server, http2, with(get("/"), "x-plan", plan)).await));
    }
    fleet.until_waiting(5).await;
    until("their flight", || phase(&fleet.nodes[1]) == Some(FlightPhase::Following)).await;
    assert_eq!(fleet.runs.running(), 5);
    fleet.gate.open();
    for (plan, answer) in asked {
        let answer = answer.await.unwrap();
        assert_eq!(answer.text(), format!("an answer for {plan}"));
        assert_eq!(answer.headers["cache-status"], "tower-singleflight; fwd=bypass");
    }
    let counts = |node: &SingleFlightLayer<HttpKey>| {
        let stats = node.stats();
        (stats.shadow_agreed, stats.shadow_differed)
    };
    until("all are compared", || {
        (counts(&fleet.nodes[0]), counts(&fleet.nodes[1])) == ((0, 1), (2, 1))
    })
    .await;
}
