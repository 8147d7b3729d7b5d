//! Whether server and user can do all that the store does: asked in one write.

use bb8_redis::redis::{Pipeline, ServerError, Value, aio::MultiplexedConnection};

use super::{
    cluster::{Territory, slot_of_flight},
    error,
    keys::Names,
    script::CHECK,
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
            names.probe(),
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

    fn pipe(&self) -> Pipeline {
        let mut pipe = Pipeline::new();
        let hash = sha1_smol::Sha1::from(NOTHING).digest().to_string();
        pipe.cmd("EVALSHA").arg(hash).arg(0);
        let call = CHECK.call().key(self.keys[0].clone());
        pipe.add_command(call.arg(&self.channel).arg(self.names.publish()).whole());
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
mod tests {
    use bb8_redis::redis::parse_redis_value;

    use super::*;

    fn asked() -> Asked {
        Asked::new(&Names::new("ai:flight", 0), true, None).with_role()
    }

    /// What a server answers that has nothing to complain of, but for one answer.
    fn judge(asked: &Asked, place: usize, answer: &str) -> Result<(), StoreError> {
        let mut answers = vec![
            "-NOSCRIPT No matching script. Please use EVAL.\r\n",
            "*0\r\n",
            ":1\r\n",
            ":1\r\n",
            ":1\r\n",
            ":1\r\n",
            ":1\r\n",
            ":1\r\n",
            "+OK\r\n",
            "+OK\r\n",
            "+OK\r\n",
            ":1\r\n",
        ];
        answers[place] = answer;
        let answers: Vec<Value> = answers
            .into_iter()
            .map(|answer| parse_redis_value(answer.as_bytes()).expect("an answer"))
            .collect();
        assert_eq!(answers.len(), asked.pipe().len());
        asked.judge(&answers)
    }

    #[test]
    fn what_is_missing_is_named() {
        let asked = asked();
        let denied = "-NOPERM this user has no permissions to run the 'x' command\r\n";
        let key = "-NOPERM No permissions to access a key\r\n";
        let unknown = "-ERR unknown command 'x', with args beginning with: \r\n";
        for (place, answer, kind, name) in [
            (0, denied, StoreErrorKind::Denied, "EVALSHA"),
            (0, unknown, StoreErrorKind::Unsupported, "EVALSHA"),
            (1, denied, StoreErrorKind::Denied, "EVAL (scripting)"),
            (1, unknown, StoreErrorKind::Unsupported, "EVAL (scripting)"),
            (1, key, StoreErrorKind::Denied, "keys ai:flight:meta:{*}"),
            (2, key, StoreErrorKind::Denied, "keys ai:flight:waiters:{*}"),
            (3, key, StoreErrorKind::Denied, "keys ai:flight:result:{*}"),
            (4, key, StoreErrorKind::Denied, "keys ai:flight:result:{*}:*"),
            (5, key, StoreErrorKind::Denied, "keys ai:flight:stream:{*}"),
            (6, key, StoreErrorKind::Denied, "keys ai:flight:owner-seq"),
            (7, key, StoreErrorKind::Denied, "keys ai:flight:probe"),
            (8, denied, StoreErrorKind::Denied, "SUBSCRIBE"),
            (8, key, StoreErrorKind::Denied, "channels ai:flight:push:0:{*}"),
            (9, denied, StoreErrorKind::Denied, "UNSUBSCRIBE"),
            (10, denied, StoreErrorKind::Denied, "ROLE"),
            (1, "*1\r\n$12\r\ncommand XADD\r\n", StoreErrorKind::Denied, "XADD"),
            (1, "*1\r\n$9\r\nchannel c\r\n", StoreErrorKind::Denied, "ai:flight:push:0:{*}"),
            (1, "*1\r\n$12\r\nunknown XADD\r\n", StoreErrorKind::Unsupported, "XADD"),
            (1, "*1\r\n$10\r\nold 6.0.16\r\n", StoreErrorKind::Unsupported, "6.0.16"),
            (1, "*1\r\n$12\r\nreadonly SET\r\n", StoreErrorKind::ReadOnly, "replica"),
            (1, "*1\r\n$4\r\nnone\r\n", StoreErrorKind::Reply, ""),
            (1, "$-1\r\n", StoreErrorKind::Reply, ""),
            (0, "-LOADING later\r\n", StoreErrorKind::Loading, "LOADING"),
            (0, "-NOAUTH Authentication required.\r\n", StoreErrorKind::Denied, "NOAUTH"),
        ] {
            let error = judge(&asked, place, answer).unwrap_err();
            assert_eq!(error.kind(), kind, "{place} {answer}: {error}");
            assert!(error.to_string().contains(name), "{place} {answer}: {error}");
            assert!(!error.to_string().contains(&asked.any), "{error}");
        }
        assert!(judge(&asked, 1, "*0\r\n").is_ok());
    }

    #[test]
    fn all_that_is_missing_is_named() {
        let found = "*3\r\n$12\r\ncommand HSET\r\n$12\r\ncommand ZADD\r\n$9\r\nchannel c\r\n";
        let error = judge(&asked(), 1, found).unwrap_err();
        let text = "the user lacks the right to HSET, ZADD, channels ai:flight:push:0:{*}";
        assert_eq!(error.to_string(), text);
    }

    /// In a cluster, other commands are needed, and some keys are elsewhere.
    #[test]
    fn what_a_node_lacks_is_named() {
        let names = Names::new("ai:flight", 0).sharded();
        let territory = Territory::default();
        let answers = |asked: &Asked, place: usize, answer: &str| {
            let mut answers = vec!["-NOSCRIPT No matching script. Please use EVAL.\r\n", "*0\r\n"];
            answers.extend(["-MOVED 1 h:1\r\n"; 6]);
            if asked.pushes {
                answers.extend(["+OK\r\n"; 3]);
            }
            answers.extend(["+OK\r\n", "-CROSSSLOT Keys don't hash to the same slot\r\n"]);
            answers[place] = answer;
            assert_eq!(answers.len(), asked.pipe().len());
            let read = |answer: &str| parse_redis_value(answer.as_bytes()).expect("an answer");
            asked.judge(&answers.into_iter().map(read).collect::<Vec<_>>())
        };
        let asked = Asked::new(&names, true, Some(&territory));
        let quiet = Asked::new(&names, false, Some(&territory));
        for (asked, last) in [(&asked, 12), (&quiet, 9)] {
            for elsewhere in ["-MOVED 1 h:1\r\n", "-CLUSTERDOWN x\r\n", "-TRYAGAIN x\r\n"] {
                assert!(answers(asked, 1, elsewhere).is_ok());
            }
            assert!(answers(asked, last, ":1\r\n").is_ok());
        }
        let denied = "-NOPERM this user has no permissions to run the 'x' command\r\n";
        let unknown = "-ERR unknown command 'x', with args beginning with: \r\n";
        let spublish = "*1\r\n$16\r\nunknown SPUBLISH\r\n";
        for (place, answer, kind, name) in [
            (8, denied, StoreErrorKind::Denied, "SSUBSCRIBE"),
            (8, unknown, StoreErrorKind::Unsupported, "SSUBSCRIBE: a cluster needs Redis 7.0"),
            (9, denied, StoreErrorKind::Denied, "SUNSUBSCRIBE"),
            (10, denied, StoreErrorKind::Denied, "UNSUBSCRIBE"),
            (11, denied, StoreErrorKind::Denied, "ASKING"),
            (1, spublish, StoreErrorKind::Unsupported, "SPUBLISH"),
        ] {
            let error = answers(&asked, place, answer).unwrap_err();
            assert_eq!(error.kind(), kind, "{place} {answer}: {error}");
            assert!(error.to_string().contains(name), "{place} {answer}: {error}");
        }
        // Where nobody listens, nobody need publish.
        assert!(answers(&quiet, 1, spublish).is_ok());
    }
}
