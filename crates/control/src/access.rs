//! Settings of a runtime socket that limit its clients or change the format of responses (`level`, `severity-output`).

/// The rights of a client of a runtime socket (`level`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AccessLevel {
    /// May read harmless values.
    User,
    /// May read everything and clear counters.
    #[default]
    Operator,
    /// May do everything.
    Admin,
}

impl AccessLevel {
    /// The keyword.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// `severity-output` of a runtime socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeverityOutput {
    /// Severities are not shown.
    #[default]
    None,
    /// The severity is shown as a number.
    Number,
    /// The severity is shown as a word.
    String,
}
