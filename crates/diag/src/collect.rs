//! Collects the messages of a pass over the configuration, so that all errors are shown rather than only the first.

use crate::{Diagnostic, Severity};

/// Messages in the order in which they were found.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics {
    all: Vec<Diagnostic>,
    alerts: usize,
    warnings: usize,
}

impl Diagnostics {
    /// Creates an empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        match diagnostic.severity {
            Severity::Alert => self.alerts += 1,
            Severity::Warning if !diagnostic.tolerated => self.warnings += 1,
            Severity::Warning | Severity::Notice | Severity::Diag => {}
        }
        self.all.push(diagnostic);
    }

    /// Returns the value, or adds the message that explains its absence.
    pub fn take<T>(&mut self, result: Result<T, Diagnostic>) -> Option<T> {
        result.map_err(|diagnostic| self.push(diagnostic)).ok()
    }

    /// Drops advice, if `-dD` was not given.
    pub fn drop_advice(&mut self) {
        self.all.retain(|diagnostic| diagnostic.severity != Severity::Diag);
    }

    /// Every message.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.all.iter()
    }

    /// Returns only the errors.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.all.iter().filter(|diagnostic| diagnostic.severity == Severity::Alert)
    }

    /// Whether any message is an error.
    pub fn has_errors(&self) -> bool {
        self.alerts > 0
    }

    /// Whether any message is a warning that counts for `zero-warning` and `-dW`.
    pub fn has_warnings(&self) -> bool {
        self.warnings > 0
    }

    /// The number of errors.
    pub fn error_count(&self) -> usize {
        self.alerts
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Appends the messages of another pass.
    pub fn append(&mut self, other: Self) {
        for diagnostic in other.all {
            self.push(diagnostic);
        }
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.into_iter()
    }
}
