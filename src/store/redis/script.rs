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
script!(FINISH, "record.lua", "finish.lua");
script!(ABANDON, "record.lua", "abandon.lua");
script!(RELEASE, "record.lua", "release.lua");
script!(LEAVE, "leave.lua");

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
