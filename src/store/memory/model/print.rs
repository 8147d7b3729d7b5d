//! Fingerprints of states. Times count from now, and names count from the first that is
//! come upon, so that what is the same but for the hour or the names is one state.

use std::{
    cell::RefCell,
    hash::{Hash, Hasher},
};

use tokio::time::Instant;

use super::{
    node::Node,
    rules::Rules,
    shop::{Shop, name_of, tag_of},
    wire::{Id, Name, byte},
    world::World,
};
use crate::store::memory::{
    kept::{Kept, Stored, Stream},
    meta::{End, Meta},
    record::Record,
};

/// Folds words by a wide multiplication: quick without optimisation too.
#[derive(Default)]
pub(super) struct Print(u64);

impl Hasher for Print {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }
    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }
    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
    fn write_u64(&mut self, word: u64) {
        let mixed = self.0.rotate_left(23) ^ word ^ 0x9e37_79b9_7f4a_7c15;
        let wide = u128::from(mixed) * 0xd6e8_feb8_6659_fd93;
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Names as a fingerprint comes upon them: states that differ in names alone are one.
struct Names {
    places: [u8; 256],
    last: u8,
    /// Else those that it has not come upon yet are all the same to it.
    takes: bool,
}

thread_local! {
    static NAMES: RefCell<Names> =
        const { RefCell::new(Names { places: [0; 256], last: 0, takes: true }) };
}

fn with_names<T>(change: impl FnOnce(&mut Names) -> T) -> T {
    NAMES.with_borrow_mut(change)
}

impl Hash for Id {
    fn hash<H: Hasher>(&self, out: &mut H) {
        out.write_u8(with_names(|names| {
            let Names { places, last, takes } = names;
            let place = &mut places[usize::from(self.0)];
            if *self == Self::NONE {
                return 0;
            }
            if *place == 0 && *takes {
                *last += 1;
                *place = *last;
            }
            if *place == 0 { u8::MAX } else { *place }
        }));
    }
}

pub(super) fn fingerprint(world: &World, rules: &Rules) -> u64 {
    with_names(|names| *names = Names { places: [0; 256], last: 0, takes: true });
    let mut printer = Print(1);
    of_shop(&world.shop, world.instant(rules), &mut printer);
    (&world.granted, world.faults, world.replica.is_some()).hash(&mut printer);
    if let Some((shop, ended)) = &world.replica {
        of_shop(shop, world.instant(rules), &mut printer);
        ended.hash(&mut printer);
    }
    for node in &world.nodes {
        of_node(node, &mut printer);
    }
    // No order among those on their way. Where names that are nowhere else tell two
    // states apart, they stay two: that costs a state, and hides none.
    with_names(|names| names.takes = false);
    let mut calls: Vec<_> = world
        .calls
        .iter()
        .map(|call| {
            let mut printer = Print(0);
            call.hash(&mut printer);
            (printer.0, call)
        })
        .collect();
    calls.sort_unstable_by_key(|(print, _)| *print);
    with_names(|names| names.takes = true);
    calls.iter().for_each(|(_, call)| call.hash(&mut printer));
    printer.0
}

fn of_node(node: &Node, out: &mut Print) {
    // How many names were used up says nothing.
    let Node { health, stalled, callers, queued, to_come, waited, cut, ids: _, driver } = node;
    (health, stalled, callers, queued, to_come, waited, cut, driver).hash(out);
}

/// Each field by name: a new one that is left out does not compile.
fn of_shop(shop: &Shop, now: Instant, out: &mut Print) {
    let left = |at: Instant| at.saturating_duration_since(now).as_millis() as u64;
    let Shop { record: Record { meta, kept }, tokens } = shop;
    (tokens, meta.is_some(), kept.result.is_some(), kept.streams.len()).hash(out);
    if let Some(meta) = meta {
        let Meta { owner, end, lease_end, lease: _, retention: _, expires, .. } = meta;
        let Meta { prev, failures, losses, quarantine, waiters, .. } = meta;
        (Name::from(*owner), end.is_some(), waiters.len()).hash(out);
        if let Some(End { status, at: _, fresh, report: _ }) = end {
            (status, fresh).hash(out);
        }
        let prev = prev.map(|(flight, status)| (Name::from(flight), status));
        (left(*lease_end), left(*expires), prev, failures, losses).hash(out);
        quarantine.map(left).hash(out);
        for waiter in waiters {
            (Id(byte(waiter.id.as_u128())), left(waiter.until)).hash(out);
        }
    }
    let Kept { result, streams } = kept;
    if let Some(Stored { flight, record, expires }) = result {
        (Name::from(*flight), name_of(record), left(*expires)).hash(out);
    }
    for Stream { flight, first, pieces, end, expires } in streams {
        (Name::from(*flight), first, pieces.len(), end.is_some(), left(*expires)).hash(out);
        pieces.iter().for_each(|piece| tag_of(piece).hash(out));
        if let Some(end) = end {
            (end.status, end.seal.as_ref().map(|seal| seal.pieces)).hash(out);
        }
    }
}
