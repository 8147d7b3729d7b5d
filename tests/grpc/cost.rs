//! What a call costs the store.

use bytes::Bytes;
use tonic::{Response, Status};
use tower_singleflight::RedisStore;

use crate::{
    redis::redis_server::RedisServer,
    rig::{Answers, ask, get, node, serve},
    support::{Runs, until},
    tap::{Taps, open},
};

/// A unary answer is there at once, its trailers too: it is no stream to the layer, as
/// small or large as it may be, and neither is one that failed.
#[tokio::test]
async fn a_unary_call_nobody_shares_is_two_scripts() {
    let server = RedisServer::start();
    let node = node(RedisStore::connect(&server.url()).await.unwrap());
    let answers = Answers::new(&Runs::default()).get(|_, request| async move {
        let size = String::from_utf8_lossy(request.get_ref()).parse::<usize>();
        // On the way it waits, as all do.
        tokio::task::yield_now().await;
        let size = size.map_err(|_| Status::invalid_argument("no number"))?;
        Ok(Response::new(Bytes::from(vec![7; size])))
    });
    let channel = serve(&node, &answers).await;
    let over = async || until("the flight is over", || node.flights().is_empty()).await;
    // The server knows the scripts from here on.
    get(&channel, ask("1", &[])).await.unwrap();
    over().await;
    for question in ["0", "1000", "60000", "200000", "no"] {
        server.command(&["FLUSHALL"]);
        server.command(&["CONFIG", "RESETSTAT"]);
        assert_eq!(get(&channel, ask(question, &[])).await.is_ok(), question != "no");
        over().await;
        assert_eq!(server.scripts(), 2, "{question}");
        // What nobody asks for stays here, unless it is so small that it goes along.
        let kept = server.lines(&["KEYS", "*:result:*"]).len();
        let small = question.parse().map_or(0, |size: usize| size) <= 1000;
        assert_eq!(kept, usize::from(small), "{question}");
    }
}

/// Nothing of a stream goes to the store while nobody elsewhere reads it.
#[tokio::test]
async fn an_unwatched_stream_sends_no_message_to_the_store() {
    let server = RedisServer::start();
    let (node, taps) = (node(RedisStore::connect(&server.url()).await.unwrap()), Taps::default());
    let channel = serve(&node, &taps.answers()).await;
    let text = "message".repeat(100);
    // The server knows the scripts from the first one on.
    for run in 0..2 {
        server.command(&["FLUSHALL"]);
        server.command(&["CONFIG", "RESETSTAT"]);
        let mut reader = open(&channel, ask("q", &[])).await.unwrap();
        for _ in 0..100 {
            taps.send(run, &text);
            reader.next().await.unwrap().unwrap();
        }
        taps.end(run);
        assert!(reader.rest().await.is_ok());
        until("the flight is over", || node.flights().is_empty()).await;
        // `join`, word that it listens for readers, `finish`.
        assert!(server.lines(&["KEYS", "*:stream:*"]).is_empty());
        assert!(server.lines(&["KEYS", "*:result:*"]).is_empty());
        assert_eq!(server.scripts(), if run == 0 { 6 } else { 3 });
    }
}
