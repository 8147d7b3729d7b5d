//! Nodes that send questions in circles or to nowhere, or take back what they said.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tower_singleflight::{
    RedisStore, Store,
    store::{Joined, Pushed, StoreErrorKind},
};

use super::{
    rig::{Node, ask, random_key},
    support::{
        redis_server::{free_port, silent_server},
        resp::command,
    },
};

/// A node whose map is this: one place has all slots.
async fn pointer(place: u16) -> u16 {
    let map = format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{place}\r\n");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, map.clone(), "-ERR no".to_owned()));
        }
    });
    port
}

/// A node that claims all slots, and answers to everything with this; `HERE` is itself,
/// `GONE` is nobody.
async fn liar(answer: &'static str, slots: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let map = format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n");
    let map = slots.map_or(map, str::to_owned);
    let answer = answer.replace("HERE", &format!("127.0.0.1:{port}"));
    let answer = answer.replace("GONE", &format!("127.0.0.1:{}", free_port()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, map.clone(), answer.clone()));
        }
    });
    format!("redis-cluster://127.0.0.1:{port}")
}

async fn serve(stream: TcpStream, map: String, answer: String) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    while let Some(command) = command(&mut read).await {
        let named = |kind| named(kind, &command[1]);
        let answer = match command[0].as_str() {
            "HELLO" => "%1\r\n+server\r\n+redis\r\n".to_owned(),
            "CLUSTER" => map.clone(),
            "SSUBSCRIBE" => named("ssubscribe"),
            "SUNSUBSCRIBE" => named("sunsubscribe"),
            "UNSUBSCRIBE" => named("unsubscribe"),
            "ASKING" => "+OK\r\n".to_owned(),
            _ => format!("{answer}\r\n"),
        };
        if write.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// What a server says of a subscription.
fn named(kind: &str, name: &str) -> String {
    format!(">3\r\n+{kind}\r\n${}\r\n{name}\r\n:1\r\n", name.len())
}

#[tokio::test]
async fn g7_what_nodes_answer_is_an_error_in_time() {
    let cases = [
        ("-MOVED 1 HERE", StoreErrorKind::Cluster),
        ("-ASK 1 HERE", StoreErrorKind::Cluster),
        ("-TRYAGAIN later", StoreErrorKind::Cluster),
        ("-READONLY You can't write", StoreErrorKind::Cluster),
        ("-CLUSTERDOWN The cluster is down", StoreErrorKind::Cluster),
        ("-CROSSSLOT Keys", StoreErrorKind::Cluster),
        ("-MOVED 1 GONE", StoreErrorKind::Connect),
        ("-ASK 1 GONE", StoreErrorKind::Connect),
        ("-MOVED nowhere", StoreErrorKind::Reply),
        ("-MOVED 1 host:port", StoreErrorKind::Reply),
        ("-ASK", StoreErrorKind::Reply),
        ("+OK", StoreErrorKind::Reply),
        (":1", StoreErrorKind::Reply),
    ];
    for (answer, kind) in cases {
        let url = liar(answer, None).await;
        let store = RedisStore::builder(&url).connect_lazy().unwrap();
        let began = Instant::now();
        let joined = Node::new(&store, random_key()).session.join(ask()).await;
        let error = joined.expect_err(answer);
        assert_eq!(error.kind(), kind, "{answer}: {error}");
        assert!(began.elapsed() < Duration::from_millis(500), "{answer}: {:?}", began.elapsed());
        assert!(store.errors().iter().any(|(counted, _)| *counted == kind), "{answer}");
    }
}

#[tokio::test]
async fn what_is_no_map_is_an_error() {
    for map in [
        "*0\r\n",
        ":1\r\n",
        "$-1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*0\r\n",
        "-ERR unknown command 'CLUSTER'\r\n",
    ] {
        let url = liar("+OK", Some(map)).await;
        let error = RedisStore::connect(&url).await.expect_err(map);
        let kinds = [StoreErrorKind::Reply, StoreErrorKind::Cluster, StoreErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{map}: {error}");
        let store = RedisStore::builder(&url).connect_lazy().unwrap();
        assert!(Node::new(&store, random_key()).session.join(ask()).await.is_err());
    }
}

/// Each map drops what the other one names; that it is silent is known all the same.
#[tokio::test]
async fn g3_maps_that_disagree_do_not_make_a_silent_master_new() {
    let silent = [silent_server(), silent_server()];
    let ports = silent.each_ref().map(|(listener, _)| listener.local_addr().unwrap().port());
    let nodes = [pointer(ports[0]).await, pointer(ports[1]).await];
    let url = format!("redis-cluster://127.0.0.1:{},127.0.0.1:{}", nodes[0], nodes[1]);
    let limit = Duration::from_millis(60);
    let store = RedisStore::builder(&url).operation_limit(limit).connect_lazy().unwrap();
    // Both are found to be silent: three tries each.
    let (began, mut waited, mut refused) = (Instant::now(), 0, 0);
    while began.elapsed() < Duration::from_millis(2500) {
        let joined = Node::new(&store, random_key()).session.join(ask()).await;
        if joined.unwrap_err().kind() == StoreErrorKind::Open {
            refused += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        } else {
            waited += 1;
        }
    }
    println!("g3: {waited} waited, {refused} were refused");
    // A try may be under way when a map changes.
    assert!(waited <= 8, "{waited} waited, {refused} were refused");
    assert!(refused > 100, "{waited} waited, {refused} were refused");
}

/// A node whose flight is followed, and which ends each subscription in one breath with
/// the answer; how often it was asked for one together with the flight.
async fn fickle(subscriptions: Arc<AtomicU32>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let map = format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n");
    let joined = format!("*6\r\n$6\r\nFOLLOW\r\n:7\r\n$32\r\n{:032x}\r\n:1000\r\n:0\r\n:0\r\n", 7);
    let state = format!("*5\r\n$1\r\n7\r\n$32\r\n{:032x}\r\n$7\r\nrunning\r\n$-1\r\n$-1\r\n", 7);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (map, joined, state, subscriptions) =
                (map.clone(), joined.clone(), state.clone(), Arc::clone(&subscriptions));
            tokio::spawn(async move {
                let (read, mut write) = stream.into_split();
                let (mut read, mut held, mut channel) = (BufReader::new(read), None, None);
                while let Some(command) = command(&mut read).await {
                    let answer = match command[0].as_str() {
                        "HELLO" => "%1\r\n+server\r\n+redis\r\n".to_owned(),
                        "CLUSTER" => map.clone(),
                        "SSUBSCRIBE" => {
                            channel = Some(command[1].clone());
                            held = Some(named("ssubscribe", &command[1]));
                            continue;
                        }
                        "EVALSHA" => joined.clone(),
                        "HMGET" => match &mut held {
                            Some(held) => {
                                subscriptions.fetch_add(1, SeqCst);
                                *held += &state;
                                continue;
                            }
                            None => state.clone(),
                        },
                        "SUNSUBSCRIBE" => {
                            channel = None;
                            held.take().unwrap_or_default() + &named("sunsubscribe", &command[1])
                        }
                        // The last of what is sent in one go.
                        "UNSUBSCRIBE" => {
                            let gone = channel.take().map(|name| named("sunsubscribe", &name));
                            let said = held.take().unwrap_or_default();
                            said + &named("unsubscribe", &command[1]) + &gone.unwrap_or_default()
                        }
                        _ => "+OK\r\n".to_owned(),
                    };
                    if write.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("redis-cluster://127.0.0.1:{port}")
}

/// A subscription may be over before its session has seen that it was confirmed.
#[tokio::test]
async fn g2_a_subscription_that_is_over_at_once_is_asked_for_again() {
    let subscriptions = Arc::default();
    let store = RedisStore::builder(fickle(Arc::clone(&subscriptions)).await);
    let mut node = Node::new(&store.connect_lazy().unwrap(), random_key());
    for asked in 1..=3 {
        let joined = node.session.join(ask()).await.unwrap();
        assert!(matches!(joined, Joined::Follow { .. }), "{joined:?}");
        assert_eq!(subscriptions.load(SeqCst), asked);
        let told = tokio::time::timeout(Duration::from_secs(5), node.session.pushed());
        assert!(matches!(told.await, Ok(Pushed::Gap)), "it is told to look");
    }
}
