//! The steps of a store as values, and what they say of a history.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Mutex,
};

use bytes::Bytes;
use tokio::time::Instant;
use tower_singleflight::{
    FlightRef, KeyDigest,
    store::{
        Abandoned, Append, Appended, Beat, BeatReply, EndStatus, Finish, Finished, Join, Joined,
        Pieces, Pushed, Seal, Session, StoreError,
    },
};

use crate::history::{Asker, Deed, Flight, Step, Time};

/// What a session is asked.
#[derive(Clone)]
pub(crate) enum Ask {
    Join(Join),
    Fetch,
    Append(Append),
    Read(FlightRef, u64),
    Listen(FlightRef, std::time::Duration),
    Finish(Finish),
    Abandon(FlightRef),
    Forget,
}

/// What it answers.
pub(crate) enum Reply {
    Joined(Joined),
    Fetched(Option<Bytes>),
    Appended(Appended),
    Pieces(Pieces),
    Beat(BeatReply),
    Finished(Finished),
    Abandoned(Abandoned),
    Forgot,
}

impl Ask {
    pub(crate) async fn of(self, session: &mut dyn Session) -> Result<Reply, StoreError> {
        Ok(match self {
            Self::Join(join) => Reply::Joined(session.join(join).await?),
            Self::Fetch => Reply::Fetched(session.fetch().await?),
            Self::Append(append) => Reply::Appended(session.append(append).await?),
            Self::Read(flight, from) => Reply::Pieces(session.read(flight, from).await?),
            Self::Listen(flight, lease) => Reply::Beat(session.listen(flight, lease).await?),
            Self::Finish(finish) => Reply::Finished(session.finish(finish).await?),
            Self::Abandon(flight) => Reply::Abandoned(session.abandon(flight).await?),
            Self::Forget => {
                session.forget().await?;
                Reply::Forgot
            }
        })
    }
}

/// Writes the history down.
pub(crate) struct Recorder {
    begin: Instant,
    steps: Mutex<Vec<Step>>,
    /// How many pieces each flight has.
    pieces: Mutex<HashMap<Flight, u64>>,
}

fn flight(flight: FlightRef) -> Flight {
    Flight { token: flight.token, id: flight.id.as_u128() }
}

fn record(key: &KeyDigest) -> u64 {
    key.as_bytes().first_chunk().copied().map(u64::from_be_bytes).unwrap()
}

fn how(status: EndStatus) -> String {
    format!("{status:?}").to_lowercase()
}

/// Stands for all that others can have of an end.
fn outcome(record: Option<&Bytes>, seal: Option<&Seal>) -> Option<u64> {
    let bytes = record.or(seal.map(|seal| &seal.proof))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Some(hasher.finish())
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), steps: Mutex::default(), pieces: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Time {
        self.begin.elapsed().as_micros() as Time
    }

    pub(crate) fn take(&self) -> Vec<Step> {
        std::mem::take(&mut *self.steps.lock().unwrap())
    }

    pub(crate) fn note(&self, node: Option<usize>, key: &KeyDigest, deed: Deed) {
        let step = Step { at: self.now(), node, record: record(key), deed };
        self.steps.lock().unwrap().push(step);
    }

    /// A question and its answer, which came or was lost on its way.
    pub(crate) fn answered(
        &self,
        node: usize,
        key: &KeyDigest,
        ask: &Ask,
        reply: &Reply,
        asker: Asker,
        came: bool,
    ) {
        let until = |lease: std::time::Duration| self.now() + lease.as_micros() as Time;
        let deed = match (ask, reply) {
            (Ask::Join(join), Reply::Joined(joined)) => self.joined(join, joined, false, came),
            (Ask::Append(append), Reply::Appended(Appended::Accepted { next })) => {
                let flight = flight(append.flight);
                let mut pieces = self.pieces.lock().unwrap();
                let there = pieces.insert(flight, *next).unwrap_or(0);
                let again = *next == there;
                let from = append.first.max(there).min(*next);
                (!again).then_some(Deed::Added { flight, from, to: *next })
            }
            (Ask::Listen(of, lease), Reply::Beat(BeatReply::Renewed { .. })) => {
                Some(Deed::Renewed { flight: flight(*of), until: until(*lease) })
            }
            (Ask::Finish(finish), Reply::Finished(Finished::Accepted)) => Some(finished(finish)),
            (Ask::Abandon(of), Reply::Abandoned(Abandoned::Over)) => {
                Some(Deed::LetGo { id: of.id.as_u128() })
            }
            (Ask::Forget, _) => Some(Deed::Forgot),
            (Ask::Read(of, _), Reply::Pieces(Pieces { end: Some(end), .. })) if came => {
                Some(Deed::Told {
                    // It names the flight itself.
                    asker: Asker { known: of.token, ..asker },
                    flight: flight(*of),
                    how: how(end.status),
                    outcome: outcome(None, end.seal.as_ref()),
                })
            }
            _ => None,
        };
        deed.into_iter().for_each(|deed| self.note(Some(node), key, deed));
    }

    fn joined(&self, join: &Join, joined: &Joined, watch: bool, came: bool) -> Option<Deed> {
        // Who never hears of it knows nothing of it.
        let waiter = if came { join.waiter.as_u128() } else { join.flight.as_u128() };
        let asker = Asker { waiter, known: join.known, watch };
        let looked = |waits| came.then_some(Deed::Looked { asker, waits });
        match joined {
            Joined::Own { token } => Some(Deed::Granted {
                asker,
                flight: Flight { token: *token, id: join.flight.as_u128() },
                until: self.now() + join.lease.as_micros() as Time,
            }),
            Joined::Follow { flight: of, .. } if came => {
                Some(Deed::Followed { asker, flight: flight(*of) })
            }
            Joined::Done { flight: of, record, .. } if came => Some(Deed::Told {
                asker,
                flight: flight(*of),
                how: how(EndStatus::Done),
                outcome: outcome(record.as_ref(), None),
            }),
            Joined::Failed { flight: of, status: EndStatus::Failed, .. } if came => {
                let how = how(EndStatus::Failed);
                Some(Deed::Told { asker, flight: flight(*of), how, outcome: None })
            }
            // A driver whose process is leaving waits no more.
            Joined::Lapsed | Joined::Missing => looked(watch),
            _ => looked(false),
        }
    }

    /// A look that is not answered.
    pub(crate) fn looks(&self, node: usize, key: &KeyDigest, join: &Join, watch: bool) {
        let asker = Asker { waiter: join.waiter.as_u128(), known: join.known, watch };
        // A driver that cannot ask need not wait on.
        self.note(Some(node), key, Deed::Looked { asker, waits: watch });
    }

    /// One operation of a heartbeat.
    pub(crate) fn beat(&self, node: usize, beat: &Beat, reply: &BeatReply, came: bool) {
        let (key, deed) = match (beat, reply) {
            (Beat::Renew { key, flight: of, lease }, BeatReply::Renewed { .. }) => {
                let until = self.now() + lease.as_micros() as Time;
                (key, Some(Deed::Renewed { flight: flight(*of), until }))
            }
            (Beat::Watch { key, join, .. }, BeatReply::Watched(joined)) => {
                (key, self.joined(join, joined, true, came))
            }
            (Beat::Release { key, flight, .. }, _) => {
                (key, Some(Deed::LetGo { id: flight.as_u128() }))
            }
            (Beat::Leave { key, waiter }, _) => {
                (key, Some(Deed::Left { waiter: waiter.as_u128() }))
            }
            _ => return,
        };
        deed.into_iter().for_each(|deed| self.note(Some(node), key, deed));
    }

    /// A push that came.
    pub(crate) fn heard(&self, node: usize, key: &KeyDigest, waiter: u128, pushed: &Pushed) {
        let (of, over, outcome) = match pushed {
            Pushed::Ended { flight, record, seal, .. } => {
                (flight, true, outcome(record.as_ref(), seal.as_ref()))
            }
            Pushed::Released { flight } => (flight, true, None),
            Pushed::Piece { flight, .. } | Pushed::Watched { flight } => (flight, false, None),
            _ => return,
        };
        let deed = Deed::Heard { waiter, flight: flight(*of), over, outcome };
        self.note(Some(node), key, deed);
    }
}

fn finished(finish: &Finish) -> Deed {
    let (record, seal) = (finish.record.as_ref(), finish.seal.as_ref());
    let done = finish.status == EndStatus::Done;
    if finish.status == EndStatus::Abandoned || done && record.is_none() && seal.is_none() {
        return Deed::LetGo { id: finish.flight.id.as_u128() };
    }
    Deed::Agreed {
        flight: flight(finish.flight),
        how: how(finish.status),
        outcome: outcome(record, seal).unwrap_or(0),
    }
}
