//! The stream of another process's flight, as it comes in here.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::{Driver, deliver::FETCHES};
use crate::{
    flights::Origin,
    frame::Frame,
    id::FlightRef,
    log::{End, Log, Reuse, SharedRun},
    record::Decoder,
    store::{Seal, StoreError, StreamEnd},
};

/// What is there of a stream.
pub(super) struct Inflow {
    flight: FlightRef,
    origin: Origin,
    decoder: Decoder,
    /// From the first piece on.
    run: Option<SharedRun>,
    /// They are handed on with the end.
    trailers: Option<HeaderMap>,
}

/// How a stream stands.
#[derive(Debug)]
pub(super) enum Flow {
    /// More may come.
    Open,
    /// It is over.
    Ended(StreamEnd),
    /// It cannot be read: damaged, or its start is gone.
    Unreadable,
}

impl Inflow {
    /// The number of the piece that is wanted next.
    pub(super) fn next(&self) -> u64 {
        self.decoder.next()
    }

    pub(super) fn flight(&self) -> FlightRef {
        self.flight
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether callers have begun with it.
    pub(super) fn has_begun(&self) -> bool {
        self.run.is_some()
    }

    /// Whether callers have begun with what this flight gives, and it goes on.
    pub(super) fn goes_on(&self, flight: FlightRef) -> bool {
        self.flight == flight && self.run.as_ref().is_some_and(|run| !run.log.has_ended())
    }

    /// Breaks the answer off for those who have begun with it.
    pub(super) fn break_off(&self, why: &str) {
        if let Some(run) = &self.run {
            run.log.end(End::Broken(why.into()));
        }
    }

    /// Ends the answer well, if this is the seal of what came; the whole of it.
    pub(super) fn close(&mut self, seal: &Seal) -> Option<SharedRun> {
        let run = self.run.clone().filter(|_| self.decoder.is_sealed_by(seal))?;
        run.log.finish(self.trailers.take());
        Some(run)
    }
}

impl Driver {
    pub(super) fn inflow(&self, flight: FlightRef, origin: Origin) -> Inflow {
        let decoder = Decoder::new(&self.core.sealer, &self.flight.key(), flight);
        Inflow { flight, origin, decoder, run: None, trailers: None }
    }

    /// Hands on what is in the next piece; false where it does not fit.
    pub(super) async fn take_piece(&mut self, inflow: &mut Inflow, piece: &Bytes) -> bool {
        let Ok((head, frames)) = inflow.decoder.piece(piece) else {
            self.core.counts.bad_records();
            return false;
        };
        let mut opened = None;
        if let Some((head, length, terms)) = head {
            let log = Log::new(self.core.config.max_share_bytes, length);
            let run = SharedRun {
                head: Arc::new(head),
                log,
                reuse: Reuse::Never,
                selection: terms.selection,
            };
            inflow.run = Some(run.clone());
            opened = Some(run);
        }
        let Some(run) = &inflow.run else { return false };
        for frame in frames {
            match frame {
                Frame::Trailers(trailers) => inflow.trailers = Some(trailers),
                data => {
                    // The stream in the store does not wait.
                    run.log.room(&data, false).await;
                    run.log.push(data);
                }
            }
        }
        if let Some(run) = opened {
            self.flight.go_live(&run, inflow.origin);
        }
        true
    }

    /// Reads what is there and was not read: up to this many pieces in all where that is
    /// enough, else up to the end or to where nothing more is there.
    pub(super) async fn catch_up(
        &mut self,
        inflow: &mut Inflow,
        enough: Option<u64>,
    ) -> Result<Flow, StoreError> {
        loop {
            let from = inflow.next();
            let read = self.session.open().read(inflow.flight, from).await?;
            let came = !read.pieces.is_empty();
            if came && read.first != from {
                return Ok(Flow::Unreadable);
            }
            for piece in &read.pieces {
                if !self.take_piece(inflow, piece).await {
                    return Ok(Flow::Unreadable);
                }
            }
            match read.end {
                Some(end) => return Ok(Flow::Ended(end)),
                None if came && enough.is_none_or(|enough| inflow.next() < enough) => {}
                None => return Ok(Flow::Open),
            }
        }
    }

    /// Reads what is missing before an end that a push has told of; open where the store
    /// knows of no end.
    pub(super) async fn read_to_end(&mut self, inflow: &mut Inflow, end: StreamEnd) -> Flow {
        if end.seal.as_ref().is_none_or(|seal| inflow.decoder.is_sealed_by(seal)) {
            return Flow::Ended(end);
        }
        self.read_on(inflow).await
    }

    /// Reads what is missing of a flight that has ended.
    pub(super) async fn read_rest(&mut self, inflow: &mut Inflow) -> Flow {
        match self.read_on(inflow).await {
            Flow::Open => {
                self.core.counts.bad_records();
                Flow::Unreadable
            }
            flow => flow,
        }
    }

    /// Reads all that is there. An answer that was costly to make is worth a second try.
    pub(super) async fn read_on(&mut self, inflow: &mut Inflow) -> Flow {
        for _ in 0..FETCHES {
            if let Ok(flow) = self.catch_up(inflow, None).await {
                return flow;
            }
        }
        Flow::Unreadable
    }
}
