//! Names of things: keys, flights, waiters. Plain data.

use std::{fmt, str::FromStr};

/// The format of all that processes leave for each other. It goes into every key's
/// digest, so that releases whose formats differ do not meet.
pub(crate) const FORMAT: u8 = 1;

/// The digest of a key: what stands for a request everywhere but in the process
/// that received it.
///
/// 256 bits of BLAKE3 over namespace and key, so that no text of a user ever
/// becomes part of a store's key, a log line or a label.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Takes 32 bytes that are already a digest.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the digest.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Adds what `Display` writes.
    #[cfg(feature = "redis")]
    pub(crate) fn add_to(&self, name: &mut String) {
        name.push_str(text(&digits::<64>(&self.0)));
    }

    /// The digest that these 64 digits are, as `Display` writes them.
    pub(crate) fn from_digits(digits: &[u8]) -> Option<Self> {
        let digits: &[u8; 64] = digits.try_into().ok()?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }
}

/// Each byte as two digits: by hand, since each name in a store has them.
fn digits<const N: usize>(bytes: &[u8]) -> [u8; N] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [b'0'; N];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    digits
}

/// Digits are text.
fn text(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).unwrap_or_default()
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Reads what `Display` writes.
///
/// ```
/// use tower_singleflight::KeyDigest;
///
/// let digest = KeyDigest::from_bytes([7; 32]);
/// assert_eq!(digest.to_string().parse(), Ok(digest));
/// assert!("7".parse::<KeyDigest>().is_err());
/// ```
impl FromStr for KeyDigest {
    type Err = ParseKeyDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_digits(text.as_bytes()).ok_or(ParseKeyDigestError(()))
    }
}

/// A text is no [`KeyDigest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseKeyDigestError(());

impl fmt::Display for ParseKeyDigestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key digest has 64 lowercase hexadecimal digits")
    }
}

impl std::error::Error for ParseKeyDigestError {}

/// 64 lowercase hexadecimal digits.
impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text(&digits::<64>(&self.0)))
    }
}

/// The first 16 digits: enough to tell flights apart in a log.
impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(u128);

        impl $name {
            /// A new random one.
            #[must_use]
            pub fn random() -> Self {
                Self(rand::random())
            }

            /// The id that this number is.
            #[must_use]
            pub const fn from_u128(number: u128) -> Self {
                Self(number)
            }

            /// The id as a number.
            #[must_use]
            pub const fn as_u128(self) -> u128 {
                self.0
            }
        }

        /// 32 lowercase hexadecimal digits.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(text(&digits::<32>(&self.0.to_be_bytes())))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

random_id! {
    /// The random half of a flight's name, new for every attempt to own.
    FlightId
}

random_id! {
    /// Names one process's wait for one key.
    WaiterId
}

/// A flight: its fencing token and its random id. The two are always compared
/// together, so that a token that a store gave out twice after losing its data
/// still names one flight only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the two are what a flight is")]
pub struct FlightRef {
    /// The fencing token: greater than that of every earlier owner of the key.
    pub token: u64,
    /// The random id.
    pub id: FlightId,
}
