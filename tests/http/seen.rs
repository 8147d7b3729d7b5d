//! Bodies as they are read, and what they say of themselves at each step.

use bytes::Bytes;
use http_body::{Body, SizeHint};
use http_body_util::BodyExt;

/// A frame as it was read, and what the body had said just before.
pub(crate) struct Seen {
    pub(crate) hint: SizeHint,
    pub(crate) ended: bool,
    /// Bytes of data; none for trailers.
    pub(crate) data: Option<Bytes>,
}

/// How a body ended: cleanly or not, and what it had said just before.
pub(crate) struct Last {
    pub(crate) clean: bool,
    pub(crate) hint: SizeHint,
    pub(crate) ended: bool,
}

/// Reads a body to its end.
pub(crate) async fn read_steps<B: Body<Data = Bytes>>(body: B) -> (Vec<Seen>, Last) {
    let mut body = Box::pin(body);
    let mut seen = Vec::new();
    loop {
        let (hint, ended) = (body.size_hint(), body.is_end_stream());
        match body.frame().await {
            Some(Ok(frame)) => seen.push(Seen { hint, ended, data: frame.into_data().ok() }),
            end => return (seen, Last { clean: end.is_none(), hint, ended }),
        }
    }
}

/// Holds what was read to what was said, and gives the bytes.
pub(crate) fn check(seen: &[Seen], last: &Last, what: &str) -> Vec<u8> {
    let data = |seen: &Seen| seen.data.as_ref().map_or(0, |data| data.len() as u64);
    let mut left: u64 = seen.iter().map(data).sum();
    for step in seen {
        assert!(!step.ended, "{what}: the end was announced, and then came a frame");
        assert!(step.hint.upper().is_none_or(|upper| upper >= left), "{what}: {:?}", step.hint);
        assert!(!last.clean || step.hint.lower() <= left, "{what}: {:?}", step.hint);
        left -= data(step);
    }
    if last.clean {
        assert_eq!(last.hint.lower(), 0, "{what}");
    } else {
        assert!(!last.ended, "{what}: the end was announced, and then came an error");
    }
    seen.iter().filter_map(|step| step.data.clone()).flatten().collect()
}
