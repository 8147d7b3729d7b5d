//! The scripts, and calls of them: by hash, and whole where the server does not
//! know the hash.

use std::{fmt, io::Write, sync::OnceLock};

use bb8_redis::redis::Cmd;

use super::keys::Names;

/// One script.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

macro_rules! script {
    ($name:ident, $($file:literal),+) => {
        pub(super) static $name: Script = Script {
            text: concat!($(include_str!(concat!("scripts/", $file))),+),
            hash: OnceLock::new(),
        };
    };
}

script!(JOIN, "head.lua", "join_first.lua", "record.lua", "join.lua");
script!(RENEW, "head.lua", "renew_first.lua", "record.lua", "renew.lua");
script!(APPEND, "head.lua", "record.lua", "append.lua");
script!(FINISH, "head.lua", "finish_first.lua", "record.lua", "finish.lua");
script!(ABANDON, "head.lua", "record.lua", "abandon.lua");
script!(RELEASE, "head.lua", "record.lua", "release.lua");
script!(LEAVE, "leave.lua");
script!(FORGET, "head.lua", "record.lua", "forget.lua");
script!(STOP, "head.lua", "record.lua", "stop.lua");
script!(SEQ, "head.lua", "record.lua", "seq.lua");
script!(INSPECT, "head.lua", "record.lua", "inspect.lua");
script!(CHECK, "check.lua");

impl Script {
    fn hash(&self) -> &str {
        self.hash.get_or_init(|| sha1_smol::Sha1::from(self.text).digest().to_string())
    }

    pub(super) fn call(&'static self) -> Call {
        Call { script: self, keys: 0, text: Vec::with_capacity(1024), ends: Vec::with_capacity(16) }
    }
}

/// A script with its keys and arguments.
pub(super) struct Call {
    script: &'static Script,
    /// So many of what follows are keys.
    keys: usize,
    /// One after the other, and where each ends.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Call {
    /// Keys come before all else.
    pub(super) fn key(mut self, key: impl AsRef<str>) -> Self {
        self.keys += 1;
        self.bytes(key.as_ref().as_bytes())
    }

    pub(super) fn arg(mut self, arg: impl fmt::Display) -> Self {
        // Nothing fails to be written there.
        let _ = write!(self.text, "{arg}");
        self.ends.push(self.text.len());
        self
    }

    pub(super) fn bytes(mut self, arg: &[u8]) -> Self {
        self.text.extend_from_slice(arg);
        self.ends.push(self.text.len());
        self
    }

    /// The command for pushes, as the last argument, where it is not the usual one.
    pub(super) fn publish(self, names: &Names) -> Self {
        if names.is_sharded() { self.arg(names.publish()) } else { self }
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, end)| &self.text[from..*end])
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<&str> {
        self.parts().take(self.keys).map(|key| std::str::from_utf8(key).unwrap()).collect()
    }

    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", self.script.hash())
    }

    pub(super) fn whole(&self) -> Cmd {
        self.command("EVAL", self.script.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let bytes = name.len() + script.len() + 8 + self.text.len();
        let mut command = Cmd::with_capacity(3 + self.ends.len(), bytes);
        command.arg(name).arg(script).arg(self.keys);
        for part in self.parts() {
            command.arg(part);
        }
        command
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("keys", &self.keys).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&Script; 11] = [
        &JOIN, &RENEW, &APPEND, &FINISH, &ABANDON, &RELEASE, &LEAVE, &FORGET, &STOP, &SEQ, &INSPECT,
    ];

    /// What a call names as its key: the word after the command.
    fn keys_of_calls(text: &str) -> Vec<(&str, &str)> {
        let calls = text.split("redis.call('").chain(text.split("redis.pcall('")).skip(1);
        calls
            .filter_map(|call| {
                let (command, rest) = call.split_once('\'')?;
                let key = rest.strip_prefix(", ")?;
                let end = key.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
                command.chars().all(|c| c.is_ascii_uppercase()).then_some((command, &key[..end]))
            })
            .collect()
    }

    /// A server that routes by keys must be told them all.
    #[test]
    fn g8_every_key_comes_from_keys() {
        for script in ALL {
            let calls = keys_of_calls(script.text);
            assert!(!calls.is_empty());
            let named: Vec<&str> = script
                .text
                .lines()
                .filter(|line| line.starts_with("local ") && line.contains("KEYS["))
                .flat_map(|line| {
                    let (names, values) = line["local ".len()..].split_once(" = ").unwrap();
                    let keys = values.matches("KEYS[").count();
                    names.split(", ").take(keys)
                })
                .collect();
            for (command, key) in calls {
                let parameter = ["KEYS", "key", "waiters"].contains(&key);
                assert!(named.contains(&key) || parameter, "{command} {key}");
            }
        }
    }

    /// Or the store begins its work without a right that it needs.
    #[test]
    fn every_command_is_checked() {
        let checked: Vec<&str> = CHECK
            .text
            .split("try('")
            .skip(1)
            .filter_map(|call| Some(call.split_once('\'')?.0))
            .collect();
        for script in ALL {
            let calls = script.text.split("redis.call('").chain(script.text.split("redis.pcall('"));
            for call in calls.filter(|call| call.starts_with(|c: char| c.is_ascii_uppercase())) {
                let (command, _) = call.split_once('\'').unwrap();
                assert!(checked.contains(&command), "{command}");
            }
        }
        for command in ["GET", "SET", "XRANGE"] {
            assert!(checked.contains(&command), "{command}, which is used outside of scripts");
        }
        // Named by an argument: it is another one in a cluster.
        assert!(JOIN.text.contains("redis.pcall(publish or 'PUBLISH', channel"));
        assert!(CHECK.text.contains("try(publish, channel"));
    }

    #[test]
    fn k8_scripts_have_the_format_of_all_else() {
        let format = format!("local FORMAT = '{}'\n", crate::id::FORMAT);
        for script in ALL.into_iter().filter(|script| !std::ptr::eq(*script, &LEAVE)) {
            assert_eq!(script.text.matches(&format).count(), 1);
        }
    }

    #[test]
    fn scripts_have_the_limits_of_the_steps() {
        use crate::store::redis::step::{INLINE_MAX, PUSH_MAX};

        assert!(JOIN.text.contains(&format!("local INLINE = {INLINE_MAX}\n")));
        assert!(FINISH.text.contains(&format!("local PUSH_MAX = {PUSH_MAX}\n")));
    }

    #[test]
    fn no_script_is_refused_where_memory_is_full() {
        for script in ALL {
            assert!(!script.text.contains("#!lua"));
        }
    }
}
