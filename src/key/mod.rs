//! Keys: what makes two requests the same.
//!
//! A [`KeyExtractor`] looks at a request and gives its [`Key`], or a
//! [`Bypass`]: the reason why this request takes no part in sharing.
//!
//! [`HttpKey`] is the extractor for HTTP. Two requests have the same key only
//! when method, authority, path, query and every header field are the same but
//! for a [published list of noise](NOISE): a field that the list does not know
//! costs sharing, never privacy.
//!
//! ```
//! use http::Request;
//! use tower_singleflight::{HttpKey, KeyExtractor};
//!
//! let key = HttpKey::new();
//! let get = |agent: &str, user: &str| {
//!     Request::get("https://a.test/report?year=2024")
//!         .header("user-agent", agent)
//!         .header("authorization", user)
//!         .body(())
//!         .unwrap()
//! };
//! let first = key.extract(&get("curl", "Bearer A"));
//! assert_eq!(first, key.extract(&get("firefox", "Bearer A")));
//! assert_ne!(first, key.extract(&get("curl", "Bearer B")));
//! ```
//!
//! [`key_fn`] takes a function, for any type of request:
//!
//! ```
//! use tower_singleflight::{Bypass, Key, KeyExtractor, key_fn};
//!
//! let key = key_fn(|city: &String| (!city.is_empty()).then(|| city.to_lowercase()));
//! assert_eq!(key.extract(&"Rome".to_owned()), Ok(Key::from("rome")));
//! assert_eq!(key.extract(&String::new()), Err(Bypass::NoKey));
//! ```
//!
//! # Below nested routers
//!
//! A router that nests others takes the prefix off the path. A layer inside
//! `/c1` and one inside `/c2` then both see `/f`: **two resources with one
//! key**. See [`HttpKey::original_uri`], which is needed there.

mod authority;
mod bypass;
mod digest;
mod extract;
mod fields;
mod http_key;
mod noise;
mod parts;
mod view;

#[cfg(test)]
mod tests;

pub(crate) use self::digest::Digester;
pub use self::{
    bypass::Bypass,
    extract::{KeyExtractor, KeyFn, key_fn},
    http_key::HttpKey,
    noise::NOISE,
    parts::{Key, KeyBuilder},
    view::RequestView,
};
