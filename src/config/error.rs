//! Why settings are refused.

use std::fmt;

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    setting: &'static str,
    value: String,
    rule: String,
}

impl ConfigError {
    pub(super) fn new(
        setting: &'static str,
        value: impl fmt::Debug,
        rule: impl Into<String>,
    ) -> Self {
        Self { setting, value: format!("{value:?}"), rule: rule.into() }
    }

    /// The name of the setting.
    #[must_use]
    pub fn setting(&self) -> &'static str {
        self.setting
    }

    /// The value that was given.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {}", self.setting, self.value, self.rule)
    }
}

impl std::error::Error for ConfigError {}
