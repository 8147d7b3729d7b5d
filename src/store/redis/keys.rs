//! Names in the server: all keys of one flight key share a slot.

use crate::id::{FlightId, KeyDigest};

/// Makes names under one prefix and database.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
    channels: String,
    sharded: bool,
}

impl Names {
    pub(super) fn new(prefix: &str, db: i64) -> Self {
        let channels = format!("{prefix}:push:{db}:");
        Self { prefix: prefix.to_owned(), channels, sharded: false }
    }

    /// The same names, in a cluster.
    pub(super) fn sharded(self) -> Self {
        Self { sharded: true, ..self }
    }

    /// Whether keys of different flights may lie on different servers.
    pub(super) fn is_sharded(&self) -> bool {
        self.sharded
    }

    pub(super) fn meta(&self, key: KeyDigest) -> String {
        self.of("meta", key)
    }

    pub(super) fn waiters(&self, key: KeyDigest) -> String {
        self.of("waiters", key)
    }

    pub(super) fn result(&self, key: KeyDigest) -> String {
        self.of("result", key)
    }

    pub(super) fn stream(&self, key: KeyDigest) -> String {
        self.of("stream", key)
    }

    /// Where a large record waits to be made visible.
    pub(super) fn staged(&self, key: KeyDigest, flight: FlightId) -> String {
        format!("{}:{flight}", self.result(key))
    }

    pub(super) fn owner_seq(&self) -> String {
        format!("{}:owner-seq", self.prefix)
    }

    /// The commands for this kind of channel.
    pub(super) fn publish(&self) -> &'static str {
        if self.sharded { "SPUBLISH" } else { "PUBLISH" }
    }

    pub(super) fn subscribe(&self) -> &'static str {
        if self.sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" }
    }

    pub(super) fn unsubscribe(&self) -> &'static str {
        if self.sharded { "SUNSUBSCRIBE" } else { "UNSUBSCRIBE" }
    }

    // The database is named: channels are not divided by it.
    pub(super) fn channel(&self, key: KeyDigest) -> String {
        tagged(&[&self.channels], key)
    }

    /// What all channels begin with: they end as keys do.
    pub(super) fn channels(&self) -> &str {
        &self.channels
    }

    /// Whose channel this is; none where it is not ours.
    pub(super) fn key_of_channel(&self, channel: &[u8]) -> Option<KeyDigest> {
        let digits = channel.strip_prefix(self.channels.as_bytes())?;
        KeyDigest::from_digits(digits.strip_prefix(b"{")?.strip_suffix(b"}")?)
    }

    /// What all names of records match, and, it may be, others.
    pub(super) fn any_meta(&self) -> String {
        let mut pattern = String::with_capacity(self.prefix.len() + 8);
        for letter in self.prefix.chars() {
            if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern + ":meta:{*}"
    }

    /// Whose record this is; none where it is not ours.
    pub(super) fn key_of_meta(&self, name: &[u8]) -> Option<KeyDigest> {
        let rest = name.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b":meta:{")?;
        KeyDigest::from_digits(rest.strip_suffix(b"}")?)
    }

    fn of(&self, what: &str, key: KeyDigest) -> String {
        tagged(&[&self.prefix, ":", what, ":"], key)
    }
}

/// By hand, since a step makes up to five, and `format!` takes longer than all else of it.
fn tagged(before: &[&str], key: KeyDigest) -> String {
    let mut name = String::with_capacity(before.iter().map(|part| part.len()).sum::<usize>() + 66);
    name.extend(before.iter().copied());
    name.push('{');
    key.add_to(&mut name);
    name.push('}');
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::cluster::{slot_of, slot_of_flight};

    #[test]
    fn channels_are_read_back() {
        let names = Names::new("ai:flight", 3);
        let key = KeyDigest::from_bytes(std::array::from_fn(|i| i as u8 * 7));
        let channel = names.channel(key);
        assert_eq!(names.key_of_channel(channel.as_bytes()), Some(key));
        assert_eq!(Names::new("ai:flight", 2).key_of_channel(channel.as_bytes()), None);
        assert_eq!(names.key_of_channel(channel.to_uppercase().as_bytes()), None);
        assert_eq!(names.key_of_channel(&channel.as_bytes()[..channel.len() - 2]), None);
        assert_eq!(names.key_of_channel(b""), None);
        assert_eq!(names.key_of_meta(names.meta(key).as_bytes()), Some(key));
        assert_eq!(names.key_of_meta(names.result(key).as_bytes()), None);
        assert_eq!(names.key_of_meta(b"ai:flight"), None);
    }

    #[test]
    fn records_are_read_back() {
        let key = KeyDigest::from_bytes(std::array::from_fn(|i| i as u8 * 7));
        for prefix in ["ai:flight", "a*b?[c]^\\", ""] {
            let names = Names::new(prefix, 0);
            let meta = names.meta(key);
            assert_eq!(names.key_of_meta(meta.as_bytes()), Some(key));
            assert_eq!(names.key_of_meta(names.result(key).as_bytes()), None);
            assert_eq!(names.key_of_meta(&meta.as_bytes()[..meta.len() - 2]), None);
        }
        assert_eq!(Names::new("a*", 0).any_meta(), "a\\*:meta:{*}");
    }

    #[test]
    fn g4_all_keys_of_one_flight_share_a_slot() {
        let names = Names::new("ai:flight", 0);
        for n in 0..10_000_u32 {
            let key = KeyDigest::from_bytes(*blake3::hash(&n.to_le_bytes()).as_bytes());
            let staged = names.staged(key, FlightId::random());
            let channel = names.channel(key);
            for name in [
                names.meta(key),
                names.waiters(key),
                names.result(key),
                names.stream(key),
                staged,
                channel,
            ] {
                assert_eq!(slot_of(name.as_bytes()), slot_of_flight(key), "{name}");
            }
        }
    }

    /// A user's braces end in the digest; ours are the only ones.
    #[test]
    fn g5_braces_of_users_never_reach_the_server() {
        use crate::key::{Digester, Key};

        let digester = Digester::new("n", None);
        let names = Names::new("ai:flight", 0);
        let long = "{".repeat(1024);
        let keys = ["a{b}c", "{}", "}{", "{{x}}", "a{}b{c}", "{", "", &long, "{é}"];
        let named = keys.map(|key| names.meta(digester.digest(&Key::from(key))));
        for (at, name) in named.iter().enumerate() {
            assert!(name.is_ascii() && name.len() < 200, "{name}");
            assert_eq!(name.matches(['{', '}']).count(), 2, "{name}");
            assert!(!named[..at].contains(name), "{name}");
        }
    }

    #[test]
    fn k7_names_are_short_ascii() {
        let names = Names::new(&"p".repeat(64), 15);
        let key = KeyDigest::from_bytes([0xff; 32]);
        let longest = names.staged(key, FlightId::random());
        assert!(longest.is_ascii() && longest.len() < 200, "{longest}");
    }
}
