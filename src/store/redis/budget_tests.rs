use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{id::FlightId, store::Loss};

const KEEP: Duration = Duration::from_secs(30);
/// What the server may take on top.
const MORE: Duration = Duration::from_millis(1);

fn budget(most: u64) -> Arc<Budget> {
    Arc::new(Budget::new(most, Duration::from_millis(250)))
}

fn key(n: u8) -> KeyDigest {
    KeyDigest::from_bytes([n; 32])
}

fn flight(token: u64) -> FlightRef {
    FlightRef { token, id: FlightId::from_u128(1) }
}

fn bytes(length: usize) -> Bytes {
    vec![0; length].into()
}

fn append(token: u64, first: u64, sizes: &[usize]) -> Append {
    let pieces = sizes.iter().map(|size| bytes(*size)).collect();
    let flight = flight(token);
    Append { flight, first, pieces, kept_from: 0, keep: KEEP, inline: false, to_come: 0 }
}

fn accepted(budget: &Arc<Budget>, n: u8, append: &Append) {
    let next = append.first + append.pieces.len() as u64;
    let hold = budget.pieces(key(n), append).unwrap();
    hold.appended(key(n), append, Appended::Accepted { next });
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
}

#[tokio::test(start_paused = true)]
async fn records_count_until_they_expire_or_are_replaced() {
    let budget = budget(100);
    budget.record(&bytes(60), KEEP).unwrap().kept(key(1));
    let refused = budget.record(&bytes(41), KEEP).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Limit);
    budget.record(&bytes(40), KEEP).unwrap().give_back();
    pass(KEEP / 2).await;
    // Both are there while the new one is written.
    assert!(budget.record(&bytes(50), KEEP).is_err());
    budget.record(&bytes(40), KEEP).unwrap().kept(key(1));
    assert_eq!(budget.bytes(), 40);
    pass(KEEP / 2).await;
    assert_eq!(budget.bytes(), 40, "it began anew");
    pass(KEEP / 2).await;
    assert_eq!(budget.bytes(), 40, "the server may have it for a part of a millisecond more");
    pass(MORE).await;
    assert_eq!(budget.bytes(), 0);
    assert!(budget.held().due.is_empty() && budget.held().records.is_empty());
}

/// As the server is told it, and no longer than it can be told.
#[tokio::test(start_paused = true)]
async fn times_are_in_whole_milliseconds() {
    let budget = budget(100);
    budget.record(&bytes(60), Duration::from_micros(1001)).unwrap().kept(key(1));
    pass(Duration::from_micros(2999)).await;
    assert_eq!(budget.bytes(), 60);
    pass(Duration::from_micros(1)).await;
    assert_eq!(budget.bytes(), 0);
    budget.record(&bytes(60), Duration::MAX).unwrap().kept(key(1));
    drop(budget.record(&bytes(40), Duration::MAX).unwrap());
    assert_eq!(budget.bytes(), 100);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_written_counts() {
    let budget = budget(100);
    drop(budget.record(&bytes(60), KEEP).unwrap());
    budget.record(&bytes(30), KEEP).unwrap().failed(&error::timed_out());
    budget.record(&bytes(10), KEEP).unwrap().failed(&error::bad_reply());
    assert_eq!(budget.bytes(), 90);
    pass(KEEP).await;
    assert_eq!(budget.bytes(), 90, "it may have come late");
    pass(Duration::from_secs(2) + MORE).await;
    assert_eq!(budget.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn pieces_count_as_long_as_their_stream_stays() {
    let budget = budget(100);
    accepted(&budget, 1, &append(1, 0, &[10, 20]));
    // Again is not more, and what the store has lost is less.
    accepted(&budget, 1, &append(1, 0, &[10, 20]));
    accepted(&budget, 1, &append(1, 1, &[20, 30]));
    assert_eq!(budget.bytes(), 60);
    let more = append(1, 3, &[5]);
    let hold = budget.pieces(key(1), &more).unwrap();
    hold.appended(key(1), &more, Appended::Gap { next: 1 });
    assert_eq!(budget.bytes(), 10);
    let hold = budget.pieces(key(1), &more).unwrap();
    hold.appended(key(1), &more, Appended::Lost(Loss::Missing));
    accepted(&budget, 1, &append(1, 1, &[20, 30, 5]));
    assert_eq!(budget.bytes(), 65);
    assert!(budget.pieces(key(1), &append(1, 4, &[36])).is_err());
    // What slides out of the window makes room.
    accepted(&budget, 1, &Append { kept_from: 3, ..append(1, 4, &[35]) });
    assert_eq!(budget.bytes(), 40);
    // A lease that is renewed keeps it, the end as long as is said.
    pass(KEEP - Duration::from_secs(1)).await;
    budget.renewed(key(1), Duration::from_secs(3));
    pass(Duration::from_secs(5)).await;
    assert_eq!(budget.bytes(), 40);
    budget.ended(key(1), flight(1), KEEP);
    pass(KEEP).await;
    assert_eq!(budget.bytes(), 40);
    pass(MORE).await;
    assert_eq!(budget.bytes(), 0);
}

/// One that has no room to its end is not begun, and none that was begun is cut by others.
#[tokio::test(start_paused = true)]
async fn j5_room_is_kept_for_what_is_to_come() {
    let budget = budget(100);
    let begins = |token, to_come| Append { to_come, ..append(token, 0, &[10]) };
    accepted(&budget, 1, &begins(1, 50));
    assert_eq!(budget.bytes(), 60);
    assert!(budget.pieces(key(2), &begins(1, 31)).is_err());
    accepted(&budget, 2, &begins(1, 30));
    assert_eq!(budget.bytes(), 100);
    accepted(&budget, 1, &Append { to_come: 30, ..append(1, 1, &[20]) });
    assert_eq!(budget.bytes(), 100);
    // More than was thought, or not known any more.
    assert!(budget.pieces(key(1), &Append { to_come: 11, ..append(1, 2, &[20]) }).is_err());
    accepted(&budget, 1, &append(1, 2, &[25]));
    assert_eq!(budget.bytes(), 95);
    // Written or not: what was to come was not.
    drop(budget.pieces(key(1), &Append { to_come: 2, ..append(1, 3, &[3]) }).unwrap());
    assert_eq!(budget.bytes(), 98);
    budget.pieces(key(1), &append(1, 3, &[2])).unwrap().give_back();
    budget.ended(key(2), flight(1), KEEP);
    assert_eq!(budget.bytes(), 68);
    pass(KEEP + Duration::from_secs(2) + MORE).await;
    assert_eq!(budget.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn streams_before_the_last_that_ended_are_gone_with_a_grant() {
    let budget = budget(100);
    accepted(&budget, 1, &append(1, 0, &[10]));
    budget.ended(key(1), flight(1), KEEP);
    budget.granted(key(1));
    accepted(&budget, 1, &append(2, 0, &[20]));
    budget.granted(key(1));
    assert_eq!(budget.bytes(), 30, "the second one was lost, not ended");
    accepted(&budget, 1, &append(3, 0, &[30]));
    budget.ended(key(1), flight(3), KEEP);
    budget.granted(key(1));
    assert_eq!(budget.bytes(), 30);
}

/// What happens to one of four keys.
#[derive(Clone, Debug)]
enum Deed {
    Record { key: u8, size: u16, keep: u8, dropped: bool },
    Pieces { key: u8, sizes: Vec<u8> },
    Wait { seconds: u8 },
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        (0..4_u8, 0..500_u16, 1..60_u8, prop::bool::weighted(0.2))
            .prop_map(|(key, size, keep, dropped)| Deed::Record { key, size, keep, dropped }),
        (0..4_u8, vec(any::<u8>(), 1..5)).prop_map(|(key, sizes)| Deed::Pieces { key, sizes }),
        (0..40_u8).prop_map(|seconds| Deed::Wait { seconds }),
    ];
    vec(deed, 0..60)
}

proptest! {
    /// As by a list of all that was ever written, and never over the bound.
    #[test]
    fn the_sum_is_what_has_not_expired(deeds in deeds(), most in 500_u64..3000) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(async {
            let budget = budget(most);
            let mut records: BTreeMap<u8, (u64, Instant)> = BTreeMap::new();
            let mut streams: BTreeMap<u8, (u64, u64, Instant)> = BTreeMap::new();
            let mut loose: Vec<(u64, Instant)> = Vec::new();
            for deed in deeds {
                let now = Instant::now();
                records.retain(|_, (_, until)| *until > now);
                streams.retain(|_, (_, _, until)| *until > now);
                loose.retain(|(_, until)| *until > now);
                let sum = records.values().map(|(bytes, _)| bytes).sum::<u64>()
                    + streams.values().map(|(bytes, _, _)| bytes).sum::<u64>()
                    + loose.iter().map(|(bytes, _)| bytes).sum::<u64>();
                assert_eq!(budget.bytes(), sum);
                assert!(sum <= most);
                match deed {
                    Deed::Record { key: n, size, keep, dropped } => {
                        let keep = Duration::from_secs(keep.into());
                        let held = budget.record(&bytes(size.into()), keep);
                        assert_eq!(held.is_ok(), sum + u64::from(size) <= most);
                        match held {
                            Ok(hold) if dropped => {
                                drop(hold);
                                let late = Duration::from_secs(2);
                                loose.push((size.into(), now + keep + MORE + late));
                            }
                            Ok(hold) => {
                                hold.kept(key(n));
                                records.insert(n, (size.into(), now + keep + MORE));
                            }
                            Err(_) => {}
                        }
                    }
                    Deed::Pieces { key: n, sizes } => {
                        let (held, first, _) = streams.get(&n).copied().unwrap_or((0, 0, now));
                        let sizes: Vec<usize> = sizes.into_iter().map(usize::from).collect();
                        let more = sizes.iter().sum::<usize>() as u64;
                        let append = append(1, first, &sizes);
                        if sum + more <= most {
                            accepted(&budget, n, &append);
                            let next = first + sizes.len() as u64;
                            streams.insert(n, (held + more, next, now + KEEP + MORE));
                        } else {
                            assert!(budget.pieces(key(n), &append).is_err());
                        }
                    }
                    Deed::Wait { seconds } => pass(Duration::from_secs(seconds.into())).await,
                }
            }
            pass(Duration::from_secs(100)).await;
            assert_eq!(budget.bytes(), 0);
            let held = budget.held();
            assert!(held.due.is_empty() && held.records.is_empty() && held.streams.is_empty());
        });
    }
}
