//! The key itself: bytes made of parts.

use std::fmt;

/// What stands for a request: two requests are the same if their keys are.
///
/// A key is a list of parts, each any bytes of any length and each preceded by
/// its length, so that no part can be taken for two. Nothing but a digest of it
/// leaves the process, and its `Debug` shows no content. See the
/// [module docs](crate::key).
///
/// ```
/// use tower_singleflight::Key;
///
/// let key = Key::builder().part("report").part([0, 255]).build();
/// assert_ne!(key, Key::builder().part("rep").part("ort").part([0, 255]).build());
/// assert_eq!(Key::from("report"), Key::builder().part("report").build());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    bytes: Vec<u8>,
}

impl Key {
    /// Starts a key of several parts.
    #[must_use]
    pub fn builder() -> KeyBuilder {
        KeyBuilder::default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

/// A key of one part.
impl From<&str> for Key {
    fn from(part: &str) -> Self {
        part.as_bytes().into()
    }
}

/// A key of one part.
impl From<String> for Key {
    fn from(part: String) -> Self {
        part.as_bytes().into()
    }
}

/// A key of one part.
impl From<&[u8]> for Key {
    fn from(part: &[u8]) -> Self {
        // Most lengths take one byte.
        KeyBuilder::with_capacity(part.len() + 1).part(part).build()
    }
}

/// A key of one part.
impl From<Vec<u8>> for Key {
    fn from(part: Vec<u8>) -> Self {
        part.as_slice().into()
    }
}

/// Builds a [`Key`], part by part.
#[derive(Clone, Default)]
pub struct KeyBuilder {
    bytes: Vec<u8>,
}

impl KeyBuilder {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// Adds a part. An empty part is another thing than no part.
    #[must_use]
    pub fn part(mut self, part: impl AsRef<[u8]>) -> Self {
        self.push(&[part.as_ref()]);
        self
    }

    /// The key.
    #[must_use]
    pub fn build(self) -> Key {
        Key { bytes: self.bytes }
    }

    /// Adds one part that is made of several pieces.
    pub(crate) fn push(&mut self, pieces: &[&[u8]]) {
        let mut length: usize = pieces.iter().map(|piece| piece.len()).sum();
        // LEB128: short parts, and most are, cost one byte.
        while length >= 0x80 {
            self.bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        self.bytes.push(length as u8);
        pieces.iter().for_each(|piece| self.bytes.extend_from_slice(piece));
    }

    /// Adds a part of these pieces, the last one in lower case.
    pub(crate) fn push_lowered(&mut self, [a, b, c]: [&[u8]; 3], lowered: &[u8]) {
        self.push(&[a, b, c, lowered]);
        let start = self.bytes.len() - lowered.len();
        self.bytes[start..].make_ascii_lowercase();
    }
}

impl fmt::Debug for KeyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyBuilder").finish_non_exhaustive()
    }
}
