//! Traces across processes, in the terms of W3C Trace Context. Plain data, and the one
//! thing that a tracing backend has to be told.

use std::{fmt, str::FromStr};

use tracing::Span;

/// Where a span is in its trace: a `traceparent` of W3C Trace Context.
///
/// ```
/// use tower_singleflight::TraceParent;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let parent: TraceParent = text.parse()?;
/// assert!(parent.is_sampled() && parent.span_id() == 0xb7ad_6b71_6920_3331);
/// assert_eq!(parent.to_string(), text);
/// # Ok::<(), tower_singleflight::ParseTraceParentError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    sampled: bool,
}

impl TraceParent {
    /// This span of this trace; none where one of the two ids is 0, which stands for none.
    #[must_use]
    pub const fn new(trace_id: u128, span_id: u64, sampled: bool) -> Option<Self> {
        if trace_id == 0 || span_id == 0 {
            return None;
        }
        Some(Self { trace: trace_id, span: span_id, sampled })
    }

    /// The id of the trace.
    #[must_use]
    pub const fn trace_id(&self) -> u128 {
        self.trace
    }

    /// The id of the span.
    #[must_use]
    pub const fn span_id(&self) -> u64 {
        self.span
    }

    /// Whether the span is recorded.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.sampled
    }
}

/// As the header has it, in version `00`.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// Reads version `00`, to the letter.
impl FromStr for TraceParent {
    type Err = ParseTraceParentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let rest = text.strip_prefix("00-")?;
            let (trace, rest) = rest.split_once('-')?;
            let (span, flags) = rest.split_once('-')?;
            let (trace, span) = (digits(trace, 32)?, digits(span, 16)?);
            let sampled = digits(flags, 2)? & 1 == 1;
            Self::new(trace, u64::try_from(span).ok()?, sampled)
        };
        read().ok_or(ParseTraceParentError(()))
    }
}

fn digits(text: &str, count: usize) -> Option<u128> {
    let plain = text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (text.len() == count && plain).then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// A text is no [`TraceParent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseTraceParentError(());

impl fmt::Display for ParseTraceParentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a traceparent has the form 00-<32 digits>-<16 digits>-<2 digits>")
    }
}

impl std::error::Error for ParseTraceParentError {}

/// What the layer asks of a tracing backend, so that followers' spans are linked to the
/// trace of the run that answered them: see
/// [`SingleFlightLayer::trace_context`](crate::SingleFlightLayer::trace_context).
///
/// With OpenTelemetry, by the crates `opentelemetry` and `tracing-opentelemetry`:
///
/// ```
/// use opentelemetry::trace::{
///     SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState,
/// };
/// use tower_singleflight::{TraceContext, TraceParent};
/// use tracing::Span;
/// use tracing_opentelemetry::OpenTelemetrySpanExt;
///
/// struct Otel;
///
/// impl TraceContext for Otel {
///     fn of(&self, span: &Span) -> Option<TraceParent> {
///         let context = span.context();
///         let here = context.span().span_context().clone();
///         let trace = u128::from_be_bytes(here.trace_id().to_bytes());
///         let span = u64::from_be_bytes(here.span_id().to_bytes());
///         TraceParent::new(trace, span, here.is_sampled())
///     }
///
///     fn link(&self, span: &Span, owner: &TraceParent) {
///         let flags = TraceFlags::default().with_sampled(owner.is_sampled());
///         let (trace, id) = (TraceId::from(owner.trace_id()), SpanId::from(owner.span_id()));
///         span.add_link(SpanContext::new(trace, id, flags, true, TraceState::NONE));
///     }
/// }
/// ```
pub trait TraceContext: Send + Sync + 'static {
    /// Where a span is in its trace; none where it is in none.
    fn of(&self, span: &Span) -> Option<TraceParent>;

    /// Links a span to that of the owner, which may be another process's.
    fn link(&self, span: &Span, owner: &TraceParent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_traceparent_is_refused() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        assert_eq!(good.parse::<TraceParent>().unwrap().to_string(), good);
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-x",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-00",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-00",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-00",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "00-éf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        ] {
            assert!(bad.parse::<TraceParent>().is_err(), "{bad}");
        }
    }
}
