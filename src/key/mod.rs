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
//! # Who asks
//!
//! Credentials are in the key as all headers are, so that two users never share.
//! [`HttpKey::identity`] says which part of a request names its user: it is in the key
//! whatever is ignored, and answers that are `private` are then shared between that user's
//! own requests. [`HttpKey::tenant`] takes something into the key that is in no header.
//! [`HttpKey::explain`] says of a request what its key is made of.
//!
//! ```
//! use http::header::AUTHORIZATION;
//! use tower_singleflight::HttpKey;
//!
//! #[derive(Clone)]
//! struct Tenant(u64);
//!
//! let key = HttpKey::new().identity(AUTHORIZATION).tenant(|request| {
//!     let tenant = request.extensions().get::<Tenant>()?;
//!     Some(tenant.0.to_be_bytes())
//! });
//! ```
//!
//! # Bodies
//!
//! A request with a body runs alone, unless its key covers the body.
//! [`HttpKey::json_body`] takes JSON into the key, for services that are asked by
//! `POST` as LLM APIs are; [`HttpKey::raw_body`] takes the bytes. The body is read
//! up to a limit before the request joins a flight, and inner gets it back as it
//! was, as a [`ReadBody`] in the service's own type of body:
//!
//! ```
//! use axum::{Router, body::Body, routing::post};
//! use tower_singleflight::{HttpKey, SingleFlightLayer};
//!
//! # async fn complete() -> &'static str { "42" }
//! # fn f() -> Result<(), tower_singleflight::key::PointerError> {
//! let key = HttpKey::new()
//!     .json_body(Body::new)
//!     .body_limit(256 * 1024)
//!     .leave_out("/user")?;
//! let app: Router = Router::new()
//!     .route("/v1/complete", post(complete))
//!     .layer(SingleFlightLayer::new(key));
//! # Ok(()) }
//! ```
//!
//! # gRPC
//!
//! [`GrpcKey`] shares the gRPC methods that it is told, unary and server-streaming.
//!
//! # Below nested routers
//!
//! A router that nests others takes the prefix off the path. A layer inside
//! `/c1` and one inside `/c2` then both see `/f`: **two resources with one
//! key**. See [`HttpKey::original_uri`], which is needed there.

mod authority;
mod body;
mod bypass;
mod digest;
mod explain;
mod extract;
mod fields;
mod grpc;
mod http_key;
mod json;
mod name;
mod noise;
mod parts;
mod query;
mod rules;
mod view;

#[cfg(test)]
mod explain_tests;
#[cfg(test)]
mod identity_tests;
#[cfg(test)]
mod tests;

#[cfg(feature = "grpc-descriptors")]
pub use self::grpc::{DescriptorError, DescriptorErrorKind};
pub use self::{
    body::{BodyKey, Json, Raw, ReadBody},
    bypass::Bypass,
    explain::{Explanation, KeyPart, PartSource},
    extract::{KeyExtractor, KeyFn, key_fn},
    grpc::GrpcKey,
    http_key::{HttpKey, NoBody},
    json::PointerError,
    noise::NOISE,
    parts::{Key, KeyBuilder},
    view::RequestView,
};
pub(crate) use self::{digest::Digester, name::Name};
