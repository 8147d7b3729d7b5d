//! The query of a URI, in an order of its own.

use std::borrow::Cow;

/// The pairs of a query, sorted by name. Nothing is decoded, left out or merged.
///
/// The names are compared as a server may read them: decoded, and in lower case. Those
/// that any server could take for one name keep their order, since it may mean something.
pub(super) fn sorted(query: &str) -> Cow<'_, str> {
    let mut pairs: Vec<_> = query.split('&').map(|pair| (name(pair), pair)).collect();
    if pairs.is_sorted_by(|(one, _), (other, _)| one <= other) {
        return query.into();
    }
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut out = String::with_capacity(query.len());
    for (at, (_, pair)) in pairs.iter().enumerate() {
        if at > 0 {
            out.push('&');
        }
        out.push_str(pair);
    }
    out.into()
}

/// The name of a pair, decoded and in lower case.
fn name(pair: &str) -> Vec<u8> {
    let name = pair.split('=').next().unwrap_or_default().as_bytes();
    let mut out = Vec::with_capacity(name.len());
    let mut at = 0;
    while let Some(&byte) = name.get(at) {
        let coded = name.get(at + 1..at + 3).filter(|_| byte == b'%').and_then(hex);
        at += if coded.is_some() { 3 } else { 1 };
        out.push(coded.unwrap_or(if byte == b'+' { b' ' } else { byte }).to_ascii_lowercase());
    }
    out
}

fn hex(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn pairs_are_sorted_by_name_alone() {
        for (query, expected) in [
            ("b=2&a=1", "a=1&b=2"),
            ("a=1&b=2", "a=1&b=2"),
            ("x=2&x=1", "x=2&x=1"),
            ("x=2&a=9&x=1", "a=9&x=2&x=1"),
            ("b&a", "a&b"),
            ("b=&b", "b=&b"),
            ("", ""),
            ("b=1&", "&b=1"),
            ("a=1&&b", "&a=1&b"),
            // One name to a server that decodes, or that knows no case.
            ("x=2&%78=1", "x=2&%78=1"),
            ("%78=1&x=2", "%78=1&x=2"),
            ("X=2&x=1", "X=2&x=1"),
            ("z+a=2&z%20a=1", "z+a=2&z%20a=1"),
            ("%=2&%a=1&%zz", "%=2&%a=1&%zz"),
            ("b=a%26a&a=1", "a=1&b=a%26a"),
        ] {
            assert_eq!(sorted(query), expected, "{query}");
        }
    }

    proptest! {
        #[test]
        fn sorted_pairs_are_the_same_pairs(query in "[ab%4&=+A]{0,24}", shuffled in any::<bool>()) {
            let once = sorted(&query).into_owned();
            prop_assert_eq!(sorted(&once), once.as_str());
            let pairs = |query: &str| {
                let mut pairs: Vec<_> = query.split('&').map(str::to_owned).collect();
                pairs.sort();
                pairs
            };
            prop_assert_eq!(pairs(&query), pairs(&once));
            let _ = shuffled;
        }

        #[test]
        fn equal_names_keep_their_order(values in vec(("[ab]", 0_u8..9), 0..8)) {
            let query: Vec<_> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let found = sorted(&query.join("&")).into_owned();
            for name in ["a", "b"] {
                let of = |query: &str| -> Vec<String> {
                    let pairs = query.split('&').filter(|pair| pair.starts_with(name));
                    pairs.map(str::to_owned).collect()
                };
                prop_assert_eq!(of(&found), of(&query.join("&")));
            }
        }
    }
}
