//! What stands for a model: slow, and no two runs alike.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::api::Ask;

/// The name of the one model there is.
pub(crate) const NAME: &str = "slow-1";

/// Before the first token, as a prompt is read.
const THINKING: Duration = Duration::from_millis(400);
/// Before each further one.
const GAP: Duration = Duration::from_millis(60);

static RUNS: AtomicU64 = AtomicU64::new(0);

/// One run of the model.
#[derive(Debug)]
pub(crate) struct Run {
    tokens: Vec<String>,
    next: usize,
    reason: &'static str,
    prompt_tokens: usize,
}

impl Run {
    pub(crate) fn new(ask: &Ask) -> Self {
        let run = RUNS.fetch_add(1, Relaxed) + 1;
        let prompt: Vec<_> = ask.messages.iter().map(|message| message.text()).collect();
        let last = ask.messages.iter().rfind(|message| message.role == "user");
        let question = last.map(|message| message.text()).unwrap_or_default();
        let seed = ask.seed.map_or_else(String::new, |seed| format!(", with the seed {seed}"));
        let text = format!(
            "You asked: {question} This is run {run} of process {pid}{seed}. Whoever asks the \
             same while it is being made gets these very words, each as soon as it is there, \
             and nobody has to pay for another run. Who comes late gets what has been said so \
             far at once, and then goes on like all the others.",
            pid = std::process::id(),
        );
        let mut tokens: Vec<_> = text.split_inclusive(' ').map(str::to_owned).collect();
        let most = ask.max_tokens.unwrap_or(usize::MAX);
        let reason = if most < tokens.len() { "length" } else { "stop" };
        tokens.truncate(most);
        let prompt_tokens = prompt.iter().map(|text| text.split_whitespace().count()).sum();
        Self { tokens, next: 0, reason, prompt_tokens }
    }

    /// The next token, when it is made. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let token = self.tokens.get(self.next)?;
        tokio::time::sleep(if self.next == 0 { THINKING } else { GAP }).await;
        self.next += 1;
        Some(token.clone())
    }

    /// Why there are no more tokens.
    pub(crate) fn reason(&self) -> &'static str {
        self.reason
    }

    /// The number of tokens that went in, and that came out.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.prompt_tokens, self.next)
    }
}
