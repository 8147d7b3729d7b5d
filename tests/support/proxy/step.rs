//! Which step of the protocol a request is.

use std::collections::HashMap;

use super::wire;

/// A step of the protocol, as it goes over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Subscribe,
    /// Asks to own, or else to follow.
    Join,
    /// Asks what stands now.
    Look,
    /// The keeper's look, once a beat.
    Watch,
    Renew,
    Append,
    /// Ends a flight, its record kept back.
    FinishKept,
    /// Ends a flight; a record that is small goes along.
    Finish,
    /// Ends a flight whose record was sent before.
    FinishStaged,
    /// Ends a flight with a stream.
    FinishSealed,
    /// Sends a record before `finish`.
    Stage,
    Abandon,
    Release,
    Leave,
    /// Reads a record.
    Fetch,
    /// Reads pieces of a stream.
    Read,
    Other,
}

/// The scripts by their texts and by their names in the server.
#[derive(Debug, Default)]
pub(crate) struct Scripts(HashMap<Vec<u8>, Step>);

macro_rules! text {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../../src/store/redis/scripts/", $file))),+)
    };
}

const TEXTS: [(Step, &str); 7] = [
    (Step::Join, text!("head.lua", "join_first.lua", "record.lua", "join.lua")),
    (Step::Renew, text!("head.lua", "renew_first.lua", "record.lua", "renew.lua")),
    (Step::Append, text!("head.lua", "record.lua", "append.lua")),
    (Step::Finish, text!("head.lua", "finish_first.lua", "record.lua", "finish.lua")),
    (Step::Abandon, text!("head.lua", "record.lua", "abandon.lua")),
    (Step::Release, text!("head.lua", "record.lua", "release.lua")),
    (Step::Leave, text!("leave.lua")),
];

impl Scripts {
    /// By the name that the server gives to each text.
    pub(crate) fn new(name: impl Fn(&str) -> String) -> Self {
        let mut scripts = HashMap::new();
        for (step, text) in TEXTS {
            scripts.insert(name(text).into_bytes(), step);
            scripts.insert(text.as_bytes().to_vec(), step);
        }
        Self(scripts)
    }

    /// Which step a whole request is.
    pub(super) fn step(&self, request: &[u8]) -> Step {
        let parts = wire::strings(request);
        let is_record = |key: &[u8]| key.windows(8).any(|window| window == b":result:");
        match &parts[..] {
            [b"SUBSCRIBE", ..] => Step::Subscribe,
            [b"SET", key, ..] if is_record(key) => Step::Stage,
            [b"GET", key] if is_record(key) => Step::Fetch,
            [b"XRANGE", ..] => Step::Read,
            [b"EVALSHA" | b"EVAL", script, keys, rest @ ..] => {
                let keys = std::str::from_utf8(keys).ok().and_then(|keys| keys.parse().ok());
                let args = rest.get(keys.unwrap_or(0)..).unwrap_or_default();
                self.0.get(*script).map_or(Step::Other, |step| exactly(*step, args))
            }
            _ => Step::Other,
        }
    }
}

/// What one script does by its arguments.
fn exactly(step: Step, args: &[&[u8]]) -> Step {
    let arg = |at: usize| args.get(at).copied().unwrap_or_default();
    match step {
        Step::Join if arg(8) == b"0" => Step::Look,
        Step::Join if !arg(8).is_empty() => Step::Watch,
        Step::Finish => match (arg(2), arg(5)) {
            (b"done", b"" | b"kept") => Step::FinishKept,
            (_, b"staged") => Step::FinishStaged,
            (_, b"sealed") => Step::FinishSealed,
            _ => Step::Finish,
        },
        step => step,
    }
}
