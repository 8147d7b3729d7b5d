//! Who may have a stored answer, beyond its key.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderName;
use serde::{Deserialize, Serialize};

use super::{BadRecord, TERMS_VERSION, VERSION, wire::list};
use crate::selection::Selection;

/// Who may have a stored answer: most are for all callers of their key, and say nothing
/// of it. The others have another version, so that a release that does not know of such
/// terms takes them for a miss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// How old it may be when it is used again; none: as old as the reader's setting says.
    pub(crate) fresh: Option<Duration>,
    /// Which callers may have it; none: all of them.
    pub(crate) selection: Option<Arc<Selection>>,
}

#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    fresh_ms: Option<u64>,
    #[serde(borrow)]
    selected: Option<Selected<'a>>,
}

#[derive(Serialize, Deserialize)]
struct Selected<'a> {
    #[serde(borrow, deserialize_with = "list")]
    names: Vec<&'a str>,
    digest: [u8; 32],
}

impl Terms {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The version of what has these terms.
    pub(super) fn version(&self) -> u8 {
        if self.is_nothing() { VERSION } else { TERMS_VERSION }
    }

    /// Adds them behind what they are the terms of.
    pub(super) fn write(&self, out: Vec<u8>) -> Vec<u8> {
        if self.is_nothing() {
            return out;
        }
        let millis = |fresh: Duration| u64::try_from(fresh.as_millis()).unwrap_or(u64::MAX);
        let stored = Stored {
            fresh_ms: self.fresh.map(millis),
            selected: self.selection.as_ref().map(|selection| Selected {
                names: selection.names().iter().map(HeaderName::as_str).collect(),
                digest: *selection.digest(),
            }),
        };
        // A vector takes everything; without bytes the record would be a miss.
        postcard::to_extend(&stored, out).unwrap_or_default()
    }

    /// Reads what is left of a record of this version: its terms, and nothing after them.
    pub(super) fn read(version: u8, rest: &[u8]) -> Result<Self, BadRecord> {
        if version == VERSION {
            return if rest.is_empty() { Ok(Self::default()) } else { Err(BadRecord::Malformed) };
        }
        let (stored, rest) =
            postcard::take_from_bytes::<Stored<'_>>(rest).map_err(|_| BadRecord::Malformed)?;
        if !rest.is_empty() {
            return Err(BadRecord::Malformed);
        }
        let selection = match stored.selected {
            Some(Selected { names, digest }) => {
                let names = names.iter().map(|name| HeaderName::from_lowercase(name.as_bytes()));
                let names = names.collect::<Result<_, _>>().map_err(|_| BadRecord::Malformed)?;
                Some(Arc::new(Selection::from_parts(names, digest)))
            }
            None => None,
        };
        Ok(Self { fresh: stored.fresh_ms.map(Duration::from_millis), selection })
    }
}

/// Takes a prefix off: the version, and what follows it.
pub(super) fn prefix(magic: [u8; 3], bytes: &Bytes) -> Result<(u8, &[u8]), BadRecord> {
    let (found, rest) = bytes.split_first_chunk().ok_or(BadRecord::Foreign)?;
    let (&version, rest) = rest.split_first().ok_or(BadRecord::Foreign)?;
    match version {
        _ if *found != magic => Err(BadRecord::Foreign),
        VERSION | TERMS_VERSION => Ok((version, rest)),
        _ => Err(BadRecord::Version(version)),
    }
}
