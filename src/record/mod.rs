//! The stored forms of a response: whole, or a stream of pieces.
//!
//! A magic word, a version, a body in postcard, and a BLAKE3 checksum over all of
//! that, which is keyed where the fleet has a secret. Key and flight go into it: a record
//! that answers another question is as bad as a damaged one. Whoever cannot read a record
//! takes it for a miss.

use std::fmt;

use crate::id::FORMAT;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod sealer;
mod stream;
mod terms;
mod whole;
mod wire;

pub(crate) use self::{
    sealer::Sealer,
    stream::{Decoder, Encoder},
    terms::Terms,
    whole::{decode, encode},
};

const VERSION: u8 = FORMAT;
/// Of records with [`Terms`], which releases that know the plain ones alone must not read.
const TERMS_VERSION: u8 = 3;
const CHECKSUM: usize = blake3::OUT_LEN;

/// Why bytes are not a record that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadRecord {
    /// Too short, or not written by this crate.
    Foreign,
    /// Written by another release, or with a secret where here is none, or without.
    Version(u8),
    /// Damaged, or forged.
    Checksum,
    /// Whole, but with something in it that no response has.
    Malformed,
    /// The record of another key.
    OtherKey,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("not a record"),
            Self::Version(found) => {
                write!(f, "record of version {found}, which is not read here")
            }
            Self::Checksum => f.write_str("record is damaged"),
            Self::Malformed => f.write_str("record is malformed"),
            Self::OtherKey => f.write_str("record of another key"),
        }
    }
}

impl std::error::Error for BadRecord {}
