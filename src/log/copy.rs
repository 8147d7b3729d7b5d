//! Copies of whole answers, which keep nothing else in memory.

use std::sync::Arc;

use bytes::BytesMut;

use super::{End, Log, SharedRun};
use crate::frame::{Frame, copied};

impl SharedRun {
    /// The same answer, without anything else that its bytes keep in memory; and how many
    /// they are. None where it is not whole, or its body has more than `most` bytes.
    pub(crate) fn copied(&self, most: usize) -> Option<(Self, usize)> {
        let (log, held) = self.log.copied(most)?;
        let head = Arc::new(self.head.copied());
        let bytes = held + head.size();
        let run = Self { head, log, reuse: self.reuse, selection: self.selection.clone() };
        Some((run, bytes))
    }
}

impl Log {
    /// A log of the same body that keeps nothing else in memory, in one frame and its
    /// trailers; and what its frames count. None where the body is not all there, or has
    /// more than `most` bytes.
    fn copied(&self, most: usize) -> Option<(Arc<Self>, usize)> {
        let frames = {
            let state = self.state();
            let is_whole = state.first == 0 && matches!(state.end, Some(End::Clean));
            if !is_whole || state.data_bytes > most as u64 {
                return None;
            }
            state.frames.clone()
        };
        let copy = Self::new(usize::MAX, self.promised);
        let mut data = BytesMut::with_capacity(usize::try_from(self.data_bytes()).ok()?);
        let mut trailers = None;
        for frame in &frames {
            match frame {
                Frame::Data(bytes) => data.extend_from_slice(bytes),
                Frame::Trailers(map) => trailers = Some(copied(map)),
            }
        }
        if !data.is_empty() {
            copy.push(Frame::Data(data.freeze()));
        }
        copy.finish(trailers);
        let held = copy.held();
        Some((copy, held))
    }
}
