//! From a request to its key.

use std::{any::type_name, fmt};

use http::HeaderName;

use super::{Bypass, Key};

/// Gives each request its key, or the reason why it is not shared.
///
/// It is called once for each request, before anything waits, and must be
/// quick. See the [module docs](crate::key).
///
/// ```
/// use tower_singleflight::{Bypass, Key, KeyExtractor};
///
/// #[derive(Clone)]
/// struct ByTenant;
///
/// impl KeyExtractor<(u32, String)> for ByTenant {
///     fn extract(&self, (tenant, question): &(u32, String)) -> Result<Key, Bypass> {
///         Ok(Key::builder().part(tenant.to_be_bytes()).part(question).build())
///     }
/// }
/// ```
pub trait KeyExtractor<Req>: Clone + Send + Sync + 'static {
    /// The key of this request.
    ///
    /// # Errors
    ///
    /// The reason why this request is to run alone.
    fn extract(&self, request: &Req) -> Result<Key, Bypass>;

    /// Whether the key of this request is found by [`read`](Self::read) and not by
    /// [`extract`](Self::extract), since its body must be read first. By default it
    /// never is.
    fn reads(&self, request: &Req) -> bool {
        let _ = request;
        false
    }

    /// Reads what the key covers of this request, and gives it back as inner is to
    /// see it, with its key or the reason why it is to run alone.
    ///
    /// It is asked for where [`reads`](Self::reads) says so, and driven by the
    /// caller's own future, dropped with it: the request is in no flight before it
    /// is done. By default it reads nothing.
    fn read(
        &self,
        request: Req,
    ) -> impl Future<Output = (Req, Result<Key, Bypass>)> + Send + 'static
    where
        Req: Send + 'static,
    {
        let key = self.extract(&request);
        std::future::ready((request, key))
    }

    /// Whether keys that were found without reading cover the body of the request.
    /// By default they do not, and requests with a body run alone.
    fn covers_body(&self) -> bool {
        false
    }

    /// Whether this request carried what its key has as an identity: a part that says who
    /// asks, and that no other caller of this key differs in. By default none has.
    ///
    /// Responses with `cache-control: private` are shared among such requests.
    fn is_identified(&self, request: &Req) -> bool {
        let _ = request;
        false
    }

    /// Whether requests that differ in this header have different keys. By
    /// default nothing is known of any header.
    ///
    /// A response whose `vary` names a header outside the key is shared with those
    /// callers whose requests have the same values of it as the one that was run.
    fn covers_header(&self, name: &HeaderName) -> bool {
        let _ = name;
        false
    }
}

/// Makes an extractor of a function: `None` means that the request runs alone.
///
/// Requests get the same answer when the function gives them the same key, so
/// that **whatever the answer depends on belongs in the key**: the method, the
/// host, the path and its query, the user, the tenant, the language. Nothing is
/// added to it: without the method, a `DELETE` that comes while a `GET` is in the
/// air is answered by that, and not done. HTTP requests with a body run alone all
/// the same.
///
/// ```
/// use http::{Method, Request, header::AUTHORIZATION};
/// use tower_singleflight::{Key, KeyExtractor, key_fn};
///
/// let key = key_fn(|request: &Request<String>| {
///     if request.method() != Method::GET {
///         return None;
///     }
///     let user = request.headers().get(AUTHORIZATION)?;
///     Some(Key::builder().part(user).part(request.uri().path_and_query()?.as_str()).build())
/// });
/// let get = |uri: &str| Request::get(uri).header(AUTHORIZATION, "A").body(String::new()).unwrap();
/// assert_ne!(key.extract(&get("/report?year=1")), key.extract(&get("/report?year=2")));
/// ```
pub fn key_fn<Req, K, F>(f: F) -> KeyFn<F>
where
    F: Fn(&Req) -> Option<K> + Clone + Send + Sync + 'static,
    K: Into<Key>,
{
    KeyFn { f }
}

/// The extractor that [`key_fn`] makes.
#[derive(Clone, Copy)]
pub struct KeyFn<F> {
    f: F,
}

impl<Req, K, F> KeyExtractor<Req> for KeyFn<F>
where
    F: Fn(&Req) -> Option<K> + Clone + Send + Sync + 'static,
    K: Into<Key>,
{
    fn extract(&self, request: &Req) -> Result<Key, Bypass> {
        (self.f)(request).map(Into::into).ok_or(Bypass::NoKey)
    }
}

impl<F> fmt::Debug for KeyFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFn").field("f", &format_args!("{}", type_name::<F>())).finish()
    }
}
