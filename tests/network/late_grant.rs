//! A lease that is granted to one who has given up waiting: nobody runs under it.

use std::{sync::Arc, time::Duration};

use tower_singleflight::{
    FlightId, FlightPhase, RedisStore, Store, WaiterId,
    store::{Beat, BeatReply, EndStatus, Join, Joined},
};

use crate::{
    LEASE, RETENTION,
    inner::{Inner, Shape},
    node::Node,
    proxy::{Link, Step},
    world::{Servers, until},
};

/// Longer than a lease stands when its owner stops, and than a busy machine needs.
const LIMIT: Duration = Duration::from_secs(5);

/// The server is silent for an owner until its lease is over there and another is
/// granted; then it hears the owner's look, which has waited. Nobody renews that other
/// lease, and whoever asked for it lets it go when it comes to that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_grant_costs_no_run() {
    let (servers, inner) = (Servers::start(), Arc::<Inner>::default());
    let (port, scripts) = (servers.used.port(), &servers.scripts);
    let node = Node::patient(port, scripts, "late-grant", &inner, LIMIT).await;
    let call = node.call(Shape::Small.path());
    until("it runs", || inner.calls() == 1).await;
    let key = node.flight().expect("a flight").key;
    let looks = node.proxy.passed(Step::Look);
    node.proxy.set(Link::Silent);

    let other = RedisStore::builder(servers.used.url()).prefix("late-grant").connect().await;
    let other = other.unwrap();
    let mut session = other.session(key);
    let (flight, waiter) = (FlightId::random(), WaiterId::random());
    let token = loop {
        let join = Join {
            flight,
            waiter,
            known: 0,
            lease: LEASE,
            reuse: Duration::ZERO,
            retention: RETENTION,
            look_only: false,
        };
        match session.join(join).await.unwrap() {
            Joined::Own { token } => break token,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    node.proxy.set(Link::Open);
    until("it has seen the other lease", || node.proxy.passed(Step::Look) > looks).await;
    assert_ne!(node.flight().expect("a flight").phase, FlightPhase::Local);

    let status = EndStatus::Abandoned;
    let release = [Beat::Release { key, flight, token: Some(token), status }];
    let replies = other.heartbeat().beat(&release).await;
    assert!(matches!(replies[..], [Ok(BeatReply::Gone)]), "{replies:?}");
    until("it goes on alone", || {
        node.flight().is_some_and(|flight| flight.phase == FlightPhase::Local)
    })
    .await;
    inner.stage(2);
    let answer = call.answer().await;
    assert_eq!((answer.status, answer.run(Shape::Small), answer.broken), (200, 1, false));
    assert_eq!((inner.calls(), node.stats().leases_lost), (1, 1));
}
