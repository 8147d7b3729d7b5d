//! What a request says that inner shall do.

use std::{str::FromStr, time::Duration};

use axum::http::{HeaderName, HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;

/// The query of a request, read.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) ms: Duration,
    pub(crate) bytes: usize,
    pub(crate) chunks: usize,
    pub(crate) gap: Duration,
    pub(crate) status: StatusCode,
    pub(crate) set: Vec<(HeaderName, HeaderValue)>,
    pub(crate) trailers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) fail: Option<Fail>,
    pub(crate) fail_runs: Option<u64>,
    pub(crate) fail_pid: Option<u32>,
    pub(crate) same: bool,
    pub(crate) content_type: HeaderValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fail {
    /// Inner panics after `ms`.
    Panic,
    /// The body fails after half of the frames.
    Error,
    /// The head never comes.
    Hang,
    /// No frame comes after half of them.
    Stall,
    /// The thread sleeps.
    Block,
    /// All threads of the runtime sleep.
    Freeze,
    /// All threads of the runtime are busy.
    Spin,
    /// The body ends at half of what it declares.
    Short,
}

impl Script {
    pub(crate) fn parse(query: &str) -> Result<Self, String> {
        let mut script = Self {
            ms: Duration::from_millis(500),
            bytes: 64,
            chunks: 1,
            gap: Duration::ZERO,
            status: StatusCode::OK,
            set: Vec::new(),
            trailers: Vec::new(),
            fail: None,
            fail_runs: None,
            fail_pid: None,
            same: false,
            content_type: HeaderValue::from_static("text/plain"),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            script
                .take(name, &decode(value))
                .ok_or_else(|| format!("{name} ({value}) is wrong"))?;
        }
        Ok(script)
    }

    fn take(&mut self, name: &str, value: &[u8]) -> Option<()> {
        let text = || std::str::from_utf8(value).ok();
        match name {
            "ms" => self.ms = Duration::from_millis(number(text()?)?),
            "bytes" => self.bytes = number(text()?)?,
            "chunks" => self.chunks = number::<usize>(text()?)?.max(1),
            "gap" => self.gap = Duration::from_millis(number(text()?)?),
            "status" => self.status = text()?.parse().ok()?,
            "set" => self.set.push(field(value)?),
            "trailer" => self.trailers.push(field(value)?),
            "fail" => {
                self.fail = Some(match text()? {
                    "panic" => Fail::Panic,
                    "error" => Fail::Error,
                    "hang" => Fail::Hang,
                    "stall" => Fail::Stall,
                    "block" => Fail::Block,
                    "freeze" => Fail::Freeze,
                    "spin" => Fail::Spin,
                    "short" => Fail::Short,
                    _ => return None,
                });
            }
            "fail_runs" => self.fail_runs = Some(number(text()?)?),
            "fail_pid" => self.fail_pid = Some(number(text()?)?),
            "same" => self.same = value == b"1",
            "type" => self.content_type = HeaderValue::from_bytes(value).ok()?,
            // Any other name makes another request of it, and nothing else.
            _ => {}
        }
        Some(())
    }

    /// The failure that this run has, being the `run`-th of its name.
    pub(crate) fn failure(&self, run: u64) -> Option<Fail> {
        let fails = self.fail_runs.is_none_or(|runs| run <= runs)
            && self.fail_pid.is_none_or(|pid| pid == std::process::id());
        self.fail.filter(|_| fails)
    }
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn decode(value: &str) -> Vec<u8> {
    percent_decode_str(&value.replace('+', " ")).collect()
}

fn field(value: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = value.iter().position(|byte| *byte == b':')?;
    let name = HeaderName::from_bytes(&value[..colon]).ok()?;
    Some((name, HeaderValue::from_bytes(&value[colon + 1..]).ok()?))
}
