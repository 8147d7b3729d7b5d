//! Answers of all kinds, as handlers give them.

use std::{convert::Infallible, sync::LazyLock, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::Frame;
use http_body_util::StreamBody;

/// What becomes of an answer beyond its own caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goes {
    /// To all callers, and to later ones.
    On,
    /// To those who waited.
    ToWaiting,
    /// Nowhere.
    Nowhere,
}

use Goes::{Nowhere, On, ToWaiting};

pub(crate) struct Row {
    pub(crate) goes: Goes,
    status: u16,
    fields: &'static [(&'static str, &'static [u8])],
    data: Data,
}

/// How the bytes come.
#[derive(Clone, Copy)]
enum Data {
    Whole(&'static str),
    /// With its length in the head.
    Measured(&'static str),
    /// So many bytes at once.
    Large(usize),
    /// Frame by frame, without a length, all of them there.
    Frames(&'static [&'static str]),
    /// As these, and it takes its time.
    Slow(&'static [&'static str]),
    /// So many frames of 32 KiB.
    Many(usize),
}

const fn row(
    goes: Goes,
    status: u16,
    fields: &'static [(&'static str, &'static [u8])],
    data: Data,
) -> Row {
    Row { goes, status, fields, data }
}

static PATTERN: LazyLock<Bytes> =
    LazyLock::new(|| (0..LARGE).map(|at| (at / 7 + at) as u8).collect());
const LARGE: usize = 100_000;
const WORDS: &[&str] = &["hello ", "world"];
const HELLO: Data = Data::Whole("hello world");
const TRAILER: (&str, &[u8]) = ("trailer", b"x-sum, x-late");

pub(crate) const ROWS: &[Row] = &[
    // Lengths (row M5).
    row(On, 200, &[], HELLO),
    row(On, 200, &[], Data::Measured("hello world")),
    row(On, 200, &[], Data::Frames(WORDS)),
    row(On, 200, &[], Data::Slow(WORDS)),
    row(On, 200, &[("transfer-encoding", b"chunked")], Data::Frames(WORDS)),
    row(On, 200, &[("content-length", b"11")], Data::Frames(WORDS)),
    row(On, 200, &[("content-length", b"11")], Data::Slow(WORDS)),
    row(On, 200, &[], Data::Whole("")),
    row(On, 200, &[], Data::Frames(&[])),
    row(On, 200, &[], Data::Slow(&["", "x", ""])),
    row(On, 200, &[], Data::Large(LARGE)),
    row(On, 200, &[], Data::Many(3)),
    row(On, 200, &[("content-type", b"image/png")], Data::Whole("\0\r\n\x1a\x7f")),
    // Trailers, announced or not.
    row(On, 200, &[TRAILER], Data::Frames(WORDS)),
    row(On, 200, &[TRAILER], Data::Slow(WORDS)),
    row(On, 200, &[TRAILER], Data::Frames(&[])),
    row(On, 200, &[TRAILER], Data::Many(3)),
    row(On, 200, &[TRAILER, ("content-length", b"11")], Data::Frames(WORDS)),
    // Heads (rows L5, M6, M7).
    row(
        On,
        200,
        &[
            ("link", b"<a>"),
            ("x-empty", b""),
            ("link", b"<b>, <d>"),
            ("x-latin", b"caf\xe9"),
            ("link", b"<c>"),
            ("x-empty", b""),
            ("x-latin", b"\xff\x80"),
            ("x-spaces", b"a  \t b"),
            ("date", b"Tue, 15 Nov 1994 08:12:31 GMT"),
            ("etag", b"W/\"x\""),
            ("server", b"inner"),
        ],
        HELLO,
    ),
    row(
        On,
        200,
        &[
            ("connection", b"x-hop"),
            ("connection", b"close, X-Other"),
            ("keep-alive", b"timeout=5"),
            ("proxy-connection", b"keep-alive"),
            ("upgrade", b"h2c"),
            ("te", b"trailers"),
            ("x-hop", b"1"),
            ("x-other", b"1"),
            ("x-stays", b"1"),
        ],
        HELLO,
    ),
    row(On, 200, &[("connection", b"keep-alive, date, etag"), ("etag", b"\"x\"")], HELLO),
    row(
        On,
        200,
        &[("cache-status", b"origin; hit; ttl=10"), ("cache-status", b"\"an edge\"; fwd=stale")],
        HELLO,
    ),
    row(
        On,
        200,
        &[
            ("x-request-id", b"7"),
            ("ratelimit-reset", b"7"),
            ("x-b3-traceid", b"7"),
            ("vary", b"x-a"),
        ],
        HELLO,
    ),
    row(
        On,
        200,
        &[("content-encoding", b"gzip"), ("vary", b"accept-encoding")],
        Data::Whole("\x1f"),
    ),
    // Statuses.
    row(On, 203, &[], HELLO),
    row(On, 204, &[], Data::Whole("")),
    row(On, 204, &[("etag", b"\"x\""), ("content-length", b"5")], Data::Whole("")),
    row(On, 205, &[], Data::Whole("")),
    row(On, 205, &[("content-length", b"0")], Data::Frames(&[])),
    row(On, 299, &[], HELLO),
    row(On, 301, &[("location", b"/elsewhere")], HELLO),
    row(On, 401, &[("www-authenticate", b"Basic"), ("www-authenticate", b"Digest")], HELLO),
    row(On, 404, &[("x-why", b"a")], Data::Frames(WORDS)),
    row(On, 429, &[("retry-after", b"7")], HELLO),
    row(ToWaiting, 500, &[], Data::Frames(WORDS)),
    row(ToWaiting, 599, &[("x-why", b"a")], HELLO),
    row(ToWaiting, 200, &[("cache-control", b"max-age=0")], HELLO),
    row(ToWaiting, 200, &[("expires", b"Thu, 01 Jan 1970 00:00:00 GMT")], Data::Many(3)),
    // What is its own caller's.
    row(Nowhere, 200, &[("set-cookie", b"a=1"), ("set-cookie", b"b=2")], HELLO),
    row(Nowhere, 200, &[("cache-control", b"no-store"), TRAILER], Data::Frames(WORDS)),
    row(Nowhere, 200, &[("cache-control", b"private")], Data::Slow(WORDS)),
    row(Nowhere, 200, &[("vary", b"*")], Data::Many(3)),
    row(Nowhere, 206, &[("content-range", b"bytes 0-10/20")], HELLO),
    row(Nowhere, 304, &[("etag", b"\"x\"")], Data::Whole("")),
];

impl Row {
    /// The bytes of its body, where that is not kept from the client.
    pub(crate) fn bytes(&self) -> usize {
        self.frames().iter().map(Bytes::len).sum()
    }

    fn frames(&self) -> Vec<Bytes> {
        let pattern = |size| PATTERN.slice(..size);
        let texts = |texts: &'static [&'static str]| -> Vec<Bytes> {
            texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect()
        };
        match self.data {
            Data::Whole(text) | Data::Measured(text) => vec![text.into()],
            Data::Large(size) => vec![pattern(size)],
            Data::Frames(frames) | Data::Slow(frames) => texts(frames),
            Data::Many(count) => vec![pattern(32 << 10); count],
        }
    }

    /// A new answer; `bare` has the same head and no body.
    pub(crate) fn answer(&self, bare: bool) -> Response<Body> {
        let whole = matches!(self.data, Data::Whole(_) | Data::Measured(_) | Data::Large(_));
        let body = match self.frames() {
            _ if bare => Body::empty(),
            frames if whole => Body::from(frames.into_iter().next().unwrap_or_default()),
            frames => Body::new(self.stream(frames)),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status.try_into().unwrap();
        let headers = response.headers_mut();
        for (name, value) in self.fields {
            let value = HeaderValue::from_bytes(value).unwrap();
            headers.append(HeaderName::from_static(name), value);
        }
        if matches!(self.data, Data::Measured(_)) || (bare && whole && self.bytes() > 0) {
            headers.insert("content-length", self.bytes().into());
        }
        response
    }

    fn stream(
        &self,
        frames: Vec<Bytes>,
    ) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send + use<> {
        let mut frames: Vec<_> = frames.into_iter().map(Frame::data).collect();
        if self.fields.contains(&TRAILER) {
            frames.push(Frame::trailers(trailers()));
        }
        let slow = matches!(self.data, Data::Slow(_));
        StreamBody::new(futures_util::stream::unfold(
            frames.into_iter(),
            move |mut frames| async move {
                if slow {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Some((Ok(frames.next()?), frames))
            },
        ))
    }
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    for (name, value) in [("x-sum", &b"7"[..]), ("x-late", b""), ("x-sum", b"\xe9")] {
        trailers.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    trailers
}
