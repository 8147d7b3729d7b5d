use super::*;
use crate::{id::FlightRef, store::StoreErrorKind};

const TERMS: Terms = Terms {
    lease: Duration::from_millis(3000),
    beat: Duration::from_millis(1000),
    margin: Duration::from_millis(500),
    hard_timeout: Duration::from_secs(20),
    idle_timeout: Duration::from_secs(6),
};

struct Rig {
    keeper: Keeper,
    zero: Instant,
}

impl Rig {
    fn new() -> Self {
        Self { keeper: Keeper::new(TERMS), zero: Instant::now() }
    }

    /// Leases that are short, measured by beats: each is renewed a beat after it was asked for.
    fn with_short_leases() -> Self {
        let beat = Duration::from_millis(1400);
        Self { keeper: Keeper::new(Terms { beat, ..TERMS }), ..Self::new() }
    }

    fn at(&self, ms: u64) -> Instant {
        self.zero + Duration::from_millis(ms)
    }

    /// A lease that was asked for and granted at `ms`.
    fn hold(&mut self, ms: u64) -> (Arc<Lease>, Place) {
        self.hold_with(ms, Permit::new(Instant::now()))
    }

    fn hold_with(&mut self, ms: u64, permit: Arc<Permit>) -> (Arc<Lease>, Place) {
        let flight = FlightRef { token: 7, id: FlightId::random() };
        let lease = Arc::new(Lease::new(flight, self.at(ms), TERMS.stands()));
        let limit = self.at(ms) + TERMS.hard_timeout;
        let place = self.keeper.hold(key(), Arc::clone(&lease), permit, self.at(ms), limit);
        (lease, place)
    }

    fn sent(&mut self, ms: u64) -> Vec<Place> {
        let now = self.at(ms);
        self.keeper.poll(now).0
    }

    fn answer(&mut self, place: Place, sent: u64, now: u64, reply: Result<BeatReply, StoreError>) {
        let (sent, now) = (self.at(sent), self.at(now));
        self.keeper.answer(place, sent, now, reply);
    }

    fn next(&self) -> Option<u64> {
        self.keeper.next().map(|next| (next - self.zero).as_millis() as u64)
    }
}

fn key() -> KeyDigest {
    KeyDigest::from_bytes([1; 32])
}

fn renewed() -> Result<BeatReply, StoreError> {
    Ok(BeatReply::Renewed { waiters: 0 })
}

fn no_answer() -> Result<BeatReply, StoreError> {
    Err(StoreError::new(StoreErrorKind::TimedOut, "no answer"))
}

#[tokio::test(start_paused = true)]
async fn a_beat_is_due_a_beat_after_the_lease_was_asked_for() {
    let mut rig = Rig::new();
    let (lease, place) = rig.hold(0);
    assert_eq!(rig.next(), Some(1000));
    assert_eq!(rig.sent(999), []);
    assert_eq!(rig.sent(1000), [place]);
    assert_eq!(rig.sent(1001), [], "an answer is awaited");
    rig.answer(place, 1000, 1003, renewed());
    assert_eq!(lease.deadline(), rig.at(1000 + 2500), "from before the send");
    assert_eq!(rig.next(), Some(2000));
}

#[tokio::test(start_paused = true)]
async fn e1_a_missed_beat_is_sent_again_at_once_and_then_each_beat() {
    let mut rig = Rig::new();
    let (lease, place) = rig.hold(0);
    assert_eq!(rig.sent(1000), [place]);
    rig.answer(place, 1000, 1250, no_answer());
    assert_eq!(rig.sent(1250), [place]);
    rig.answer(place, 1250, 1500, no_answer());
    assert_eq!(rig.next(), Some(2250));
    assert_eq!(rig.sent(2250), [place]);
    rig.answer(place, 2250, 2260, renewed());
    assert_eq!(lease.end(), None);
    assert_eq!(lease.deadline(), rig.at(2250 + 2500));
    assert_eq!(rig.next(), Some(3000), "with the others again");
}

/// Leases that were asked for all over a beat.
#[tokio::test(start_paused = true)]
async fn what_goes_on_for_long_is_renewed_all_at_once() {
    let mut rig = Rig::new();
    let mut last: Vec<_> = (0..1000).step_by(20).collect();
    let leases: Vec<_> = last.iter().map(|ms| rig.hold(*ms)).collect();
    let mut batches = Vec::new();
    for ms in 0..6000 {
        let sent = rig.sent(ms);
        if !sent.is_empty() {
            batches.push((ms, sent.len()));
        }
        for place in sent {
            let nth = leases.iter().position(|lease| lease.1 == place).unwrap();
            let gap = ms - std::mem::replace(&mut last[nth], ms);
            assert!((500..=1500).contains(&gap), "{nth} at {ms}");
            rig.answer(place, ms, ms, renewed());
        }
    }
    // Also the first time: those of the first half of the beat, and then all.
    assert_eq!(batches, [(1000, 25), (2000, 50), (3000, 50), (4000, 50), (5000, 50)]);
}

#[tokio::test(start_paused = true)]
async fn a_first_beat_leaves_time_for_more_tries() {
    let mut rig = Rig::with_short_leases();
    let (_, first) = rig.hold(0);
    let (_, second) = rig.hold(1000);
    assert_eq!(rig.sent(1400), [first]);
    assert_eq!(rig.sent(2399), []);
    assert_eq!(rig.sent(2400), [second]);
}

/// Answers that fail at once, while the line is cut in the worst phase of a beat.
#[tokio::test(start_paused = true)]
async fn e1_a_lease_is_tried_once_more_before_it_is_over() {
    let mut rig = Rig::new();
    let (lease, place) = rig.hold(0);
    for ms in [1000, 1000, 2000] {
        assert_eq!(rig.sent(ms), [place], "{ms}");
        rig.answer(place, ms, ms, no_answer());
    }
    assert_eq!(rig.next(), Some(2250));
    assert_eq!(rig.sent(2250), [place]);
    rig.answer(place, 2250, 2260, renewed());
    assert_eq!((lease.end(), lease.deadline()), (None, rig.at(2250 + 2500)));
    // Not more often than that.
    assert_eq!(rig.sent(3250), [place]);
    rig.answer(place, 3250, 4700, no_answer());
    assert_eq!(rig.sent(4700), [place]);
    rig.answer(place, 4700, 4710, no_answer());
    assert_eq!(rig.next(), Some(4750), "the end");
}

#[tokio::test(start_paused = true)]
async fn e2_without_an_answer_the_lease_is_over_before_the_store_frees_it() {
    let mut rig = Rig::new();
    let (lease, place) = rig.hold(0);
    assert_eq!(rig.sent(1000), [place]);
    // Nothing comes back at all.
    assert_eq!(rig.next(), Some(2500));
    let now = rig.at(2500);
    rig.keeper.expire(now);
    assert_eq!(lease.end(), Some(LeaseEnd::Silence));
    // A late yes changes nothing.
    rig.answer(place, 1000, 2600, renewed());
    assert_eq!(lease.end(), Some(LeaseEnd::Silence));
    assert_eq!(rig.next(), None);
}

#[tokio::test(start_paused = true)]
async fn e11_one_keys_answer_touches_no_other() {
    let mut rig = Rig::new();
    let leases: Vec<_> = (0..100).map(|_| rig.hold(0)).collect();
    let places = rig.sent(1000);
    assert_eq!(places.len(), 100);
    for (nth, place) in places.iter().enumerate() {
        let reply = match nth {
            3 => Ok(BeatReply::Lost(Loss::Superseded { by: 9 })),
            4 => no_answer(),
            _ => renewed(),
        };
        rig.answer(*place, 1000, 1010, reply);
    }
    for (nth, (lease, _)) in leases.iter().enumerate() {
        assert_eq!(lease.end(), (nth == 3).then_some(LeaseEnd::Superseded));
    }
    assert_eq!(rig.sent(1010), [leases[4].1], "tried again at once");
    rig.answer(leases[4].1, 1010, 1011, renewed());
    assert_eq!(rig.sent(2010).len(), 99);
}

#[tokio::test(start_paused = true)]
async fn d1_the_hard_timeout_ends_a_lease_that_is_renewed() {
    let mut rig = Rig::new();
    let (lease, place) = rig.hold(0);
    for ms in (1000..20_000).step_by(1000) {
        assert_eq!(rig.sent(ms), [place]);
        rig.answer(place, ms, ms, renewed());
        assert_eq!(lease.end(), None, "{ms}");
    }
    let now = rig.at(20_000);
    let (places, batch) = rig.keeper.poll(now);
    assert_eq!(lease.end(), Some(LeaseEnd::HardTimeout));
    let [Beat::Release { status: EndStatus::TimedOut, token: Some(7), .. }] = batch[..] else {
        panic!("not let go: {batch:?}");
    };
    rig.keeper.dismiss(place);
    rig.answer(places[0], 20_000, 20_001, Ok(BeatReply::Gone));
    assert_eq!(rig.next(), None);
}

/// A run may be idle from its head on, not before.
#[tokio::test(start_paused = true)]
async fn a_run_that_gives_nothing_for_too_long_is_let_go() {
    let mut rig = Rig::new();
    let permit = Permit::new(Instant::now());
    let (lease, place) = rig.hold_with(0, Arc::clone(&permit));
    let mut idle_at = None;
    for ms in (1000..=14_000).step_by(1000) {
        tokio::time::sleep_until(rig.at(ms)).await;
        assert_eq!(rig.sent(ms), [place], "{ms}");
        rig.answer(place, ms, ms, renewed());
        if [7000, 9000].contains(&ms) {
            permit.beat();
            idle_at = permit.idle_at(TERMS.idle_timeout);
        }
        assert_eq!(lease.end(), None, "{ms}");
    }
    assert_eq!(idle_at, Some(rig.at(15_000)));
    assert_eq!(rig.next(), Some(15_000));
    let (_, batch) = rig.keeper.poll(rig.at(15_000));
    assert_eq!(lease.end(), Some(LeaseEnd::IdleTimeout));
    assert!(matches!(batch[..], [Beat::Release { status: EndStatus::TimedOut, .. }]), "{batch:?}");
}

#[tokio::test(start_paused = true)]
async fn what_falls_due_soon_goes_along() {
    let mut rig = Rig::with_short_leases();
    let places = [0, 50, 100, 300].map(|ms| rig.hold(ms).1);
    assert_eq!(rig.sent(1400), places[..3]);
    assert_eq!(rig.next(), Some(1700));
}

#[tokio::test(start_paused = true)]
async fn e4_nothing_is_sent_for_who_is_dismissed_and_no_late_answer_is_taken() {
    let mut rig = Rig::new();
    let (lease, place) = rig.hold(0);
    assert_eq!(rig.sent(1000), [place]);
    rig.keeper.dismiss(place);
    let (other, second) = rig.hold(1001);
    assert_eq!(
        (second.at, second.serial == place.serial),
        (place.at, false),
        "the place is reused"
    );
    rig.answer(place, 1000, 1002, Ok(BeatReply::Lost(Loss::Missing)));
    assert_eq!((lease.end(), other.end()), (None, None));
    rig.keeper.dismiss(place);
    assert_eq!(rig.sent(2001), [second]);
}

#[tokio::test(start_paused = true)]
async fn a_release_is_sent_at_once_until_it_is_heard_or_pointless() {
    let mut rig = Rig::new();
    let now = rig.at(0);
    rig.keeper.release(key(), FlightId::random(), Some(7), now);
    let [place] = rig.sent(0)[..] else { panic!("one errand") };
    rig.answer(place, 0, 250, no_answer());
    assert_eq!(rig.sent(250), [place]);
    rig.answer(place, 250, 260, Ok(BeatReply::Gone));
    assert!(!rig.keeper.has_errands());

    rig.keeper.release(key(), FlightId::random(), None, now);
    let [place] = rig.sent(300)[..] else { panic!("one errand") };
    rig.answer(place, 300, 3001, no_answer());
    assert_eq!(rig.sent(3001), [], "the lease is over by itself");
    assert!(!rig.keeper.has_errands());
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_while_the_flight_does() {
    let mut rig = Rig::new();
    let (sender, mut seen) = mpsc::unbounded_channel();
    let flight = FlightRef { token: 7, id: FlightId::random() };
    let join = Join {
        flight: FlightId::random(),
        waiter: WaiterId::random(),
        known: 7,
        lease: TERMS.lease,
        reuse: Duration::ZERO,
        retention: Duration::from_secs(30),
        look_only: true,
    };
    let now = rig.at(0);
    let place = rig.keeper.watch(key(), join, sender, now);
    assert_eq!(rig.sent(1000), [place]);
    let left = Duration::from_secs(2);
    let follow = Joined::Follow { flight, left, rank: 0, pieces: 0, trace: None };
    rig.answer(place, 1000, 1001, Ok(BeatReply::Watched(follow)));
    assert!(matches!(seen.try_recv(), Ok(Joined::Follow { .. })));
    assert_eq!(rig.sent(2000), [place]);
    rig.answer(place, 2000, 2001, Ok(BeatReply::Watched(Joined::Lapsed)));
    assert!(matches!(seen.try_recv(), Ok(Joined::Lapsed)));
    // Somebody else may take over.
    assert_eq!(rig.sent(3000), [place]);
    let done = Joined::Private { left };
    rig.answer(place, 3000, 3001, Ok(BeatReply::Watched(done)));
    assert!(matches!(seen.try_recv(), Ok(Joined::Private { .. })));
    assert_eq!(rig.next(), None);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ended_is_no_timeout_and_is_not_renewed_for_ever() {
    let mut rig = Rig::new();
    let (lease, place) = rig.hold(0);
    assert!(lease.conclude());
    for ms in (1000..20_000).step_by(1000) {
        assert_eq!(rig.sent(ms), [place]);
        rig.answer(place, ms, ms, renewed());
    }
    assert!(rig.sent(20_000).is_empty());
    assert_eq!((lease.end(), rig.next(), rig.keeper.has_errands()), (None, None, false));
}

/// A late error must not renew what was given up.
#[tokio::test(start_paused = true)]
async fn an_error_after_the_end_asks_for_nothing_more() {
    let mut rig = Rig::new();
    let (lease, place) = rig.hold(0);
    assert_eq!(rig.sent(2400), [place]);
    rig.keeper.expire(rig.at(2500));
    assert_eq!(lease.end(), Some(LeaseEnd::Silence));
    rig.answer(place, 2400, 2600, no_answer());
    assert_eq!(rig.next(), None);
}
