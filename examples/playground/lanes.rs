//! Who did what when: one lane a node, of spans with a beginning and an end.

use serde::Serialize;

use crate::report::Kind;

/// How far back the lanes go.
const KEPT_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// Inner runs, under a lease.
    Run,
    /// Inner runs without one.
    Alone,
    /// Follows another node.
    Wait,
    Frozen,
    Cut,
    Dead,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Span {
    pub(crate) node: usize,
    pub(crate) what: What,
    /// None for what is the whole node's.
    pub(crate) kind: Option<Kind>,
    pub(crate) token: Option<usize>,
    pub(crate) from: u64,
    pub(crate) to: Option<u64>,
    /// Whether it came to a good end.
    pub(crate) whole: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Lanes {
    spans: Vec<Span>,
}

impl Lanes {
    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    pub(crate) fn open(
        &mut self,
        now: u64,
        node: usize,
        what: What,
        of: Option<(Kind, Option<usize>)>,
    ) {
        self.spans.retain(|span| span.to.is_none_or(|to| to + KEPT_MS > now));
        let (kind, token) = of.map_or((None, None), |(kind, token)| (Some(kind), token));
        self.spans.push(Span { node, what, kind, token, from: now, to: None, whole: false });
    }

    /// Closes the open spans that are like this.
    pub(crate) fn close(&mut self, now: u64, whole: bool, is_it: impl Fn(&Span) -> bool) {
        for span in self.spans.iter_mut().filter(|span| span.to.is_none() && is_it(span)) {
            (span.to, span.whole) = (Some(now), whole);
        }
    }

    /// Opens or closes a node's waiting for this kind, as it is or is not.
    pub(crate) fn wait(&mut self, now: u64, node: usize, kind: Kind, token: Option<Option<usize>>) {
        let is_it =
            |span: &Span| span.node == node && span.what == What::Wait && span.kind == Some(kind);
        let open = self.spans.iter().find(|span| span.to.is_none() && is_it(span));
        if open.map(|span| span.token) != token {
            self.close(now, true, is_it);
            if let Some(token) = token {
                self.open(now, node, What::Wait, Some((kind, token)));
            }
        }
    }

    /// Opens or closes what is the whole node's.
    pub(crate) fn set(&mut self, now: u64, node: usize, what: What, on: bool) {
        self.close(now, true, |span| span.node == node && span.what == what);
        if on {
            self.open(now, node, what, None);
        }
    }
}
