use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    sync::{Arc, OnceLock},
};

use super::{Digester, Key};
use crate::id::KeyDigest;

/// A key as the flights of a layer go by it: by the whole of it, and by a hash that nobody
/// outside can foretell. Its digest is made when somebody asks for it, as stores and logs
/// do.
#[derive(Clone)]
pub(crate) struct Name {
    key: Key,
    hash: u64,
    digester: Arc<Digester>,
    digest: OnceLock<KeyDigest>,
}

impl Name {
    pub(crate) fn new(key: Key, digester: &Arc<Digester>) -> Self {
        let hash = digester.local().hash_one(key.as_bytes());
        Self { key, hash, digester: Arc::clone(digester), digest: OnceLock::new() }
    }

    /// A number that equal names of one layer have in common.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// How many bytes its key has.
    pub(crate) fn size(&self) -> usize {
        self.key.as_bytes().len()
    }

    pub(crate) fn digest(&self) -> &KeyDigest {
        self.digest.get_or_init(|| self.digester.digest(&self.key))
    }

    /// A hasher for what is kept beside an answer of this key.
    pub(crate) fn beside(&self) -> blake3::Hasher {
        self.digester.beside(self.digest())
    }
}

/// For names of one layer.
impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.key == other.key
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digest().fmt(f)
    }
}
