//! For how long a response says that it may be used again.
//!
//! Only ever read to shorten what the layer's own setting allows. What is said twice
//! counts as the shorter, what cannot be read as nothing.

use std::time::{Duration, SystemTime};

use http::{
    HeaderMap, HeaderName,
    header::{AGE, CACHE_CONTROL, DATE, EXPIRES, PRAGMA},
};

use crate::headers::{is_token, members};

/// What everybody can read, in seconds.
const OLDEST: u64 = 1 << 31;

/// How much longer a response is fresh by its own word, at `now`; `None` where it says
/// nothing of it.
pub(crate) fn fresh_for(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let (mut shared, mut any) = (None, None);
    for member in members(headers, &CACHE_CONTROL) {
        if is_token(member, "no-cache") {
            return Some(Duration::ZERO);
        }
        let limit = match member {
            _ if is_token(member, "s-maxage") => &mut shared,
            _ if is_token(member, "max-age") => &mut any,
            _ => continue,
        };
        let said = argument(member).map_or(Duration::ZERO, seconds);
        *limit = Some(limit.map_or(said, |before: Duration| before.min(said)));
    }
    if !headers.contains_key(CACHE_CONTROL)
        && members(headers, &PRAGMA).any(|member| is_token(member, "no-cache"))
    {
        return Some(Duration::ZERO);
    }
    let date = dates(headers, &DATE).min().unwrap_or(Some(now)).unwrap_or(now);
    let lifetime = shared.or(any).or_else(|| {
        let expires = dates(headers, &EXPIRES).min()?;
        Some(expires.and_then(|at| at.duration_since(date).ok()).unwrap_or_default())
    })?;
    // Clocks differ: a date that is yet to come makes nothing younger.
    let apparent = now.duration_since(date).unwrap_or_default();
    let said = headers.get_all(AGE).iter().map(|age| seconds_or(age.as_bytes(), Duration::MAX));
    Some(lifetime.saturating_sub(said.max().unwrap_or_default().max(apparent)))
}

/// Says that a response is so much older than it was when it came (RFC 9111, section 5.1).
pub(crate) fn grow_older(headers: &mut HeaderMap, by: Duration) {
    let said = headers.get_all(AGE).iter().map(|age| seconds(age.as_bytes())).max();
    let age = said.unwrap_or_default().saturating_add(by).as_secs();
    // A map that is full stays as it is.
    drop(headers.try_insert(AGE, age.min(OLDEST).into()));
}

/// The dates under this name; `None` for one that cannot be read.
fn dates(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = Option<SystemTime>> {
    let lines = headers.get_all(name).into_iter();
    lines.map(|line| httpdate::parse_http_date(line.to_str().ok()?.trim()).ok())
}

/// What stands behind the `=`, without quotes.
fn argument(member: &[u8]) -> Option<&[u8]> {
    let equals = member.iter().position(|byte| *byte == b'=')?;
    let value = member[equals + 1..].trim_ascii();
    let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(quoted.unwrap_or(value))
}

fn seconds(digits: &[u8]) -> Duration {
    seconds_or(digits, Duration::ZERO)
}

fn seconds_or(digits: &[u8], unreadable: Duration) -> Duration {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return unreadable;
    }
    let digits = std::str::from_utf8(digits).ok();
    // More digits than fit are a very long time.
    digits.map_or(unreadable, |text| Duration::from_secs(text.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn fresh(fields: &[(&str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let now = httpdate::parse_http_date(NOW).unwrap();
        fresh_for(&headers, now).map(|fresh| fresh.as_secs())
    }

    #[test]
    fn what_says_nothing_of_it() {
        for fields in [
            &[][..],
            &[("cache-control", "public, must-revalidate, x-no-cache, immutable")],
            &[("age", "1000"), ("date", NOW)],
            &[("cache-control", "public"), ("pragma", "no-cache")],
        ] {
            assert_eq!(fresh(fields), None, "{fields:?}");
        }
    }

    #[test]
    fn the_shortest_of_what_is_said_counts() {
        let cc = "cache-control";
        for (fields, seconds) in [
            (&[(cc, "max-age=10")][..], 10),
            (&[(cc, "Max-Age=\"10\"")], 10),
            (&[(cc, "max-age=10, max-age=5")], 5),
            (&[(cc, "max-age=5"), (cc, "MAX-AGE=10")], 5),
            (&[(cc, "max-age=10, s-maxage=3")], 3),
            (&[(cc, "s-maxage=30, max-age=1")], 30),
            (&[(cc, "max-age=10, no-cache")], 0),
            (&[(cc, "max-age=10, No-Cache=\"set-cookie\"")], 0),
            (&[("pragma", "no-cache")], 0),
            (&[(cc, "max-age")], 0),
            (&[(cc, "max-age=")], 0),
            (&[(cc, "max-age=-1")], 0),
            (&[(cc, "max-age=1.5")], 0),
            (&[(cc, "max-age=ten")], 0),
            (&[(cc, "max-age=10, max-age=ten")], 0),
            (&[(cc, "max-age=99999999999999999999999")], u64::MAX),
            (&[(cc, "max-age=10"), ("age", "4")], 6),
            (&[(cc, "max-age=10"), ("age", "4"), ("age", "7")], 3),
            (&[(cc, "max-age=10"), ("age", "20")], 0),
            (&[(cc, "max-age=10"), ("age", "99999999999999999999999")], 0),
            (&[(cc, "max-age=10"), ("age", "old")], 0),
            (&[(cc, "max-age=10"), ("date", "Sun, 06 Nov 1994 08:49:30 GMT")], 3),
            (&[(cc, "max-age=10"), ("date", "Sun, 06 Nov 1994 08:50:30 GMT")], 10),
            (&[(cc, "max-age=10"), ("date", "soon")], 10),
            (&[("expires", "Sun, 06 Nov 1994 08:49:47 GMT")], 10),
            (&[("expires", "Sunday, 06-Nov-94 08:49:47 GMT")], 10),
            (&[("expires", "Sun Nov  6 08:49:47 1994")], 10),
            (&[("expires", "Thu, 01 Jan 1970 00:00:00 GMT")], 0),
            (&[("expires", "0")], 0),
            (&[("expires", "Sun, 06 Nov 1994 08:49:47 GMT"), ("expires", "0")], 0),
            (&[("expires", "0"), (cc, "max-age=10")], 10),
            (
                &[
                    ("expires", "Sun, 06 Nov 1994 08:49:47 GMT"),
                    ("date", "Sun, 06 Nov 1994 08:49:31 GMT"),
                ],
                10,
            ),
            (&[("expires", "Sun, 06 Nov 1994 08:49:47 GMT"), ("age", "4")], 6),
        ] {
            assert_eq!(fresh(fields), Some(seconds), "{fields:?}");
        }
    }

    #[test]
    fn what_is_used_again_says_how_old_it_is() {
        for (said, by, age) in [
            (&[][..], 0, "0"),
            (&[], 1999, "1"),
            (&["7"], 2000, "9"),
            (&["7", "40", "old"], 2000, "42"),
            (&["99999999999999999999999"], 2000, "2147483648"),
        ] {
            let mut headers = HeaderMap::new();
            for said in said {
                headers.append(AGE, HeaderValue::from_static(said));
            }
            grow_older(&mut headers, Duration::from_millis(by));
            assert_eq!(headers.get_all(AGE).iter().collect::<Vec<_>>(), [age], "{said:?}");
        }
    }

    #[test]
    fn bytes_of_any_kind_do_no_harm() {
        for bytes in [&b"\xff"[..], b"max-age=\xff", b"=", b",,=\"", b"max-age=\"", b"s-maxage=\""]
        {
            let value = HeaderValue::from_bytes(bytes).unwrap();
            for name in [CACHE_CONTROL, EXPIRES, AGE, DATE, PRAGMA] {
                let mut headers = HeaderMap::new();
                headers.append(name, value.clone());
                headers.append(CACHE_CONTROL, HeaderValue::from_static("max-age=5"));
                assert!(fresh_for(&headers, SystemTime::UNIX_EPOCH).is_some());
            }
        }
    }
}
