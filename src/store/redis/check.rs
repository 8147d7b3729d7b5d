//! Whether server and user can do all that the store does: asked in one write.

use bb8_redis::redis::{Pipeline, ServerError, Value, aio::MultiplexedConnection};

use super::{error, keys::Names, script::CHECK};
use crate::{
    id::{FlightId, KeyDigest},
    store::{StoreError, StoreErrorKind},
};

const NOTHING: &str = "return 1";

/// Asks on this connection. `pushes`: whether the store listens for pushes;
/// `sentinels`: whether it asks servers if they are the master.
///
/// The one key it writes is under the prefix, and gone in a second.
pub(super) async fn check(
    connection: &mut MultiplexedConnection,
    names: &Names,
    pushes: bool,
    sentinels: bool,
) -> Result<(), StoreError> {
    let asked = Asked::new(names, pushes, sentinels);
    let pipe = asked.pipe();
    let answers = connection.send_packed_commands(&pipe, 0, pipe.len()).await;
    asked.judge(&answers.map_err(|error| error::from_redis(&error))?)
}

/// What is asked: names that no flight has.
struct Asked {
    channel: String,
    keys: Vec<String>,
    pushes: bool,
    sentinels: bool,
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
    fn new(names: &Names, pushes: bool, sentinels: bool) -> Self {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&FlightId::random().as_u128().to_be_bytes());
        bytes[16..].copy_from_slice(&FlightId::random().as_u128().to_be_bytes());
        let key = KeyDigest::from_bytes(bytes);
        let keys = vec![
            names.meta(key),
            names.waiters(key),
            names.result(key),
            names.staged(key, FlightId::random()),
            names.stream(key),
            names.owner_seq(),
            names.probe(),
        ];
        Self { channel: names.channel(key), keys, pushes, sentinels, any: key.to_string() }
    }

    fn pipe(&self) -> Pipeline {
        let mut pipe = Pipeline::new();
        let hash = sha1_smol::Sha1::from(NOTHING).digest().to_string();
        pipe.cmd("EVALSHA").arg(hash).arg(0);
        pipe.add_command(CHECK.call().key(self.keys[0].clone()).arg(&self.channel).whole());
        // A right to fewer keys shows before a script begins.
        for key in &self.keys[1..] {
            pipe.cmd("EVAL").arg(NOTHING).arg(1).arg(key);
        }
        if self.pushes {
            pipe.cmd("SUBSCRIBE").arg(&self.channel);
            pipe.cmd("UNSUBSCRIBE").arg(&self.channel);
        }
        if self.sentinels {
            pipe.cmd("ROLE");
        }
        pipe
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
            Value::ServerError(error) => {
                findings.hear(error, "EVAL (scripting)", Some(&self.key(0)))?;
            }
            _ => return Err(error::bad_reply()),
        }
        for place in 1..self.keys.len() {
            if let Some(error) = refusal(next()?) {
                findings.hear(error, "EVAL (scripting)", Some(&self.key(place)))?;
            }
        }
        if self.pushes {
            for command in ["SUBSCRIBE", "UNSUBSCRIBE"] {
                if let Some(error) = refusal(next()?) {
                    findings.hear(error, command, Some(&self.channels()))?;
                }
            }
        }
        if self.sentinels
            && let Some(error) = refusal(next()?)
        {
            findings.hear(error, "ROLE", None)?;
        }
        findings.result()
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

    fn result(self) -> Result<(), StoreError> {
        let Self { denied, unknown } = self;
        if !denied.is_empty() {
            let text = format!("the user lacks the right to {}", denied.join(", "));
            return Err(StoreError::new(StoreErrorKind::Denied, text));
        }
        if !unknown.is_empty() {
            let text = format!("the server does not know {}", unknown.join(", "));
            return Err(StoreError::new(StoreErrorKind::Unsupported, text));
        }
        Ok(())
    }
}

fn refusal(value: &Value) -> Option<&ServerError> {
    if let Value::ServerError(error) = value { Some(error) } else { None }
}

#[cfg(test)]
mod tests {
    use bb8_redis::redis::parse_redis_value;

    use super::*;

    fn asked() -> Asked {
        Asked::new(&Names::new("ai:flight", 0), true, true)
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
}
