//! Whether server and user can do all that the store does: asked in one write.

use bb8_redis::redis::{Pipeline, ServerError, Value, aio::MultiplexedConnection};

use super::{
    cluster::{Territory, slot_of_flight},
    error,
    keys::Names,
    script::{CHECK, Call},
};
use crate::{
    id::{FlightId, KeyDigest},
    store::{StoreError, StoreErrorKind},
};

const NOTHING: &str = "return 1";

/// What is asked: names that no flight has.
pub(super) struct Asked {
    names: Names,
    channel: String,
    keys: Vec<String>,
    pushes: bool,
    role: bool,
    /// What people are shown a `*` for.
    any: String,
}

/// What came out, by what is to be done about it.
#[derive(Default)]
struct Findings {
    denied: Vec<String>,
    unknown: Vec<String>,
}

impl Asked {
    /// `pushes`: whether the store listens for pushes; `territory`: what the server has
    /// of a cluster.
    pub(super) fn new(names: &Names, pushes: bool, territory: Option<&Territory>) -> Self {
        let mut key = random_key();
        let has = |key| territory.is_none_or(|territory| territory.has(slot_of_flight(key)));
        // So many that a server with a single slot is found one, most likely.
        for _ in 0..100_000 {
            if has(key) || territory.is_some_and(Territory::is_empty) {
                break;
            }
            key = random_key();
        }
        let keys = vec![
            names.meta(key),
            names.waiters(key),
            names.result(key),
            names.staged(key, FlightId::random()),
            names.stream(key),
            names.owner_seq(),
        ];
        let (channel, any) = (names.channel(key), key.to_string());
        Self { names: names.clone(), channel, keys, pushes, role: false, any }
    }

    /// Asks besides whether the server may be asked if it is the master.
    pub(super) fn with_role(self) -> Self {
        Self { role: true, ..self }
    }

    /// Asks on this connection. The one key it writes is under the prefix, and gone in
    /// a second.
    pub(super) async fn check(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), StoreError> {
        let pipe = self.pipe();
        let answers = connection.send_packed_commands(&pipe, 0, pipe.len()).await;
        self.judge(&answers.map_err(|error| error::from_redis(&error))?)
    }

    /// Asks once more, while the store is at work, in one script: a server that takes no
    /// writes just now is of no use then, whatever the user may.
    pub(super) fn again(&self) -> Call {
        // In a cluster, the last one has a slot of its own.
        let keys = self.keys.len() - usize::from(self.names.is_sharded());
        let call = self.keys[..keys].iter().cloned().fold(CHECK.call(), Call::key);
        call.arg(&self.channel).arg(self.names.publish()).arg(1)
    }

    /// Hears the answer to [`again`](Self::again).
    pub(super) fn hear(&self, answer: &Value) -> Result<(), StoreError> {
        match answer {
            // A node of a cluster that knows who has the key is there.
            answer if self.names.is_sharded() && error::is_redirection(answer) => Ok(()),
            Value::ServerError(error) => Err(error::from_server(error)),
            Value::Array(found) => {
                let mut findings = Findings::default();
                found.iter().try_for_each(|finding| self.find(&mut findings, finding))?;
                findings.result(false)
            }
            _ => Err(error::bad_reply()),
        }
    }

    fn pipe(&self) -> Pipeline {
        let mut pipe = Pipeline::new();
        let hash = sha1_smol::Sha1::from(NOTHING).digest().to_string();
        pipe.cmd("EVALSHA").arg(hash).arg(0);
        let call = CHECK.call().key(self.keys[0].clone());
        pipe.add_command(call.arg(&self.channel).arg(self.names.publish()).arg(0).whole());
        // A right to fewer keys shows before a script begins.
        for key in &self.keys[1..] {
            pipe.cmd("EVAL").arg(NOTHING).arg(1).arg(key);
        }
        if self.pushes {
            pipe.cmd(self.names.subscribe()).arg(&self.channel);
            pipe.cmd(self.names.unsubscribe()).arg(&self.channel);
        }
        if self.role {
            pipe.cmd("ROLE");
        }
        if let Some(command) = self.marks() {
            pipe.cmd(command).arg(&self.channel);
        }
        if self.names.is_sharded() {
            pipe.cmd("ASKING");
        }
        // Last: what `ASKING` stands for ends with it. Nodes refuse keys of two slots.
        pipe.cmd("EVAL").arg(NOTHING).arg(2).arg(&self.keys[0]).arg(self.names.owner_seq());
        pipe
    }

    /// What marks the answers on a push connection to a node of a cluster.
    fn marks(&self) -> Option<&'static str> {
        (self.pushes && self.names.is_sharded()).then_some("UNSUBSCRIBE")
    }

    fn judge(&self, answers: &[Value]) -> Result<(), StoreError> {
        let mut findings = Findings::default();
        let mut answers = answers.iter();
        let mut next = || answers.next().ok_or_else(error::bad_reply);

        if let Some(error) = refusal(next()?)
            && error.code() != "NOSCRIPT"
        {
            findings.hear(error, "EVALSHA", None)?;
        }
        let found = next()?;
        match found {
            Value::Array(found) => {
                for finding in found {
                    self.find(&mut findings, finding)?;
                }
            }
            Value::ServerError(error) if self.is_elsewhere(error) => {}
            Value::ServerError(error) => {
                findings.hear(error, "EVAL (scripting)", Some(&self.key(0)))?;
            }
            _ => return Err(error::bad_reply()),
        }
        for place in 1..self.keys.len() {
            if let Some(error) = refusal(next()?)
                && !self.is_elsewhere(error)
            {
                findings.hear(error, "EVAL (scripting)", Some(&self.key(place)))?;
            }
        }
        if self.pushes {
            for command in [self.names.subscribe(), self.names.unsubscribe()] {
                if let Some(error) = refusal(next()?)
                    && !self.is_elsewhere(error)
                {
                    findings.hear(error, command, Some(&self.channels()))?;
                }
            }
        }
        let role = self.role.then_some("ROLE");
        let asking = self.names.is_sharded().then_some("ASKING");
        for command in role.into_iter().chain(self.marks()).chain(asking) {
            if let Some(error) = refusal(next()?) {
                findings.hear(error, command, None)?;
            }
        }
        if let Some(error) = refusal(next()?)
            && error.code() == "CROSSSLOT"
            && !self.names.is_sharded()
        {
            return Err(error::from_server(error));
        }
        findings.result(self.names.is_sharded() && self.pushes)
    }

    /// Whether a node of a cluster has not got what was named: rights came before that.
    fn is_elsewhere(&self, error: &ServerError) -> bool {
        let elsewhere = matches!(error.code(), "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN");
        self.names.is_sharded() && elsewhere
    }

    /// Hears one thing that the script found.
    fn find(&self, findings: &mut Findings, finding: &Value) -> Result<(), StoreError> {
        let Value::BulkString(finding) = finding else { return Err(error::bad_reply()) };
        let finding = std::str::from_utf8(finding).map_err(|_| error::bad_reply())?;
        let (what, name) = finding.split_once(' ').ok_or_else(error::bad_reply)?;
        match what {
            "command" => findings.denied(name.to_owned()),
            "key" => findings.denied(self.key(0)),
            "channel" => findings.denied(self.channels()),
            // Nobody can listen there.
            "unknown" if name == "SPUBLISH" && !self.pushes => {}
            "unknown" => findings.unknown(name.to_owned()),
            "readonly" => {
                let why = "the server takes no writes: it is a replica";
                return Err(StoreError::new(StoreErrorKind::ReadOnly, why));
            }
            "old" => {
                let why = format!("version {name} of the server: 6.2 or newer is needed");
                return Err(StoreError::new(StoreErrorKind::Unsupported, why));
            }
            _ => return Err(error::bad_reply()),
        }
        Ok(())
    }

    fn key(&self, place: usize) -> String {
        let key = self.keys[place].replace(&self.any, "*");
        // The flight, where a key names one.
        let end = key.rfind('}').map_or(key.len(), |brace| brace + 1);
        let rest = if end < key.len() && key.contains('{') { ":*" } else { "" };
        format!("keys {}{rest}", &key[..end])
    }

    fn channels(&self) -> String {
        format!("channels {}", self.channel.replace(&self.any, "*"))
    }
}

impl Findings {
    fn denied(&mut self, name: String) {
        if !self.denied.contains(&name) {
            self.denied.push(name);
        }
    }

    fn unknown(&mut self, name: String) {
        if !self.unknown.contains(&name) {
            self.unknown.push(name);
        }
    }

    /// A refused command: itself, or what it named, or another thing altogether.
    fn hear(
        &mut self,
        error: &ServerError,
        command: &str,
        named: Option<&str>,
    ) -> Result<(), StoreError> {
        let detail = error.details().unwrap_or_default();
        match (error.code(), named) {
            ("NOPERM", Some(named)) if !detail.contains("to run the '") => {
                self.denied(named.to_owned());
            }
            ("NOPERM", _) => self.denied(command.to_owned()),
            ("ERR", _) if detail.contains("unknown command") => self.unknown(command.to_owned()),
            _ => return Err(error::from_server(error)),
        }
        Ok(())
    }

    fn result(self, sharded_pushes: bool) -> Result<(), StoreError> {
        let Self { denied, unknown } = self;
        if !denied.is_empty() {
            let text = format!("the user lacks the right to {}", denied.join(", "));
            return Err(StoreError::new(StoreErrorKind::Denied, text));
        }
        if !unknown.is_empty() {
            let mut text = format!("the server does not know {}", unknown.join(", "));
            if sharded_pushes && unknown.iter().any(|name| name == "SSUBSCRIBE") {
                text.push_str(": a cluster needs Redis 7.0, or ?protocol=resp2 in its address");
            }
            return Err(StoreError::new(StoreErrorKind::Unsupported, text));
        }
        Ok(())
    }
}

fn random_key() -> KeyDigest {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&FlightId::random().as_u128().to_be_bytes());
    bytes[16..].copy_from_slice(&FlightId::random().as_u128().to_be_bytes());
    KeyDigest::from_bytes(bytes)
}

fn refusal(value: &Value) -> Option<&ServerError> {
    if let Value::ServerError(error) = value { Some(error) } else { None }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
