//! Who may have a stored answer, beyond its key.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderName;
use serde::{Deserialize, Serialize};

use super::{BadRecord, Sealer, TERMS_VERSION, VERSION, wire::list};
use crate::selection::Selection;

/// Who may have a stored answer: most are for all callers of their key, and say nothing
/// of it. The others have another version, so that a release that does not know of such
/// terms takes them for a miss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Which callers may have it; none: all of them.
    pub(crate) selection: Option<Arc<Selection>>,
}

#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    #[serde(borrow, deserialize_with = "list")]
    names: Vec<&'a str>,
    digest: [u8; 32],
}

impl Terms {
    /// The version of what has these terms.
    pub(super) fn version(&self) -> u8 {
        if self.selection.is_none() { VERSION } else { TERMS_VERSION }
    }

    /// Adds them behind what they are the terms of.
    pub(super) fn write(&self, out: Vec<u8>) -> Vec<u8> {
        let Some(selection) = &self.selection else { return out };
        let stored = Stored {
            names: selection.names().iter().map(HeaderName::as_str).collect(),
            digest: *selection.digest(),
        };
        // A vector takes everything; without bytes the record would be a miss.
        postcard::to_extend(&stored, out).unwrap_or_default()
    }

    /// Reads what is left of a record of this version: its terms, and nothing after them.
    pub(super) fn read(version: u8, rest: &[u8]) -> Result<Self, BadRecord> {
        if version == VERSION {
            return if rest.is_empty() { Ok(Self::default()) } else { Err(BadRecord::Malformed) };
        }
        let (Stored { names, digest }, rest) =
            postcard::take_from_bytes::<Stored<'_>>(rest).map_err(|_| BadRecord::Malformed)?;
        if !rest.is_empty() {
            return Err(BadRecord::Malformed);
        }
        let names = names.iter().map(|name| HeaderName::from_lowercase(name.as_bytes()));
        let names = names.collect::<Result<_, _>>().map_err(|_| BadRecord::Malformed)?;
        Ok(Self { selection: Some(Arc::new(Selection::from_parts(names, digest))) })
    }
}

/// Takes a prefix off: the version, and what follows it.
pub(super) fn prefix<'a>(
    sealer: &Sealer,
    magic: [u8; 3],
    bytes: &'a Bytes,
) -> Result<(u8, &'a [u8]), BadRecord> {
    let (found, rest) = bytes.split_first_chunk().ok_or(BadRecord::Foreign)?;
    let (&version, rest) = rest.split_first().ok_or(BadRecord::Foreign)?;
    if *found != magic {
        return Err(BadRecord::Foreign);
    }
    match sealer.read_version(version)? {
        known @ (VERSION | TERMS_VERSION) => Ok((known, rest)),
        _ => Err(BadRecord::Version(version)),
    }
}
