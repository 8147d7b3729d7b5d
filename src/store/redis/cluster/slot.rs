//! Slots: of 16384 parts of a cluster's keys, the one that a key lies in.

use crate::id::KeyDigest;

/// How many there are.
pub(in super::super) const SLOTS: u16 = 16_384;

/// The slot of a key's name: of what stands in its first braces, or of all of it.
pub(in super::super) fn slot_of(name: &[u8]) -> u16 {
    let tag = name.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &name[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        Some(&rest[..close]).filter(|tag| !tag.is_empty())
    });
    crc16(tag.unwrap_or(name).iter().copied()) % SLOTS
}

/// The slot of all keys of one flight key.
pub(in super::super) fn slot_of_flight(key: KeyDigest) -> u16 {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = key.as_bytes().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    crc16(digits.map(|digit| DIGITS[usize::from(digit)])) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: impl Iterator<Item = u8>) -> u16 {
    bytes.fold(0, |crc: u16, byte| (crc << 8) ^ TABLE[usize::from(crc >> 8) ^ usize::from(byte)])
}

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let (mut table, mut n) = ([0; 256], 0);
    while n < table.len() {
        let (mut crc, mut bit) = ((n as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_clusters() {
        // The check value of CRC-16/XMODEM.
        assert_eq!(crc16(b"123456789".iter().copied()), 0x31c3);
        // What servers answer to CLUSTER KEYSLOT.
        for (name, slot) in [
            ("foo", 12_182),
            ("bar", 5_061),
            ("{foo}bar", 12_182),
            ("a{foo}{bar}", 12_182),
            ("{}foo", 9_500),
            ("foo{{bar}}zap", 4_015),
            ("", 0),
        ] {
            assert_eq!(slot_of(name.as_bytes()), slot, "{name}");
        }
    }

    #[test]
    fn a_flights_slot_is_that_of_its_keys() {
        for n in 0..1000_u32 {
            let key = KeyDigest::from_bytes(*blake3::hash(&n.to_le_bytes()).as_bytes());
            let name = format!("ai:flight:meta:{{{key}}}");
            assert_eq!(slot_of_flight(key), slot_of(name.as_bytes()));
        }
    }

    /// The namespace is no part of what the slot is of.
    #[test]
    fn g13_keys_of_one_namespace_are_spread_evenly() {
        use crate::key::{Digester, Key};

        let digester = Digester::new("one", None);
        let mut shards = [0_u32; 6];
        for n in 0..10_000 {
            let key = Key::from(format!("/user/{n}").as_str());
            let slot = slot_of_flight(digester.digest(&key));
            shards[usize::from(slot) * shards.len() / usize::from(SLOTS)] += 1;
        }
        let even = 10_000 / 6;
        assert!(shards.iter().all(|keys| keys.abs_diff(even) < even / 10), "{shards:?}");
    }
}
