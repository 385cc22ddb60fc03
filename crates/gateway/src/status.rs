//! Conditions of statuses.

use serde_json::{Value, json};

/// A condition without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusCondition {
    pub(crate) kind: &'static str,
    pub(crate) is_true: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl StatusCondition {
    pub(crate) fn yes(kind: &'static str, reason: &'static str) -> Self {
        Self { kind, is_true: true, reason, message: String::new() }
    }

    pub(crate) fn no(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, is_true: false, reason, message: message.into() }
    }

    /// Returns the condition with this message.
    pub(crate) fn with(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    fn to_json(&self, generation: i64) -> Value {
        json!({
            "type": self.kind,
            "status": if self.is_true { "True" } else { "False" },
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": generation,
        })
    }
}

/// The conditions of an object with this generation.
pub(crate) fn conditions(list: &[StatusCondition], generation: i64) -> Value {
    list.iter().map(|condition| condition.to_json(generation)).collect()
}
