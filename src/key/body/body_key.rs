//! The part of the default key that reads bodies.

use std::{fmt, marker::PhantomData, sync::Arc};

use http::{HeaderName, Method, Request};
use http_body::Body;
use tower::BoxError;

use super::{
    form::{Form, Reading},
    read::{BODY_LIMIT, Whole, read_request},
    read_body::ReadBody,
};
use crate::key::{
    Bypass, Explanation, HttpKey, Key, KeyExtractor, PartSource, RequestView,
    http_key::{extract, is_plain, plain_parts},
    json::PointerError,
};

/// Says of an [`HttpKey`] that it reads bodies: what of them counts, and how they
/// are given back. Made by [`HttpKey::json_body`] and [`HttpKey::raw_body`].
///
/// See the [module docs](crate::key#bodies).
pub struct BodyKey<F, M> {
    give_back: F,
    rules: Arc<BodyRules>,
    form: PhantomData<fn() -> M>,
}

/// Of bodies counts what they say as JSON. See [`HttpKey::json_body`].
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no values")]
pub enum Json {}

/// Of bodies counts every byte. See [`HttpKey::raw_body`].
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no values")]
pub enum Raw {}

#[derive(Clone, Debug)]
struct BodyRules {
    form: Form,
    limit: usize,
    methods: Vec<Method>,
}

impl<F, M> BodyKey<F, M> {
    pub(in crate::key) fn new(give_back: F, form: Form) -> Self {
        let rules = BodyRules { form, limit: BODY_LIMIT, methods: vec![Method::POST] };
        Self { give_back, rules: Arc::new(rules), form: PhantomData }
    }
}

impl<F, M> HttpKey<BodyKey<F, M>> {
    /// The most bytes of a body that are read for its key, trailers included. A
    /// larger one goes to inner whole, as it comes, and its request is not shared.
    ///
    /// So many bytes, and twice that while JSON is put in order, are held for each
    /// request whose body is on its way, and the bytes until inner has read them.
    ///
    /// Default: 1 MiB.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_rules().limit = bytes;
        self
    }

    /// The methods whose requests are shared by their bodies. `GET` and `HEAD`
    /// without a body are shared as ever; `CONNECT` never is.
    ///
    /// Default: `POST`.
    #[must_use]
    pub fn body_methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = methods.into_iter().filter(|method| *method != Method::CONNECT);
        self.body_rules().methods = methods.collect();
        self
    }

    fn body_rules(&mut self) -> &mut BodyRules {
        Arc::make_mut(&mut self.body.rules)
    }
}

impl<F> HttpKey<BodyKey<F, Json>> {
    /// Leaves a member of JSON bodies out of the key: requests that differ in it
    /// alone, or have it or not, get **the same answer**, made for one of them.
    ///
    /// It is named by a JSON pointer (RFC 6901): `/user`, `/metadata/trace_id`,
    /// `/messages/0/id`. Elements of arrays can be passed through and are never left
    /// out themselves. Bodies that count byte by byte count whole.
    ///
    /// Default: every member counts.
    ///
    /// # Errors
    ///
    /// The text is no JSON pointer, or names the whole body.
    pub fn leave_out(mut self, pointer: &str) -> Result<Self, PointerError> {
        if let Form::Json(pointers) = &mut self.body_rules().form {
            pointers.insert(pointer)?;
        }
        Ok(self)
    }
}

impl<F, M> HttpKey<BodyKey<F, M>> {
    /// How the body of a request is taken into its key, if at all.
    fn reading<B>(&self, request: &Request<B>) -> Option<Reading> {
        let BodyRules { form, methods, .. } = &*self.body.rules;
        methods.contains(request.method()).then(|| form.reading(request.headers())).flatten()
    }

    /// What the key of this request is made of, or why it has none; whether its body can
    /// be read, and is not larger than the limit, is not known before it is read.
    pub fn explain<B: Body>(&self, request: &Request<B>) -> Explanation {
        let view = RequestView::new(request);
        let ended = request.body().is_end_stream();
        let named = self.body.rules.methods.contains(request.method());
        let parts = if (is_plain(request.method()) && ended) || !named {
            plain_parts(&self.rules, view, ended)
        } else if let Some(reading) = self.reading(request) {
            let parts = self.rules.parts(view, true);
            parts.and_then(|mut parts| {
                parts.add(match reading {
                    Reading::Json => PartSource::JsonBody,
                    Reading::Bytes => PartSource::RawBody,
                });
                if self.fits(request.body()) { Ok(parts) } else { Err(Bypass::BodyTooLarge) }
            })
        } else {
            Err(Bypass::Body)
        };
        Explanation::new(parts, self.rules.left_out(view, named))
    }

    fn fits<B: Body>(&self, body: &B) -> bool {
        body.size_hint().lower() <= self.body.rules.limit as u64
    }
}

impl<B, F, M> KeyExtractor<Request<B>> for HttpKey<BodyKey<F, M>>
where
    B: Body<Error: Into<BoxError>> + Send + 'static,
    F: Fn(ReadBody<B>) -> B + Clone + Send + Sync + 'static,
    M: 'static,
{
    fn extract(&self, request: &Request<B>) -> Result<Key, Bypass> {
        let view = RequestView::new(request);
        let plain = is_plain(request.method());
        let ended = request.body().is_end_stream();
        if (plain && ended) || !self.body.rules.methods.contains(request.method()) {
            return extract(&self.rules, view);
        }
        let reading = self.reading(request).ok_or(Bypass::Body)?;
        if ended {
            let mut key = self.rules.head_of_body(view)?;
            self.body.rules.form.write(reading, &Whole::default(), &mut key);
            return Ok(key.build());
        }
        // One that fits has a key, but not before it is read.
        Err(if self.fits(request.body()) { Bypass::Body } else { Bypass::BodyTooLarge })
    }

    fn reads(&self, request: &Request<B>) -> bool {
        let body = request.body();
        self.reading(request).is_some() && !body.is_end_stream() && self.fits(body)
    }

    fn read(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = (Request<B>, Result<Key, Bypass>)> + Send + 'static {
        let head = self.rules.head_of_body(RequestView::new(&request));
        let reading = self.reading(&request).ok_or(Bypass::Body);
        let BodyKey { give_back, rules, .. } = self.body.clone();
        let limit = rules.limit;
        read_request(request, head, limit, give_back, move |whole, key| {
            rules.form.write(reading?, whole, key);
            Ok(())
        })
    }

    fn is_identified(&self, request: &Request<B>) -> bool {
        self.rules.is_identified(RequestView::new(request))
    }

    fn covers_header(&self, name: &HeaderName) -> bool {
        self.rules.covers(name)
    }
}

impl<F: Clone, M> Clone for BodyKey<F, M> {
    fn clone(&self) -> Self {
        Self {
            give_back: self.give_back.clone(),
            rules: Arc::clone(&self.rules),
            form: PhantomData,
        }
    }
}

impl<F, M> fmt::Debug for BodyKey<F, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BodyRules { form, limit, methods } = &*self.rules;
        f.debug_struct("BodyKey")
            .field("form", form)
            .field("limit", limit)
            .field("methods", methods)
            .finish_non_exhaustive()
    }
}
