//! What a client got, beside what it would have got without the layer.

use std::fmt::Debug;

use http::{HeaderMap, Method};

use super::answers::Row;
use crate::support::Answer;

/// What the layer says of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Owner,
    Collapsed,
    Hit,
    Bypass,
}

impl Said {
    const ALL: [Self; 4] = [Self::Owner, Self::Collapsed, Self::Hit, Self::Bypass];

    const fn text(self) -> &'static str {
        match self {
            Self::Owner => "tower-singleflight; fwd=miss",
            Self::Collapsed => "tower-singleflight; fwd=miss; collapsed",
            Self::Hit => "tower-singleflight; hit",
            Self::Bypass => "tower-singleflight; fwd=bypass",
        }
    }

    pub(crate) fn of(answer: &Answer) -> Self {
        let lines = answer.headers.get_all("cache-status");
        let last = lines.iter().next_back().expect("the layer says something");
        let said = Self::ALL.into_iter().find(|said| last == said.text());
        said.unwrap_or_else(|| panic!("{last:?}"))
    }

    pub(crate) const fn is_shared(self) -> bool {
        matches!(self, Self::Collapsed | Self::Hit)
    }
}

/// Headers that only the client whose request was run gets, in the rows of this table.
const OWN: &[&str] = &[
    "keep-alive",
    "proxy-connection",
    "ratelimit-reset",
    "te",
    "upgrade",
    "x-b3-traceid",
    "x-hop",
    "x-other",
    "x-request-id",
];

/// Looked at apart.
const APART: &[&str] =
    &["age", "cache-status", "connection", "content-length", "date", "transfer-encoding"];

fn lines(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers.get_all(name).iter().map(|line| line.as_bytes().escape_ascii().to_string()).collect()
}

/// All fields but these, by name, the lines of one name in their order.
fn fields(headers: &HeaderMap, without: impl Fn(&str) -> bool) -> Vec<(String, Vec<String>)> {
    let kept = headers.keys().filter(|name| !without(name.as_str()));
    let mut fields: Vec<_> =
        kept.map(|name| (name.to_string(), lines(headers, name.as_str()))).collect();
    fields.sort();
    fields
}

/// Where `got` differs from what the same client gets of the same handler alone.
pub(crate) struct Differences<'a> {
    pub(crate) row: &'a Row,
    pub(crate) method: &'a Method,
    pub(crate) alone: &'a Answer,
    pub(crate) got: &'a Answer,
    pub(crate) found: Vec<String>,
}

impl Differences<'_> {
    pub(crate) fn find(mut self) -> Vec<String> {
        let Self { alone, got, .. } = self;
        self.same("status", &got.status, &alone.status);
        self.same("version", &got.version, &alone.version);
        self.same("bytes", &got.body.len(), &alone.body.len());
        self.check("other bytes", got.body == alone.body);
        let trailers = |answer: &Answer| answer.trailers.as_ref().map(|map| fields(map, |_| false));
        self.same("trailers", &trailers(got), &trailers(alone));
        self.fields();
        self.framing();
        self.found
    }

    fn same<T: PartialEq + Debug>(&mut self, what: &str, got: &T, alone: &T) {
        if got != alone {
            self.found.push(format!("{what}: {got:?}, alone {alone:?}"));
        }
    }

    fn check(&mut self, what: &str, holds: bool) {
        if !holds {
            self.found.push(what.to_owned());
        }
    }

    fn fields(&mut self) {
        let Self { row, alone, got, .. } = *self;
        let said = Said::of(got);
        let mut expected = lines(&alone.headers, "cache-status");
        expected.push(said.text().into());
        self.same("cache-status", &lines(&got.headers, "cache-status"), &expected);
        let handler = row.answer(true);
        let named = lines(handler.headers(), "connection").concat();
        let expected = fields(&alone.headers, |name| {
            let own = OWN.contains(&name) || named.split(", ").any(|other| other == name);
            APART.contains(&name) || said.is_shared() && own
        });
        self.same("fields", &fields(&got.headers, |name| APART.contains(&name)), &expected);
        let ages = [got, alone].map(|answer| lines(&answer.headers, "age"));
        if said == Said::Hit {
            let seconds = |age: &String| age.parse::<u64>().ok();
            let before = ages[1].first().and_then(seconds).unwrap_or_default();
            let after = ages[0].first().and_then(seconds);
            self.check("an age", ages[0].len() == 1 && after.is_some_and(|age| age >= before));
        } else {
            self.same("age", &ages[0], &ages[1]);
        }
        // The handler's own, or the server's.
        let dates = [got, alone].map(|answer| lines(&answer.headers, "date"));
        match handler.headers().get("date") {
            Some(_) => self.same("date", &dates[0], &dates[1]),
            None => self.same("dates", &dates[0].len(), &dates[1].len()),
        }
    }

    /// Lengths are true, and those that a client alone is told are told to all.
    fn framing(&mut self) {
        let Self { row, method, alone, got, .. } = *self;
        let lengths = lines(&got.headers, "content-length");
        let chunked = lines(&got.headers, "transfer-encoding");
        self.check("a length, and in chunks", lengths.len() + chunked.len() <= 1);
        let before = lines(&alone.headers, "content-length");
        if !before.is_empty() {
            self.same("length", &lengths, &before);
        } else if let [length] = &lengths[..] {
            let bytes = if method == Method::HEAD { row.bytes() } else { got.body.len() };
            self.same("length", length, &bytes.to_string());
        } else {
            self.same("chunks", &chunked, &lines(&alone.headers, "transfer-encoding"));
        }
        let connection = lines(&got.headers, "connection");
        if Said::of(got).is_shared() {
            // What a handler says of its own connection is nothing to others.
            self.same("connection", &connection, &Vec::new());
        } else {
            self.same("connection", &connection, &lines(&alone.headers, "connection"));
        }
    }
}
