//! From a key to what the store may see.

use std::{fmt, hash::RandomState};

use super::Key;
use crate::id::{FORMAT, KeyDigest};

// Names the layout of keys: a release that changes it must not meet another
// release under one digest with another meaning.
const LAYOUT: &[u8] = b"tower-singleflight key 1";
const SHADOW_LAYOUT: &[u8] = b"tower-singleflight key in shadow mode 1";
const BESIDE: &[u8] = b"tower-singleflight beside a key 1";
const SECRET: &str = "tower-singleflight 2025 fleet secret for key digests";

/// Digests keys: BLAKE3 over namespace and key, keyed when there is a secret.
#[derive(Clone)]
pub(crate) struct Digester {
    format: u8,
    namespace: Box<[u8]>,
    secret: Option<[u8; 32]>,
    local: RandomState,
    shadow: bool,
}

impl Digester {
    /// `secret` may be of any length.
    pub(crate) fn new(namespace: &str, secret: Option<&[u8]>) -> Self {
        Self {
            format: FORMAT,
            namespace: namespace.as_bytes().into(),
            secret: secret.map(|secret| blake3::derive_key(SECRET, secret)),
            local: RandomState::new(),
            shadow: false,
        }
    }

    /// For flights of digests, which meet no others.
    pub(crate) fn for_shadow(&self) -> Self {
        Self { shadow: true, ..self.clone() }
    }

    /// As another release does it.
    #[cfg(test)]
    pub(crate) fn of_format(self, format: u8) -> Self {
        Self { format, ..self }
    }

    /// Hashes keys for tables of this process: with a seed of its own, so that keys cannot
    /// be chosen to meet.
    pub(super) fn local(&self) -> &RandomState {
        &self.local
    }

    fn hasher(&self, layout: &[u8]) -> blake3::Hasher {
        let mut hasher = match &self.secret {
            Some(secret) => blake3::Hasher::new_keyed(secret),
            None => blake3::Hasher::new(),
        };
        for part in [layout, &[self.format], &self.namespace] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher
    }

    /// A hasher for what is kept beside an answer of this key.
    pub(crate) fn beside(&self, key: &KeyDigest) -> blake3::Hasher {
        let mut hasher = self.hasher(BESIDE);
        hasher.update(key.as_bytes());
        hasher
    }

    pub(crate) fn digest(&self, key: &Key) -> KeyDigest {
        let mut hasher = self.hasher(if self.shadow { SHADOW_LAYOUT } else { LAYOUT });
        // The key comes last and carries its own lengths.
        hasher.update(key.as_bytes());
        KeyDigest::from_bytes(*hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digester")
            .field("namespace", &String::from_utf8_lossy(&self.namespace))
            .field("keyed", &self.secret.is_some())
            .finish()
    }
}
