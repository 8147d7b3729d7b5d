//! Owners that hang up in the middle of a body (row M9).

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream};
use http::Response;
use http_body::Body;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use crate::support::{Req, Runs, get, nodes};

const MIB: usize = 1024 * 1024;
const ROUNDS: usize = 200;

/// How a body was read: so many bytes, and why there were no more, if they are not all.
type Read = Result<usize, (usize, BoxError)>;

/// Reads a body, and holds every byte of it against what was sent.
async fn follow<S, B>(service: S, request: Req, sent: Bytes) -> Read
where
    S: Service<Req, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    let mut body = service.oneshot(request).await.unwrap().into_body();
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame.into_data().unwrap(),
            Err(error) => return Err((read, error)),
        };
        let expected = sent.get(read..read + frame.len()).expect("more than was sent");
        assert!(frame == expected, "other bytes, or in another place: {read}");
        read += frame.len();
    }
    Ok(read)
}

/// Reads so many bytes, and hangs up.
async fn leave<S, B>(service: S, request: Req, at: usize)
where
    S: Service<Req, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    let mut body = service.oneshot(request).await.unwrap().into_body();
    let mut read = 0;
    while read < at {
        read += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
    }
}

#[tokio::test(start_paused = true)]
async fn m9_an_owner_that_hangs_up_at_any_byte_spoils_no_body() {
    let runs = Runs::default();
    let mut rng = StdRng::seed_from_u64(9);
    // No two places in it are alike for long, nor are the bodies that are cut out of it.
    let mut noise = vec![0; 6 * MIB];
    rng.fill(&mut noise[..]);
    let noise = Bytes::from(noise);
    let (mut whole, mut broken) = (0, 0);
    for round in 0..ROUNDS {
        let bytes = MIB + rng.random_range(0..4 * MIB);
        let from = rng.random_range(0..MIB);
        let sent = noise.slice(from..from + bytes);
        let leaves = rng.random_range(0..bytes);
        let chunk = rng.random_range(8_000..200_000);
        let inner = {
            let (runs, sent) = (runs.clone(), sent.clone());
            service_fn(move |_: Req| {
                runs.begin().finish();
                let starts = (0..bytes).step_by(chunk);
                let sent = sent.clone();
                let chunks = starts.map(move |at| sent.slice(at..(at + chunk).min(bytes)));
                let frames = stream::iter(chunks).then(|chunk| async move {
                    tokio::task::yield_now().await;
                    Ok::<_, Infallible>(http_body::Frame::data(chunk))
                });
                let body = UnsyncBoxBody::new(StreamBody::new(frames));
                async move { Ok::<_, Infallible>(Response::new(body)) }
            })
        };
        let [here, there] = nodes().map(|node| node.layer(inner.clone()));
        // Every fourth round has followers elsewhere, too.
        let other = if round % 4 == 0 { &there } else { &here };
        let path = format!("/{round}");
        let followers = [&here, &here, other, other, other];
        let followers = followers.map(|service| follow(service.clone(), get(&path), sent.clone()));
        let owner = leave(here.clone(), get(&path), leaves);
        let ((), read) = tokio::join!(owner, join_all(followers));
        for read in read {
            match read {
                Ok(read) => {
                    assert_eq!(read, bytes, "round {round}");
                    whole += 1;
                }
                Err((read, error)) => {
                    println!("round {round}: {read} of {bytes} bytes: {error}");
                    broken += 1;
                }
            }
        }
    }
    println!("m9: {whole} bodies whole, {broken} broke off");
    assert_eq!((whole + broken, runs.total()), (5 * ROUNDS, ROUNDS));
    // Nothing here is slow, or lost.
    assert_eq!(broken, 0);
}
