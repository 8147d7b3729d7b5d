//! A way to the server that can be slow, silent or cut, and lose what is said on it.
//!
//! It knows requests and answers from each other, so that a fault can be aimed at one
//! step of the protocol.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

mod pipe;
mod step;
mod wire;

pub(crate) use self::step::{Scripts, Step};

/// A TCP proxy; gone when dropped.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// What happens at a step, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The connection is closed before the request is with the server.
    CutBefore,
    /// It is closed before the answer is with the client.
    CutAfter,
    /// The answer, and all after it, comes so much later.
    Delay(Duration),
    /// The request, and all after it on its connection, gets there so much later: also
    /// when nobody waits for it any more.
    Late(Duration),
    /// From this request on nothing gets to the server.
    MuteUp,
    /// From this request on, which gets there, nothing gets to the client.
    MuteDown,
    /// The answer is lost, and nothing else.
    SwallowReply,
    /// The request does not get to the server, and is answered with this error.
    Refuse(&'static str),
}

/// Messages that the server sends unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    Any,
    /// Who comes to wait.
    Watched,
    /// Pieces of a stream.
    Piece,
    /// The end of a flight.
    End,
}

/// Whether anything goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Open,
    /// Connections stay open, and new ones are taken, but nothing goes through until
    /// it is open again; what was said meanwhile then comes late.
    Silent,
    /// Connections are closed, and so are new ones.
    Cut,
}

struct Shared {
    scripts: Arc<Scripts>,
    way: watch::Sender<Way>,
    aim: Mutex<Aim>,
    /// When the fault that was aimed came to pass.
    hit: watch::Sender<Option<Instant>>,
    /// Answers that were passed on, by what they answer.
    passed: watch::Sender<HashMap<Step, u64>>,
}

#[derive(Clone, Copy)]
struct Way {
    server: u16,
    up: bool,
    down: bool,
    cut: bool,
    /// No answer is passed on before this.
    held: Instant,
    /// Connections of an earlier one are closed.
    term: u64,
    /// Connections of before the last time are forgotten.
    forgotten: u64,
}

enum Aim {
    Nothing,
    Step(Step, Kind),
    /// Another server takes over, for all of these.
    Swap(Step, u16, Vec<Arc<Shared>>),
    Push(Push),
}

impl Proxy {
    /// To the server at this port.
    pub(crate) async fn start(server: u16) -> Self {
        Self::aimed(server, Arc::default()).await
    }

    /// The same, which knows the steps of the protocol.
    pub(crate) async fn aimed(server: u16, scripts: Arc<Scripts>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let held = Instant::now();
        let way = Way { server, up: true, down: true, cut: false, held, term: 0, forgotten: 0 };
        let shared = Arc::new(Shared {
            scripts,
            way: watch::Sender::new(way),
            aim: Mutex::new(Aim::Nothing),
            hit: watch::Sender::new(None),
            passed: watch::Sender::new(HashMap::new()),
        });
        let accepting = tokio::spawn(pipe::accept(listener, Arc::clone(&shared)));
        Self { port, shared, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// For so long, what the server says does not get through.
    pub(crate) fn hold_replies(&self, time: Duration) {
        self.shared.way.send_modify(|way| way.held = Instant::now() + time);
    }

    pub(crate) fn set(&self, link: Link) {
        self.shared.way.send_modify(|way| {
            (way.up, way.down) = (link != Link::Silent, link != Link::Silent);
            way.cut = link == Link::Cut;
            way.term += u64::from(way.cut);
        });
    }

    /// Nothing goes through the connections of now any more, and nobody is told; new ones
    /// are as ever. So does a NAT with what was idle for too long.
    pub(crate) fn forget(&self) {
        self.shared.way.send_modify(|way| way.forgotten += 1);
    }

    /// The next message that the server pushes is lost.
    pub(crate) fn swallow_push(&self) {
        self.swallow(Push::Any);
    }

    /// The next message that tells of a flight's end is lost, and no other.
    pub(crate) fn swallow_end(&self) {
        self.swallow(Push::End);
    }

    pub(crate) fn swallow(&self, push: Push) {
        self.aim(Aim::Push(push));
    }

    /// Whether the message to be lost has come.
    pub(crate) fn has_swallowed(&self) -> bool {
        self.shared.hit.borrow().is_some()
    }

    /// The next such step fails so.
    pub(crate) fn arm(&self, step: Step, kind: Kind) {
        self.aim(Aim::Step(step, kind));
    }

    /// At the next such step another server takes the place of the one behind all of
    /// these: it is asked nothing any more, and all connections are closed.
    pub(crate) fn arm_swap<'a>(
        &self,
        step: Step,
        server: u16,
        all: impl IntoIterator<Item = &'a Self>,
    ) {
        let all = all.into_iter().map(|proxy| Arc::clone(&proxy.shared)).collect();
        self.aim(Aim::Swap(step, server, all));
    }

    fn aim(&self, aim: Aim) {
        self.shared.hit.send_replace(None);
        *self.shared.aim() = aim;
    }

    /// Waits until what was aimed has come to pass; panics where it does not.
    pub(crate) async fn hit(&self, patience: Duration) -> Instant {
        let mut hit = self.shared.hit.subscribe();
        let hit = tokio::time::timeout(patience, hit.wait_for(Option::is_some)).await;
        hit.expect("the fault was not hit").expect("the proxy").expect("an instant")
    }

    /// How many answers to such steps were passed on.
    pub(crate) fn passed(&self, step: Step) -> u64 {
        self.shared.passed.borrow().get(&step).copied().unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.set(Link::Cut);
    }
}

impl Shared {
    fn aim(&self) -> MutexGuard<'_, Aim> {
        self.aim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hit(&self) {
        self.hit.send_replace(Some(Instant::now()));
    }

    /// What happens to a request: nothing, or that it does not get to the server.
    fn strike(&self, step: Step) -> Option<Kind> {
        let mut aim = self.aim();
        match &*aim {
            Aim::Step(aimed, _) | Aim::Swap(aimed, ..) if *aimed == step => {}
            _ => return None,
        }
        match std::mem::replace(&mut *aim, Aim::Nothing) {
            Aim::Step(_, kind) => {
                drop(aim);
                match kind {
                    Kind::MuteUp => self.way.send_modify(|way| way.up = false),
                    Kind::MuteDown => self.way.send_modify(|way| way.down = false),
                    Kind::CutBefore | Kind::Late(_) => {}
                    // Hit where the answer comes.
                    Kind::CutAfter | Kind::Delay(_) | Kind::SwallowReply | Kind::Refuse(_) => {
                        return Some(kind);
                    }
                }
                self.hit();
                Some(kind)
            }
            Aim::Swap(_, server, all) => {
                drop(aim);
                for shared in all {
                    shared.way.send_modify(|way| {
                        way.server = server;
                        way.term += 1;
                    });
                }
                self.hit();
                Some(Kind::CutBefore)
            }
            Aim::Nothing | Aim::Push(_) => None,
        }
    }

    /// Whether a message is the one that is lost.
    fn swallows(&self, said: &[u8]) -> bool {
        // After the format comes the kind.
        let kind = said.get(1).copied().unwrap_or_default();
        let mut aim = self.aim();
        let Aim::Push(push) = *aim else { return false };
        let lost = match push {
            Push::Any => true,
            Push::Watched => kind == b'W',
            Push::Piece => b"PN".contains(&kind),
            Push::End => !b"PNW".contains(&kind),
        };
        if lost {
            *aim = Aim::Nothing;
            drop(aim);
            self.hit();
        }
        lost
    }
}
