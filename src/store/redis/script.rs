//! The scripts, and calls of them: by hash, and whole where the server does not
//! know the hash.

use std::{fmt, sync::OnceLock};

use bb8_redis::redis::Cmd;

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

script!(JOIN, "record.lua", "join.lua");
script!(RENEW, "record.lua", "renew.lua");
script!(APPEND, "record.lua", "append.lua");
script!(FINISH, "record.lua", "finish.lua");
script!(ABANDON, "record.lua", "abandon.lua");
script!(RELEASE, "record.lua", "release.lua");
script!(LEAVE, "leave.lua");
script!(FORGET, "record.lua", "forget.lua");
script!(STOP, "record.lua", "stop.lua");
script!(SEQ, "record.lua", "seq.lua");
script!(INSPECT, "record.lua", "inspect.lua");
script!(CHECK, "check.lua");

impl Script {
    fn hash(&self) -> &str {
        self.hash.get_or_init(|| sha1_smol::Sha1::from(self.text).digest().to_string())
    }

    pub(super) fn call(&'static self) -> Call {
        Call { script: self, keys: Vec::with_capacity(5), args: Vec::with_capacity(10) }
    }
}

/// A script with its keys and arguments.
pub(super) struct Call {
    script: &'static Script,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Call {
    pub(super) fn key(mut self, key: String) -> Self {
        self.keys.push(key);
        self
    }

    pub(super) fn arg(mut self, arg: impl fmt::Display) -> Self {
        self.args.push(arg.to_string().into_bytes());
        self
    }

    pub(super) fn bytes(mut self, arg: &[u8]) -> Self {
        self.args.push(arg.to_vec());
        self
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> &[String] {
        &self.keys
    }

    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", self.script.hash())
    }

    pub(super) fn whole(&self) -> Cmd {
        self.command("EVAL", self.script.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = Cmd::new();
        command.arg(name).arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key);
        }
        for arg in &self.args {
            command.arg(&arg[..]);
        }
        command
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("keys", &self.keys.len()).finish_non_exhaustive()
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
        assert!(JOIN.text.contains("redis.pcall(publish, channel"));
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
    fn no_script_is_refused_where_memory_is_full() {
        for script in ALL {
            assert!(!script.text.contains("#!lua"));
        }
    }
}
