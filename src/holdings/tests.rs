use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::*;
use crate::{
    frame::{Frame, Head},
    key::{Digester, Key},
    log::{Log, Reuse},
};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default)]
struct Word(Arc<AtomicBool>);

impl Word {
    fn comes(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Vigil for Word {
    fn stands(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

struct Table {
    holdings: Holdings,
    digester: Arc<Digester>,
}

impl Table {
    fn new(most: usize) -> Self {
        Self { holdings: Holdings::new(most), digester: Arc::new(Digester::new("", None)) }
    }

    fn name(&self, key: &str) -> Arc<Name> {
        Arc::new(Name::new(Key::from(key), &self.digester))
    }

    /// Puts an answer that ended now, and may be used again for so long.
    fn put(&self, key: &str, token: u64, bytes: usize, fresh: Duration) -> Word {
        let name = self.name(key);
        let since = self.holdings.since(&name);
        self.put_since(since, key, token, bytes, fresh)
    }

    fn put_since(
        &self,
        since: Since,
        key: &str,
        token: u64,
        bytes: usize,
        fresh: Duration,
    ) -> Word {
        let word = Word::default();
        let held = Held { age: Duration::ZERO, fresh, vigil: Box::new(word.clone()) };
        let run = run(vec![Frame::Data(vec![b'a'; bytes].into())]);
        self.holdings.put(&self.name(key), since, (token, &run), held, SECOND * 10);
        word
    }

    fn has(&self, key: &str) -> bool {
        self.holdings.get(&self.name(key)).is_some()
    }

    fn held(&self) -> (usize, usize) {
        let held = self.holdings.shelves.iter().map(|shelf| shelf.lock().unwrap().held());
        held.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }
}

fn run(frames: Vec<Frame>) -> SharedRun {
    let head = Head { status: StatusCode::OK, headers: HeaderMap::new() };
    let (head, log) = (Arc::new(head), Log::complete(frames));
    SharedRun { head, log, reuse: Reuse::Never, selection: None }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_as_old_as_it_is_and_no_older_than_it_may_be() {
    let table = Table::new(1 << 20);
    table.put("short", 1, 10, SECOND * 3);
    table.put("long", 1, 10, Duration::MAX);
    tokio::time::advance(SECOND * 2).await;
    let age = |key| table.holdings.get(&table.name(key)).map(|(_, age)| age);
    assert_eq!([age("short"), age("long")], [Some(SECOND * 2); 2]);
    tokio::time::advance(SECOND).await;
    assert_eq!([age("short"), age("long")], [None, Some(SECOND * 3)]);
    tokio::time::advance(SECOND * 7).await;
    assert_eq!(age("long"), None, "the setting bounds it");
    assert_eq!(table.held(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn word_of_a_change_is_the_end() {
    let table = Table::new(1 << 20);
    let word = table.put("a", 1, 10, SECOND);
    assert!(table.has("a"));
    word.comes();
    assert!(!table.has("a"));
    assert_eq!(table.held(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_newer_flight_replaces_an_older_one_and_never_the_other_way() {
    let table = Table::new(1 << 20);
    table.put("a", 5, 10, SECOND);
    table.put("a", 6, 20, SECOND);
    table.put("a", 4, 30, SECOND);
    let (run, _) = table.holdings.get(&table.name("a")).unwrap();
    assert_eq!(run.log.data_bytes(), 20);
    assert_eq!(table.held().0, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_on_its_way_here_does_not_come() {
    let table = Table::new(1 << 20);
    let name = table.name("a");
    let since = table.holdings.since(&name);
    table.holdings.forget(&name);
    table.put_since(since, "a", 1, 10, SECOND);
    assert!(!table.has("a"));
    table.put("a", 2, 10, SECOND);
    table.holdings.forget(&name);
    assert!(!table.has("a"));
    table.put("a", 3, 10, SECOND);
    assert!(table.has("a"));
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_bounded_in_bytes_and_in_number() {
    let most = 1 << 20;
    let table = Table::new(most);
    for n in 0..3000 {
        table.put(&n.to_string(), 1, if n % 2 == 0 { 1 } else { 5000 }, SECOND);
        assert!(table.held().1 <= most);
    }
    let (count, bytes) = table.held();
    assert!(count <= most / LEAST && bytes > most / 2, "{count} {bytes}");
    // One that is larger than its part drives out none.
    table.put("large", 1, most / SHELVES / PART, SECOND);
    assert!(!table.has("large"));
    assert_eq!(table.held(), (count, bytes));
    assert!(!table.holdings.takes((most / SHELVES) as u64));
}

#[tokio::test(start_paused = true)]
async fn who_is_asked_for_stays() {
    let table = Table::new(1 << 20);
    table.put("hot", 1, 5000, SECOND);
    for n in 0..2000 {
        assert!(table.has("hot"), "{n}");
        table.put(&n.to_string(), 1, 5000, SECOND);
    }
    assert!(!table.has("0"));
}

#[tokio::test(start_paused = true)]
async fn what_is_of_no_more_use_makes_room_first() {
    let table = Table::new(1 << 20);
    for n in 0..100 {
        table.put(&format!("old {n}"), 1, 1, SECOND);
    }
    tokio::time::advance(SECOND).await;
    for n in 0..100 {
        table.put(&format!("new {n}"), 1, 1, SECOND);
    }
    assert!(table.held().0 < 130, "{:?}", table.held());
    assert!((0..100).all(|n| table.has(&format!("new {n}"))));
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_a_copy_that_keeps_nothing_else_in_memory() {
    let buffer = Bytes::from(vec![b'a'; 10_000]);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-end", "1".parse().unwrap());
    let frames = [buffer.slice(..10), buffer.slice(50..70)].map(Frame::Data);
    let frames = frames.into_iter().chain([Frame::Trailers(trailers.clone())]).collect();
    let (copy, bytes) = run(frames).copied(1000).unwrap();
    assert!(buffer.is_unique());
    assert!((30..200).contains(&bytes), "{bytes}");
    match &copy.log.frames()[..] {
        [Frame::Data(data), Frame::Trailers(end)] => {
            assert_eq!((&data[..], end), (&[b'a'; 30][..], &trailers));
        }
        other => panic!("{other:?}"),
    }
    assert!(run(vec![Frame::Data(vec![0; 11].into())]).copied(10).is_none());
    // What has not come to its end is no answer.
    let log = Log::new(100, None);
    let open = SharedRun { log: Arc::clone(&log), ..run(Vec::new()) };
    assert!(open.copied(1000).is_none());
    log.end(crate::log::End::Broken("".into()));
    assert!(open.copied(1000).is_none());
}
