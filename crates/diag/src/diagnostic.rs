//! A message: severity, location, cause and remedy.

use crate::Span;

/// The severity, in HAProxy's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Advice, shown only in diagnostic mode (`-dD`).
    Diag,
    /// Information.
    Notice,
    /// The configuration works, but probably not as intended; fatal with `zero-warning`.
    Warning,
    /// The configuration cannot be used.
    Alert,
}

impl Severity {
    /// The tag in HAProxy's line format, padded for alignment, such as `[ALERT]    `.
    pub fn tag(self) -> &'static str {
        match self {
            Self::Diag => "[DIAG]     ",
            Self::Notice => "[NOTICE]   ",
            Self::Warning => "[WARNING]  ",
            Self::Alert => "[ALERT]    ",
        }
    }

    /// The word shown on a terminal.
    pub fn word(self) -> &'static str {
        match self {
            Self::Diag => "advice",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Alert => "error",
        }
    }
}

/// A message about the configuration or the process.
///
/// Names in `message` are in backticks; the one-line form shows them in single quotes, like HAProxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// The underlined words.
    pub span: Option<Span>,
    /// The message, without a full stop.
    pub message: String,
    /// The text after the underline: the shortest remedy, such as "did you mean `balance`?".
    pub label: Option<String>,
    /// Related locations, such as the first use of a name.
    pub related: Vec<(Span, String)>,
    /// The remedy, if it is too long for the label.
    pub help: Option<String>,
    /// Background.
    pub notes: Vec<String>,
    /// HAProxy's message after the location, if tools match its wording. Otherwise the message is composed from the fields above.
    pub haproxy: Option<String>,
    /// Whether HAProxy shows the message without a location.
    pub whole: bool,
    /// Whether the message does not count for `zero-warning`.
    pub tolerated: bool,
}

impl Diagnostic {
    /// Creates a message without location or advice.
    pub fn new(severity: Severity, message: impl Into<String>) -> Self {
        Self {
            severity,
            span: None,
            message: message.into(),
            label: None,
            related: Vec::new(),
            help: None,
            notes: Vec::new(),
            haproxy: None,
            whole: false,
            tolerated: false,
        }
    }

    /// Creates an error.
    pub fn alert(message: impl Into<String>) -> Self {
        Self::new(Severity::Alert, message)
    }

    /// Creates a warning.
    pub fn warning(message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, message)
    }

    /// Creates a notice.
    pub fn notice(message: impl Into<String>) -> Self {
        Self::new(Severity::Notice, message)
    }

    /// Creates advice, shown only with `-dD`.
    pub fn advice(message: impl Into<String>) -> Self {
        Self::new(Severity::Diag, message)
    }

    /// Creates the message about a word without effect that HAProxy accepts silently. This is advice if nothing is lost. If the
    /// reason is missing support, it is a warning that does not count for `zero-warning`, because the process behaves differently.
    pub fn ineffective(word: &str, reason: &str) -> Self {
        let message = format!("`{word}` has no effect: {reason}");
        if reason.contains("not supported yet") {
            Self::warning(message).tolerated()
        } else {
            Self::advice(message)
        }
    }

    /// Underlines `span`.
    #[must_use]
    pub fn at(mut self, span: Span) -> Self {
        self.span = Some(span);
        self
    }

    /// Sets the text after the underline.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Labels with "did you mean `x`?" when there is a suggestion.
    #[must_use]
    pub fn did_you_mean(self, suggestion: Option<&str>) -> Self {
        match suggestion {
            Some(word) => self.label(format!("did you mean `{word}`?")),
            None => self,
        }
    }

    /// Adds advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds background.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a related location.
    #[must_use]
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push((span, text.into()));
        self
    }

    /// Sets HAProxy's wording for the one-line form. HAProxy's lexer joins its messages to the location by `: `, all other code by
    /// ` : `. A text that begins with `: ` selects the former.
    #[must_use]
    pub fn haproxy(mut self, text: impl Into<String>) -> Self {
        self.haproxy = Some(text.into());
        self
    }

    /// Excludes the message from `zero-warning`: HAProxy reports it as an alert, but counts no warning and starts.
    #[must_use]
    pub fn tolerated(mut self) -> Self {
        self.tolerated = true;
        self
    }

    /// Sets HAProxy's wording of a message without a location.
    #[must_use]
    pub fn haproxy_whole(mut self, text: impl Into<String>) -> Self {
        self.whole = true;
        self.haproxy(text)
    }

    /// The text of the one-line form without severity, location and related locations: HAProxy's wording if there is one, otherwise
    /// the message with label and help after semicolons.
    pub fn one_line(&self) -> String {
        if let Some(text) = &self.haproxy {
            return text.clone();
        }
        let mut out = self.message.clone();
        for text in self.label.iter().chain(&self.help) {
            out.push_str("; ");
            match text.strip_prefix("did you mean `").and_then(|rest| rest.strip_suffix("`?")) {
                Some(word) => out.extend(["did you mean `", word, "` maybe ?"]),
                None => out.push_str(text),
            }
        }
        out.replace('`', "'")
    }

    /// Puts `before` and `after` around the one-line text, because HAProxy names the rule or line that contains an error. Messages
    /// that HAProxy shows without a location are not changed.
    #[must_use]
    pub fn wrap_line(self, before: &str, after: &str) -> Self {
        if self.whole {
            return self;
        }
        let text = self.one_line();
        self.haproxy(format!("{before}{text}{after}"))
    }
}
