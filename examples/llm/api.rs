//! The shapes of OpenAI's chat completions API, as far as they are needed here.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request. What a simulated model has no use for is not read, and is in the key all
/// the same.
#[derive(Debug, Deserialize)]
pub(crate) struct Ask {
    pub(crate) model: String,
    pub(crate) messages: Vec<Message>,
    #[serde(default)]
    pub(crate) stream: Option<bool>,
    #[serde(default)]
    pub(crate) stream_options: Option<StreamOptions>,
    #[serde(default, alias = "max_completion_tokens")]
    pub(crate) max_tokens: Option<usize>,
    #[serde(default)]
    pub(crate) seed: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) role: String,
    /// A text, or parts of it.
    #[serde(default)]
    pub(crate) content: Value,
}

impl Message {
    pub(crate) fn text(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            _ => String::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct StreamOptions {
    #[serde(default)]
    pub(crate) include_usage: Option<bool>,
}

/// What every document of one answer begins with: those who share a run see the same.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) object: &'static str,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Completion {
    #[serde(flatten)]
    pub(crate) head: Head,
    pub(crate) choices: [Choice; 1],
    pub(crate) usage: Usage,
}

#[derive(Debug, Serialize)]
pub(crate) struct Choice {
    pub(crate) index: u32,
    pub(crate) message: Answer,
    pub(crate) finish_reason: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    pub(crate) role: &'static str,
    pub(crate) content: String,
    pub(crate) refusal: Option<String>,
}

/// One event of a streamed answer.
#[derive(Debug, Serialize)]
pub(crate) struct Chunk<'a> {
    #[serde(flatten)]
    pub(crate) head: &'a Head,
    /// One, or none in the chunk that has the usage.
    pub(crate) choices: Vec<ChunkChoice>,
    /// There only where it was asked for: then `null` in all chunks but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Option<Usage>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChunkChoice {
    pub(crate) index: u32,
    pub(crate) delta: Delta,
    pub(crate) finish_reason: Option<&'static str>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) total_tokens: usize,
}
