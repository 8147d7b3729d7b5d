//! What a server's monitor shows, as the steps of a history.
//!
//! It shows each call of a script with what it was asked, and then the commands that the
//! script gave: by these it is known what the step did, in the server's own order.

use std::collections::HashMap;

use crate::history::{Asker, Deed, Flight, Step, Time};

/// So much of an argument is kept.
const SHORT: usize = 256;

/// A line of the monitor.
#[derive(Debug)]
pub(crate) struct Line {
    at: Time,
    /// None for a command of a script.
    from: Option<String>,
    args: Vec<String>,
}

impl Line {
    /// `+1700000000.123456 [0 127.0.0.1:41000] "EVALSHA" "…" …`
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (time, rest) = line.strip_prefix('+')?.split_once(" [")?;
        let (from, command) = rest.split_once("] ")?;
        let from = from.split_once(' ')?.1;
        let at = time.replace('.', "").parse().ok()?;
        let mut args = args(command);
        if args.first().is_some_and(|name| name.eq_ignore_ascii_case("EVAL")) && from != "lua" {
            args[0] = "EVALSHA".to_owned();
        }
        Some(Self { at, from: (from != "lua").then(|| from.to_owned()), args })
    }

    fn is(&self, name: &str) -> bool {
        self.args.first().is_some_and(|command| command == name)
    }

    /// The value of a field of a hash that is set.
    fn field(&self, name: &str) -> Option<&str> {
        let mut pairs = self.args.get(2..)?.chunks_exact(2);
        pairs.find(|pair| pair[0] == name).map(|pair| pair[1].as_str())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }
}

/// The arguments of a command, each between quotes; what is escaped stays so.
fn args(command: &str) -> Vec<String> {
    let (mut args, mut arg, mut inside, mut escaped) = (Vec::new(), String::new(), false, false);
    for char in command.chars() {
        match char {
            '"' if !inside => inside = true,
            _ if !inside => {}
            '"' if !escaped => {
                inside = false;
                args.push(std::mem::take(&mut arg));
            }
            _ => {
                escaped = char == '\\' && !escaped;
                if arg.len() < SHORT {
                    arg.push(char);
                }
            }
        }
    }
    args
}

/// A script that was called.
#[derive(Debug, Default)]
struct Call {
    at: Time,
    node: Option<usize>,
    keys: Vec<String>,
    args: Vec<String>,
    /// An answer of `join` is yet to be seen.
    unanswered: bool,
}

impl Call {
    fn number(&self, at: usize) -> u64 {
        self.args.get(at).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn id(&self, at: usize) -> u128 {
        self.args.get(at).and_then(|text| u128::from_str_radix(text, 16).ok()).unwrap_or(0)
    }

    /// Whether its keys are of these kinds, in this order.
    fn is(&self, kinds: &[&str]) -> bool {
        self.keys.len() == kinds.len()
            && self.keys.iter().zip(kinds).all(|(key, kind)| key.contains(&format!(":{kind}")))
    }

    fn is_join(&self) -> bool {
        self.is(&["meta:", "waiters:", "result:", "stream:", "owner-seq"])
    }

    /// The first three words of `finish` are token, flight and how it ends; `release` has
    /// the id before the token.
    fn is_finish(&self) -> bool {
        let is_end = |word: &String| word != "abandoned" && word.chars().all(char::is_alphabetic);
        self.keys.len() >= 2 && self.args.len() >= 5 && self.args.get(2).is_some_and(is_end)
    }

    fn asker(&self) -> Asker {
        let watch = self.number(7) > 0;
        Asker { waiter: self.id(1), known: self.number(2), watch }
    }

    /// The flight that `renew`, `append`, `finish` and `abandon` name first.
    fn flight(&self) -> Flight {
        Flight { token: self.number(0), id: self.id(1) }
    }
}

/// Reads the lines. `node` says whose connection it is.
pub(crate) fn steps(lines: &[Line], node: impl Fn(&str) -> Option<usize>) -> Vec<Step> {
    let mut reader = Reader::default();
    for line in lines {
        match &line.from {
            Some(from) => reader.command(line, node(from)),
            None => reader.effect(line),
        }
    }
    reader.answered();
    reader.steps
}

#[derive(Default)]
struct Reader {
    steps: Vec<Step>,
    call: Call,
    owners: HashMap<u64, Flight>,
    waiting: HashMap<u64, Vec<u128>>,
}

/// A record's name: the first half of what stands between the braces.
fn record(key: &str) -> u64 {
    let digest = key.split_once('{').map_or("", |(_, rest)| rest);
    u64::from_str_radix(digest.get(..16).unwrap_or_default(), 16).unwrap_or(0)
}

impl Reader {
    fn note(&mut self, at: Time, deed: Deed) {
        let record = self.call.keys.first().map_or(0, |key| record(key));
        self.steps.push(Step { at, node: self.call.node, record, deed });
    }

    /// A `join` that changed nothing had another answer.
    fn answered(&mut self) {
        if std::mem::take(&mut self.call.unanswered) {
            let asker = self.call.asker();
            self.note(self.call.at, Deed::Looked { asker, waits: false });
        }
    }

    fn command(&mut self, line: &Line, node: Option<usize>) {
        self.answered();
        self.call = Call { at: line.at, node, ..Call::default() };
        if line.is("FLUSHALL") {
            self.owners.clear();
            self.waiting.clear();
            return self.note(line.at, Deed::DataLost);
        }
        if !line.is("EVALSHA") {
            return;
        }
        let keys = line.args.get(2).and_then(|keys| keys.parse().ok()).unwrap_or(0);
        let mut rest = line.args.iter().skip(3).cloned();
        self.call.keys = rest.by_ref().take(keys).collect();
        self.call.args = rest.collect();
        self.call.unanswered = self.call.is_join();
        if self.call.is(&["waiters:"]) {
            let waiter = self.call.id(0);
            self.note(line.at, Deed::Left { waiter });
        }
    }

    /// What a script did.
    fn effect(&mut self, line: &Line) {
        let key = line.args.get(1).map_or("", String::as_str);
        let record = record(key);
        if line.is("HSET") && key.contains(":meta:") {
            self.meta(line, record);
        } else if line.is("ZADD") {
            let asker = self.call.asker();
            self.call.unanswered = false;
            self.waiting.entry(record).or_default().push(asker.waiter);
            if let Some(flight) = self.owners.get(&record).copied() {
                self.note(self.call.at, Deed::Followed { asker, flight });
            }
        } else if line.is("XADD") && line.args.get(3).is_some_and(|kind| kind == "p") {
            let index = line.args[2].split_once('-').and_then(|(_, index)| index.parse().ok());
            let to: u64 = index.unwrap_or(0);
            let flight = self.call.flight();
            self.note(self.call.at, Deed::Added { flight, from: to.saturating_sub(1), to });
        } else if line.is("PUBLISH") {
            let kind = line.args.get(2).and_then(|push| push.chars().nth(1));
            if let (Some(flight), Some('E' | 'R' | 'B' | 'S')) = (self.owners.get(&record), kind) {
                let flight = *flight;
                for waiter in self.waiting.remove(&record).unwrap_or_default() {
                    self.note(line.at, Deed::Heard { waiter, flight, over: true, outcome: None });
                }
            }
        }
    }

    fn meta(&mut self, line: &Line, record: u64) {
        let now = line.number("heartbeatAt");
        let until = now.zip(line.number("lease")).map(|(now, lease)| now + lease * 1000);
        let ended = line.number("endedAt").unwrap_or(line.at);
        match (line.field("status"), until, now) {
            (Some("running"), Some(until), Some(now)) => {
                let flight =
                    Flight { token: line.number("ownerToken").unwrap_or(0), id: self.call.id(0) };
                self.call.unanswered = false;
                self.owners.insert(record, flight);
                let asker = self.call.asker();
                self.note(now, Deed::Granted { asker, flight, until });
            }
            (None, Some(until), Some(now)) => {
                self.call.unanswered = false;
                let own = self.owners.get(&record).copied().filter(|_| self.call.is_join());
                let flight = own.unwrap_or_else(|| self.call.flight());
                self.note(now, Deed::Renewed { flight, until });
            }
            (Some("forgotten"), ..) => self.note(ended, Deed::Forgot),
            // Of all that end a flight, only `finish` says how as its third word.
            (Some(how), None, _) if self.call.is_finish() => {
                let (flight, how) = (self.call.flight(), how.to_owned());
                self.note(
                    ended,
                    match how.as_str() {
                        "abandoned" => Deed::LetGo { id: flight.id },
                        _ => Deed::Ended { flight, how, outcome: 0 },
                    },
                );
            }
            (Some(_), None, _) => {
                // `release` names the id first, and `abandon` the token.
                let at = usize::from(self.call.keys.len() == 2);
                let id = self.call.id(at);
                self.note(ended, Deed::LetGo { id });
            }
            _ => {}
        }
    }
}
