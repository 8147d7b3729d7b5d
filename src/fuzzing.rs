//! All that reads what others may have written, driven by any bytes: by the fuzz
//! targets of `fuzz/`, and by the property tests below.
#![allow(missing_docs, unreachable_pub, reason = "no part of the public interface")]

pub use crate::record::fuzzing::{pieces, records};
#[cfg(feature = "redis")]
pub use crate::store::fuzzing::{keys, pushes, replies};

/// A target's name, what it drives, and where to begin.
pub type Target = (&'static str, fn(&[u8]), Vec<Vec<u8>>);

/// All targets.
#[must_use]
pub fn targets() -> Vec<Target> {
    vec![
        ("records", records, crate::record::fuzzing::record_seeds()),
        ("pieces", pieces, crate::record::fuzzing::piece_seeds()),
        #[cfg(feature = "redis")]
        ("pushes", pushes, crate::store::fuzzing::push_seeds()),
        #[cfg(feature = "redis")]
        ("replies", replies, crate::store::fuzzing::reply_seeds()),
        #[cfg(feature = "redis")]
        ("keys", keys, crate::store::fuzzing::key_seeds()),
    ]
}

/// Bytes, read as choices.
pub(crate) struct Tape<'a>(&'a [u8]);

impl<'a> Tape<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next choice, where there is one.
    pub(crate) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// A place in something that long, which is not nothing.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()])) % length
    }

    /// The next bytes, as many as there are of so many.
    pub(crate) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        first
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;

    /// A change to bytes that are good.
    #[derive(Clone, Debug)]
    enum Edit {
        Set(Index, u8),
        Cut(Index, Index),
        Add(Index, Vec<u8>),
        /// From here on it is another one.
        Splice(Index, Index, Index),
    }

    fn edits() -> impl Strategy<Value = Vec<Edit>> {
        let edit = prop_oneof![
            (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
            (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Edit::Cut(from, to)),
            (any::<Index>(), vec(any::<u8>(), 1..20)).prop_map(|(at, more)| Edit::Add(at, more)),
            any::<(Index, Index, Index)>()
                .prop_map(|(at, seed, from)| Edit::Splice(at, seed, from)),
        ];
        vec(edit, 0..5)
    }

    fn edited(seeds: &[Vec<u8>], seed: Index, edits: &[Edit]) -> Vec<u8> {
        let mut bytes = seed.get(seeds).clone();
        for edit in edits {
            let place = |at: &Index, bytes: &[u8]| at.index(bytes.len() + 1);
            match edit {
                Edit::Set(at, byte) if !bytes.is_empty() => {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
                Edit::Set(..) => {}
                Edit::Cut(from, to) => {
                    let (from, to) = (place(from, &bytes), place(to, &bytes));
                    bytes.drain(from.min(to)..from.max(to));
                }
                Edit::Add(at, more) => {
                    let at = place(at, &bytes);
                    bytes.splice(at..at, more.iter().copied());
                }
                Edit::Splice(at, seed, from) => {
                    let other = seed.get(seeds);
                    bytes.truncate(place(at, &bytes));
                    bytes.extend_from_slice(&other[place(from, other)..]);
                }
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn k8_any_bytes(bytes in vec(any::<u8>(), 0..400)) {
            for (_, drive, _) in targets() {
                drive(&bytes);
            }
        }

        #[test]
        fn k8_good_bytes_that_were_changed(seed in any::<Index>(), edits in edits()) {
            for (_, drive, seeds) in targets() {
                drive(&edited(&seeds, seed, &edits));
            }
        }
    }

    #[test]
    fn every_seed_is_taken() {
        for (name, drive, seeds) in targets() {
            assert!(seeds.len() > 1, "{name}");
            seeds.iter().for_each(|seed| drive(seed));
        }
    }
}
