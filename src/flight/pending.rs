//! What was read of an answer and is to be sent, in parts that fit into pieces.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{frame::Frame, log};

/// The most bytes of data in a piece.
pub(super) const PIECE: usize = 16 * 1024;
/// The most bytes of data that go in one step.
pub(super) const STEP: usize = 256 * 1024;

/// Frames that wait to be sent.
#[derive(Default)]
pub(super) struct Pending {
    /// Each fits into a piece; with it what it counts.
    parts: VecDeque<(Frame, usize)>,
    bytes: usize,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The bytes of all that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, frame: Frame) {
        self.bytes += frame.size();
        // All parts together count what the frame does.
        let least = log::size(&frame) - frame.size();
        self.parts.extend(parts(frame).map(|part| {
            let counts = part.size() + least;
            (part, counts)
        }));
    }

    pub(super) fn pop(&mut self) -> Option<(Frame, usize)> {
        let (part, counts) = self.parts.pop_front()?;
        self.bytes -= part.size();
        Some((part, counts))
    }
}

/// What pieces count, as their frames do in a log.
#[derive(Default)]
pub(super) struct Window {
    pieces: VecDeque<usize>,
    sum: usize,
}

impl Window {
    pub(super) fn push(&mut self, counted: usize) {
        self.pieces.push_back(counted);
        self.sum += counted;
    }

    /// How many of the last pieces there is room for.
    pub(super) fn shrink(&mut self, most: usize) -> u64 {
        while self.sum > most && self.pieces.len() > 1 {
            self.sum -= self.pieces.pop_front().unwrap_or_default();
        }
        self.pieces.len() as u64
    }
}

/// A frame in parts that fit into pieces; the bytes are shared, not copied.
fn parts(frame: Frame) -> impl Iterator<Item = Frame> {
    let (mut data, mut other) = match frame {
        Frame::Data(data) => (data, None),
        trailers => (Bytes::new(), Some(trailers)),
    };
    std::iter::from_fn(move || match data.is_empty() {
        true => other.take(),
        false => Some(Frame::Data(data.split_to(data.len().min(PIECE)))),
    })
}
