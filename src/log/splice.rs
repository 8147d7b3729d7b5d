use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, HeaderName};

use super::{Next, Reader, SharedRun};
use crate::{
    frame::{Frame, Head, OF_THE_RUN},
    selection::Selection,
};

/// Reads one run's body, and goes on with another's where that begins with exactly
/// what was read. No body of two runs comes of it: where they differ it breaks off.
pub(crate) struct Splice {
    head: Arc<Head>,
    /// Which callers may have what is read.
    selection: Option<Arc<Selection>>,
    reader: Reader,
    /// There until the run that took over has given what was handed out before.
    check: Option<Box<Check>>,
    /// Bytes of data handed out.
    read: u64,
}

struct Check {
    /// Of all that was handed out.
    wanted: blake3::Hash,
    seen: blake3::Hasher,
    left: u64,
}

impl Splice {
    /// Reads from the start of what `reader` reads, under the head that was handed
    /// out for it, to a caller that `selection` fits.
    pub(crate) fn new(head: Arc<Head>, selection: Option<Arc<Selection>>, reader: Reader) -> Self {
        Self { head, selection, reader, check: None, read: 0 }
    }

    /// The next frame; `None` after a clean end, the reason after a broken one.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame, Arc<str>>>> {
        loop {
            let next = match ready!(self.reader.poll_next(cx)) {
                Next::Frame(frame) => self.take(frame).map(Some),
                Next::End if self.check.is_some() => Err(DIFFERS),
                Next::End => return Poll::Ready(None),
                Next::Broken(why) => return Poll::Ready(Some(Err(why))),
                Next::Behind => Err(FELL_BEHIND),
                Next::Moved(run) => self.go_over(&run).map(|()| Some(None)),
            };
            match next {
                Ok(Some(Some(frame))) => return Poll::Ready(Some(Ok(frame))),
                Ok(_) => {}
                Err(why) => return Poll::Ready(Some(Err(why.into()))),
            }
        }
    }

    /// Takes a frame in: all of it, what of it is new, or nothing.
    fn take(&mut self, frame: Frame) -> Result<Option<Frame>, &'static str> {
        let Some(check) = &mut self.check else {
            if let Frame::Data(bytes) = &frame {
                self.read += bytes.len() as u64;
            }
            return Ok(Some(frame));
        };
        let Frame::Data(mut bytes) = frame else { return Err(DIFFERS) };
        let known = usize::try_from(check.left).unwrap_or(usize::MAX).min(bytes.len());
        let known = bytes.split_to(known);
        check.seen.update(&known);
        check.left -= known.len() as u64;
        if check.left > 0 {
            return Ok(None);
        }
        if check.seen.finalize() != check.wanted {
            return Err(DIFFERS);
        }
        self.check = None;
        self.read += bytes.len() as u64;
        Ok((!bytes.is_empty()).then_some(Frame::Data(bytes)))
    }

    /// Goes over to another run.
    fn go_over(&mut self, run: &SharedRun) -> Result<(), &'static str> {
        // What fits this caller's request is known only of what it has begun with.
        let fits = run.selection.is_none() || run.selection == self.selection;
        if !fits || !is_same(&self.head, &run.head) {
            return Err(DIFFERS);
        }
        let reader = run.log.reader().ok_or(TOO_LATE)?;
        // A server may have told its client how long the body is.
        if self.reader.told_length().is_some_and(|told| reader.length() != Some(told)) {
            return Err(DIFFERS);
        }
        if self.read > 0 {
            let wanted = match &self.check {
                Some(check) => check.wanted,
                None => self.reader.digest().ok_or(TOO_LATE)?,
            };
            let seen = blake3::Hasher::new();
            self.check = Some(Box::new(Check { wanted, seen, left: self.read }));
        }
        self.reader = reader;
        Ok(())
    }

    /// True when nothing follows, trailers included.
    pub(crate) fn is_at_end(&self) -> bool {
        self.check.is_none() && self.reader.is_at_end()
    }

    /// The bytes of data that are still to come, where that is known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.reader.length()?.checked_sub(self.read)
    }

    /// Whether clients are told so.
    pub(crate) fn tells_length(&self) -> bool {
        self.reader.told_length().is_some()
    }
}

const FELL_BEHIND: &str = "this reader fell too far behind";
const DIFFERS: &str = "its owner was lost, and the next run's answer is another";
const TOO_LATE: &str = "its owner was lost, and the next run cannot be read from its start";

/// Whether two heads say the same: of the body, of how long it may be kept, of what comes
/// next. Which of them a header is about cannot be told by its name.
fn is_same(one: &Head, other: &Head) -> bool {
    let said = |headers: &HeaderMap| -> Vec<(HeaderName, Vec<u8>)> {
        let mut said: Vec<_> = headers
            .iter()
            .filter(|(name, _)| !OF_THE_RUN.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.as_bytes().to_vec()))
            .collect();
        // The order of lines of one name is kept: the sort is stable.
        said.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        said
    };
    one.status == other.status && said(&one.headers) == said(&other.headers)
}

impl fmt::Debug for Splice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Splice")
            .field("reader", &self.reader)
            .field("checking", &self.check.is_some())
            .finish_non_exhaustive()
    }
}
