//! What keeps records from being damaged unseen, and with a secret from being forged.

use std::fmt;

use blake3::{Hash, Hasher};

use super::BadRecord;
use crate::id::{FlightRef, KeyDigest};

const SECRET: &str = "tower-singleflight 2026 fleet secret for records";
/// In the version of what is keyed: it is none of those that are not.
const KEYED: u8 = 0x80;

/// What a keyed hash is of: all of one length, so that none begins like another.
const WHOLE: &[u8; 5] = b"whole";
const BEGIN: &[u8; 5] = b"begin";
const PIECE: &[u8; 5] = b"piece";
const CLOSE: &[u8; 5] = b"close";

/// Makes the checksums of records: BLAKE3, keyed where the fleet has a secret. Whoever
/// may write to the store and does not know it can then make no record that is read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sealer {
    secret: Option<[u8; 32]>,
}

impl Sealer {
    /// Of a fleet without a secret.
    #[cfg(any(test, fuzzing))]
    pub(crate) const NONE: Self = Self { secret: None };

    /// `secret` may be of any length.
    pub(crate) fn new(secret: Option<&[u8]>) -> Self {
        Self { secret: secret.map(|secret| blake3::derive_key(SECRET, secret)) }
    }

    /// A version, as it is written.
    pub(super) fn version(&self, version: u8) -> u8 {
        version | self.mark()
    }

    /// A version that was read, without what says that it is keyed.
    pub(super) fn read_version(&self, found: u8) -> Result<u8, BadRecord> {
        let fits = found & KEYED == self.mark();
        if fits { Ok(found & !KEYED) } else { Err(BadRecord::Version(found)) }
    }

    fn mark(&self) -> u8 {
        if self.secret.is_some() { KEYED } else { 0 }
    }

    /// The checksum of a whole record.
    pub(super) fn whole(&self, record: &[u8]) -> Hash {
        match self.keyed(WHOLE) {
            Some(mut hasher) => hasher.update(record).finalize(),
            None => blake3::hash(record),
        }
    }

    /// The link that comes before a stream's first piece.
    pub(super) fn begin(&self, magic: &[u8], key: &KeyDigest, flight: FlightRef) -> Hash {
        let mut link = self.keyed(BEGIN).unwrap_or_default();
        link.update(magic).update(key.as_bytes());
        link.update(&flight.token.to_le_bytes()).update(&flight.id.as_u128().to_le_bytes());
        link.finalize()
    }

    /// The link that a piece ends with, after the one before it. Links lie open in the
    /// store: they are no keys.
    pub(super) fn link(&self, before: &[u8; 32], piece: &[u8]) -> Hash {
        match self.keyed(PIECE) {
            Some(mut hasher) => hasher.update(before).update(piece).finalize(),
            None => blake3::keyed_hash(before, piece),
        }
    }

    /// What proves that a stream ends behind this link, where nobody else can say so.
    pub(super) fn close(&self, last: &[u8; 32], pieces: u64, bytes: u64) -> Hash {
        match self.keyed(CLOSE) {
            Some(mut hasher) => {
                hasher.update(last).update(&pieces.to_le_bytes()).update(&bytes.to_le_bytes());
                hasher.finalize()
            }
            None => Hash::from(*last),
        }
    }

    fn keyed(&self, of: &[u8; 5]) -> Option<Hasher> {
        let mut hasher = Hasher::new_keyed(&self.secret?);
        hasher.update(of);
        Some(hasher)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("keyed", &self.secret.is_some()).finish()
    }
}
