//! What is kept of a key's answers: the last record, and the streams of its last
//! flights.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::meta::after;
use crate::{
    id::FlightRef,
    store::{Append, EndStatus, Pieces, Pushed, Seal, StreamEnd},
};

/// So many pieces are read at a time.
const READ: usize = 64;

/// The answers of one key.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Kept {
    /// Of the last flight that ended well with a record; outlives later flights.
    pub(super) result: Option<Stored>,
    /// Of the flight that has one now, and of the one before it.
    pub(super) streams: Vec<Stream>,
}

#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Stored {
    pub(super) flight: FlightRef,
    pub(super) record: Bytes,
    pub(super) expires: Instant,
}

#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Stream {
    pub(super) flight: FlightRef,
    /// The number of the first piece that is still there.
    pub(super) first: u64,
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) end: Option<StreamEnd>,
    pub(super) expires: Instant,
}

/// An answer that is there: in a record, or in a stream.
pub(super) struct Answer {
    pub(super) record: Option<Bytes>,
    pub(super) streamed: bool,
}

impl Stream {
    fn next(&self) -> u64 {
        self.first + self.pieces.len() as u64
    }
}

impl Kept {
    fn stream(&self, flight: FlightRef) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.flight == flight)
    }

    /// The whole answer of a flight that ended well, where it is there.
    pub(super) fn answer_of(&self, flight: FlightRef) -> Option<Answer> {
        let record = self.result.as_ref().filter(|stored| stored.flight == flight);
        if let Some(stored) = record {
            return Some(Answer { record: Some(stored.record.clone()), streamed: false });
        }
        let sealed = self.stream(flight)?.end.as_ref()?.seal.is_some();
        sealed.then_some(Answer { record: None, streamed: true })
    }

    /// How many pieces a flight's stream has had.
    pub(super) fn next(&self, flight: FlightRef) -> u64 {
        self.stream(flight).map_or(0, Stream::next)
    }

    /// Whether a flight's stream can no longer be read from its start.
    pub(super) fn is_trimmed(&self, flight: FlightRef) -> bool {
        self.stream(flight).is_some_and(|stream| stream.first > 0)
    }

    /// A new flight begins: what is older than the last one that ended goes.
    pub(super) fn begin(&mut self, prev: Option<FlightRef>) {
        self.streams.retain(|stream| Some(stream.flight) == prev);
    }

    /// Adds pieces that come right after those that are there, or says where they
    /// would have to begin.
    pub(super) fn append(&mut self, append: Append, now: Instant) -> Result<Option<Pushed>, u64> {
        let Append { flight, first, pieces, kept_from, keep, inline, .. } = append;
        let next = self.next(flight);
        if first > next {
            return Err(next);
        }
        let expires = after(now, keep);
        let stream = self.opened(flight, expires);
        let known = usize::try_from(next - first).unwrap_or(usize::MAX);
        let mut added = pieces.into_iter().skip(known);
        let piece = added.next();
        stream.pieces.extend(piece.clone());
        let alone = added.len() == 0;
        stream.pieces.extend(added);
        stream.expires = expires;
        while stream.first < kept_from && stream.pieces.pop_front().is_some() {
            stream.first += 1;
        }
        Ok(piece.map(|piece| {
            let piece = (alone && inline).then_some(piece);
            Pushed::Piece { flight, index: next, piece }
        }))
    }

    pub(super) fn read(&self, flight: FlightRef, from: u64) -> Pieces {
        let Some(stream) = self.stream(flight) else {
            return Pieces { first: from, ..Pieces::default() };
        };
        let first = from.max(stream.first).min(stream.next());
        let skip = usize::try_from(first - stream.first).unwrap_or(usize::MAX);
        let pieces: Vec<Bytes> = stream.pieces.iter().skip(skip).take(READ).cloned().collect();
        let all = first + pieces.len() as u64 == stream.next();
        Pieces { first, pieces, end: stream.end.clone().filter(|_| all) }
    }

    /// The flight has ended, with a record, a sealed stream, or neither.
    pub(super) fn end(
        &mut self,
        flight: FlightRef,
        status: EndStatus,
        record: Option<Bytes>,
        seal: Option<Seal>,
        expires: Instant,
    ) {
        if let Some(record) = record {
            self.result = Some(Stored { flight, record, expires });
        }
        let streamed = seal.is_some() || self.stream(flight).is_some();
        if streamed {
            let stream = self.opened(flight, expires);
            stream.end = Some(StreamEnd { status, seal });
            stream.expires = expires;
        }
    }

    /// A flight's stream, which is made where there is none.
    fn opened(&mut self, flight: FlightRef, expires: Instant) -> &mut Stream {
        let at = self.streams.iter().position(|stream| stream.flight == flight);
        let at = at.unwrap_or_else(|| {
            let (pieces, end) = (VecDeque::new(), None);
            self.streams.push(Stream { flight, first: 0, pieces, end, expires });
            self.streams.len() - 1
        });
        &mut self.streams[at]
    }

    pub(super) fn record(&self) -> Option<Bytes> {
        self.result.as_ref().map(|stored| stored.record.clone())
    }

    /// Keeps a flight's stream while its lease is renewed.
    pub(super) fn renew(&mut self, flight: FlightRef, lease: Duration, now: Instant) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.flight == flight) {
            stream.expires = stream.expires.max(after(now, lease.saturating_mul(2)));
        }
    }

    pub(super) fn purge(&mut self, now: Instant) {
        self.result.take_if(|stored| stored.expires <= now);
        self.streams.retain(|stream| now < stream.expires);
    }

    /// When the last of it has outlived its time.
    pub(super) fn expires(&self) -> Option<Instant> {
        let streams = self.streams.iter().map(|stream| stream.expires).max();
        streams.max(self.result.as_ref().map(|stored| stored.expires))
    }
}
