//! The store of the model: the memory store's own record, asked as its sessions ask.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    rules::{Mutant, Rules},
    wire::{Ask, Close, Found, Id, Lost, Name, Purpose, Push, Said, Tag, With, byte},
};
use crate::{
    store::memory::record::Record,
    store::{
        Abandoned, Append, Appended, BeatReply, EndStatus, Finish, Finished, Join, Joined, Pushed,
        Seal, StreamEnd,
    },
};

/// One tick.
pub(super) const TICK: Duration = Duration::from_secs(1);

pub(super) fn ticks(count: u8) -> Duration {
    TICK * count.into()
}

#[derive(Clone, Debug, Default)]
pub(super) struct Shop {
    pub(super) record: Record,
    pub(super) tokens: u64,
}

pub(super) fn name_of(bytes: &Bytes) -> Name {
    Name { token: bytes[0], id: Id(bytes[1]) }
}

pub(super) fn tag_of(bytes: &Bytes) -> Tag {
    (Id(bytes[0]), bytes[1])
}

pub(super) fn close_of(end: &StreamEnd) -> Close {
    (end.status, end.seal.as_ref().map(|seal| byte(seal.pieces)))
}

impl Shop {
    /// Runs one request as one step; what is said, and what is pushed.
    pub(super) fn serve(
        &mut self,
        ask: Ask,
        rules: &Rules,
        now: Instant,
    ) -> (Said, Option<Pushed>) {
        let ask = self.tamper(ask, rules, now);
        let record = &mut self.record;
        match ask {
            Ask::Join { id, waiter, known, purpose } => {
                let join = Join {
                    flight: id.flight(),
                    waiter: waiter.waiter(),
                    known: if rules.is(Mutant::Ignorant) { 0 } else { known.into() },
                    lease: ticks(rules.lease),
                    reuse: Duration::ZERO,
                    retention: ticks(rules.retention()),
                    look_only: purpose != Purpose::Own,
                };
                let mark = (purpose == Purpose::Watch).then(|| match rules.is(Mutant::DeadMark) {
                    true => Duration::ZERO,
                    false => TICK * 5 / 2,
                });
                let tokens = &mut self.tokens;
                let joined = record.join(&join, mark, now, |floor| {
                    *tokens = (*tokens).max(floor) + 1;
                    if rules.is(Mutant::SameToken) {
                        *tokens = 1;
                    }
                    *tokens
                });
                (Said::Found(found(joined)), None)
            }
            Ask::Renew(flight) => {
                let said = match record.renew(flight.full(), ticks(rules.lease), now) {
                    BeatReply::Renewed { waiters } => Said::Renewed(byte(waiters)),
                    BeatReply::Lost(loss) => Said::Lost(loss.into()),
                    _ => Said::Over,
                };
                (said, None)
            }
            Ask::Release { id, token, status } => {
                let id = id.flight();
                (Said::Gone, record.release(id, token.map(u64::from), status, now))
            }
            Ask::Leave(waiter) => {
                record.leave(waiter.waiter());
                (Said::Gone, None)
            }
            Ask::Finish { flight, status, with } => {
                let whole = || Bytes::copy_from_slice(&[flight.token, flight.id.0]);
                let seal = |pieces: u8| Seal { pieces: pieces.into(), proof: Bytes::new() };
                let finish = Finish {
                    flight: flight.full(),
                    status,
                    record: (with == With::Record).then(whole),
                    seal: if let With::Seal(pieces) = with { Some(seal(pieces)) } else { None },
                    fresh: Duration::ZERO,
                    keep: ticks(rules.retention()),
                    report: String::new(),
                };
                let (finished, pushed) = record.finish(finish, now);
                (self::finished(finished), pushed)
            }
            Ask::Abandon(flight) => {
                let (abandoned, pushed) = record.abandon(flight.full(), now);
                (self::abandoned(abandoned), pushed)
            }
            Ask::Append { flight, first, to } => {
                let append = Append {
                    flight: flight.full(),
                    first: first.into(),
                    pieces: (first..to)
                        .map(|at| Bytes::copy_from_slice(&[flight.id.0, at]))
                        .collect(),
                    kept_from: 0,
                    keep: ticks(rules.retention()),
                    inline: true,
                    to_come: 0,
                };
                let (appended, pushed) = record.append(append, now);
                (self::appended(appended), pushed)
            }
            Ask::Read { flight, from } => {
                let read = record.read(flight.full(), from.into(), now);
                let pieces = read.pieces.iter().map(tag_of).collect();
                let end = read.end.as_ref().map(close_of);
                (Said::Pieces { first: byte(read.first), pieces, end }, None)
            }
            Ask::Fetch => (Said::Record(record.fetch(now).as_ref().map(name_of)), None),
        }
    }

    /// Breaks a rule from outside, by what is asked or by what the record looks like.
    fn tamper(&mut self, ask: Ask, rules: &Rules, now: Instant) -> Ask {
        let (Some(mutant), Some(meta)) = (rules.mutant, &mut self.record.meta) else { return ask };
        let owner = Name::from(meta.owner);
        match (mutant, ask) {
            (Mutant::FinishByAnyone, Ask::Finish { status, with, .. }) => {
                return Ask::Finish { flight: owner, status, with };
            }
            (Mutant::AppendByAnyone, Ask::Append { first, to, .. }) => {
                return Ask::Append { flight: owner, first, to };
            }
            (Mutant::ReleaseAnyone, Ask::Release { status, .. }) => {
                return Ask::Release { id: owner.id, token: None, status };
            }
            (Mutant::FinishAgain, Ask::Finish { flight, .. }) if owner == flight => {
                meta.end = None;
                meta.lease_end = now + TICK;
            }
            (Mutant::GrantTooEarly, Ask::Join { purpose: Purpose::Own, .. }) => {
                meta.lease_end = now;
            }
            (Mutant::GrantAgain, Ask::Join { purpose: Purpose::Own, id, .. }) if owner.id == id => {
                self.record.meta = None;
            }
            (Mutant::AbandonWanted, Ask::Abandon(_)) => meta.waiters.clear(),
            _ => {}
        }
        ask
    }
}

pub(super) fn found(joined: Joined) -> Found {
    match joined {
        Joined::Own { token } => Found::Own(byte(token)),
        Joined::Follow { flight, left, pieces, .. } => {
            let left = byte(left.as_millis().div_ceil(TICK.as_millis()));
            Found::Follow { flight: flight.into(), left, pieces: byte(pieces) }
        }
        Joined::Done { flight, streamed, record, .. } => {
            Found::Done { flight: flight.into(), streamed, record: record.as_ref().map(name_of) }
        }
        Joined::Failed { flight, .. } => Found::Failed(flight.into()),
        Joined::Private { .. } => Found::Private,
        Joined::Ended { .. } => Found::Ended,
        Joined::Quarantined { .. } => Found::Quarantined,
        Joined::Lapsed => Found::Lapsed,
        Joined::Missing => Found::Missing,
        Joined::OtherFormat => unreachable!("one release writes here"),
        // Where a key is marked, whoever comes runs alone in any case.
        Joined::Probe { .. } => Found::Private,
    }
}

pub(super) fn finished(finished: Finished) -> Said {
    match finished {
        Finished::Accepted => Said::Accepted,
        Finished::Wanted => Said::Wanted,
        Finished::Gap { next } => Said::Gap(byte(next)),
        Finished::Lost(loss) => Said::Lost(loss.into()),
    }
}

pub(super) fn abandoned(abandoned: Abandoned) -> Said {
    match abandoned {
        Abandoned::Over => Said::Over,
        Abandoned::Wanted { .. } => Said::Wanted,
        Abandoned::Lost(_) => Said::Lost(Lost::Superseded),
    }
}

pub(super) fn appended(appended: Appended) -> Said {
    match appended {
        Appended::Accepted { next } => Said::Next(byte(next)),
        Appended::Gap { next } => Said::Gap(byte(next)),
        Appended::Over => Said::Over,
        Appended::Lost(loss) => Said::Lost(loss.into()),
    }
}

/// What a follower hears of a push, if anything.
pub(super) fn push(pushed: &Pushed) -> Option<Push> {
    Some(match pushed {
        Pushed::Ended { flight, status, record, seal } => Push::Ended {
            flight: (*flight).into(),
            status: *status,
            record: record.as_ref().map(name_of),
            seal: seal.as_ref().map(|seal| byte(seal.pieces)),
        },
        Pushed::Piece { flight, index, piece } => Push::Piece {
            flight: (*flight).into(),
            index: byte(*index),
            piece: piece.as_ref().map(tag_of),
        },
        Pushed::Released { flight } => Push::Released((*flight).into()),
        Pushed::Watched { .. } => return None,
        Pushed::Gap => Push::Gap,
    })
}

/// Whether a step of the store has ended a flight.
pub(super) fn ends(pushed: &Pushed) -> Option<(Name, EndStatus)> {
    match pushed {
        Pushed::Ended { flight, status, .. } => Some(((*flight).into(), *status)),
        Pushed::Released { flight } => Some(((*flight).into(), EndStatus::Abandoned)),
        _ => None,
    }
}
