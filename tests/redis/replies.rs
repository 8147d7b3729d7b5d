//! A server that answers every command of ours with one error: requests are
//! served all the same, and the error is counted by its kind.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::support::resp::command;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{
    HttpKey, RedisStore, SingleFlightLayer,
    store::{StoreErrorKind, StoreState},
};

type Body = Full<bytes::Bytes>;

/// A server that knows how to be connected to, and nothing else.
struct Grumpy {
    url: String,
    task: AbortHandle,
}

impl Grumpy {
    async fn start(error: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, error));
            }
        });
        Self { url, task: task.abort_handle() }
    }
}

impl Drop for Grumpy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, error: &'static str) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    while let Some(command) = command(&mut read).await {
        let answer = match command[0].as_str() {
            "HELLO" => "%1\r\n+server\r\n+redis\r\n".to_owned(),
            "CLIENT" | "SELECT" => "+OK\r\n".to_owned(),
            "SUBSCRIBE" => {
                format!(">3\r\n+subscribe\r\n${}\r\n{}\r\n:1\r\n", command[1].len(), command[1])
            }
            "UNSUBSCRIBE" => {
                format!(">3\r\n+unsubscribe\r\n${}\r\n{}\r\n:0\r\n", command[1].len(), command[1])
            }
            _ => format!("-{error} as asked\r\n"),
        };
        if write.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn g7_every_error_of_a_server_is_served_and_counted() {
    for (code, kind) in [
        ("LOADING", StoreErrorKind::Loading),
        ("BUSY", StoreErrorKind::Busy),
        ("MISCONF", StoreErrorKind::Misconfigured),
        ("OOM", StoreErrorKind::OutOfMemory),
        ("READONLY", StoreErrorKind::ReadOnly),
        ("NOAUTH", StoreErrorKind::Denied),
        ("NOPERM", StoreErrorKind::Denied),
        ("NOREPLICAS", StoreErrorKind::NoReplicas),
        ("TRYAGAIN", StoreErrorKind::Cluster),
        ("CLUSTERDOWN", StoreErrorKind::Cluster),
        ("MASTERDOWN", StoreErrorKind::Cluster),
        ("ERR", StoreErrorKind::Server),
    ] {
        let server = Grumpy::start(code).await;
        let store = RedisStore::builder(&server.url).connect_lazy().unwrap();
        let layer = SingleFlightLayer::new(HttpKey::new()).store(store).namespace("g7");
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let service = layer.layer(service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, SeqCst);
            async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok::<_, Infallible>(Response::new(Body::default()))
            }
        }));
        for round in 0..5 {
            let began = Instant::now();
            let ask = || {
                let request = Request::get(format!("http://a.test/{round}")).body(Body::default());
                service.clone().oneshot(request.unwrap())
            };
            for answer in join_all((0..10).map(|_| ask())).await {
                assert_eq!(answer.unwrap().status(), 200, "{code}");
            }
            // The run's time, one operation's limit, and what a slow machine adds.
            assert!(began.elapsed() < Duration::from_secs(1), "{code}: {:?}", began.elapsed());
        }
        assert_eq!(calls.load(SeqCst), 5, "{code}: shared within the process");
        let errors = layer.store_errors();
        assert!(errors.iter().any(|(counted, _)| *counted == kind), "{code}: {errors:?}");
        assert_eq!(layer.store_state(), StoreState::Degraded, "{code}");
    }
}
