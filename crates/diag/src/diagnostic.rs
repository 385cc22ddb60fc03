//! One message: severity, place, cause and way out.

use crate::Span;

/// How bad it is, in HAProxy's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Advice, shown only in diagnostic mode (`-dD`).
    Diag,
    /// Information.
    Notice,
    /// Works, but probably not as meant; fatal with `zero-warning`.
    Warning,
    /// The configuration cannot be used.
    Alert,
}

impl Severity {
    /// The tag of HAProxy's line with the spaces that align what follows, such as `[ALERT]    `.
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
/// Names inside `message` stand between backticks; the one-line form shows them between single
/// quotes as HAProxy does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The words it is about.
    pub span: Option<Span>,
    /// What is wrong, without a full stop.
    pub message: String,
    /// What stands behind the underline: the shortest way out, such as "did you mean `balance`?".
    pub label: Option<String>,
    /// Other places that matter, such as where a name was first used.
    pub related: Vec<(Span, String)>,
    /// How to put it right, when the label is too short for it.
    pub help: Option<String>,
    /// Background.
    pub notes: Vec<String>,
    /// What HAProxy would say behind the place, where tools match its wording; else made from the
    /// fields above.
    pub haproxy: Option<String>,
    /// Whether HAProxy says it without the place in front.
    pub whole: bool,
    /// Whether `zero-warning` does not count it.
    pub tolerated: bool,
}

impl Diagnostic {
    /// A message with neither place nor advice.
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

    /// An error.
    pub fn alert(message: impl Into<String>) -> Self {
        Self::new(Severity::Alert, message)
    }

    /// A warning.
    pub fn warning(message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, message)
    }

    /// Information.
    pub fn notice(message: impl Into<String>) -> Self {
        Self::new(Severity::Notice, message)
    }

    /// Advice, shown with `-dD` alone.
    pub fn advice(message: impl Into<String>) -> Self {
        Self::new(Severity::Diag, message)
    }

    /// A word without effect, which HAProxy accepts silently: advice, as nothing is lost. If the
    /// reason is that something is not supported yet, a warning that `zero-warning` does not count,
    /// because the process behaves differently.
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

    /// Puts words behind the underline.
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

    /// Adds another place.
    #[must_use]
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push((span, text.into()));
        self
    }

    /// Gives HAProxy's wording for the one-line form. HAProxy's lexer joins its messages to the
    /// place by `: ` where all others use ` : `; a text that begins with `: ` says so.
    #[must_use]
    pub fn haproxy(mut self, text: impl Into<String>) -> Self {
        self.haproxy = Some(text.into());
        self
    }

    /// Lets `zero-warning` pass: HAProxy says so in an alert, counts no warning and starts.
    #[must_use]
    pub fn tolerated(mut self) -> Self {
        self.tolerated = true;
        self
    }

    /// Gives HAProxy's wording of a message that it shows without a place.
    #[must_use]
    pub fn haproxy_whole(mut self, text: impl Into<String>) -> Self {
        self.whole = true;
        self.haproxy(text)
    }

    /// The text of the one-line form without severity, place and related places: HAProxy's wording if
    /// there is one, else the message with label and help behind semicolons.
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

    /// Wraps the text of the one-line form: HAProxy names the rule or line in which an error was
    /// found. Messages that HAProxy shows without a place are left alone.
    #[must_use]
    pub fn wrap_line(self, before: &str, after: &str) -> Self {
        if self.whole {
            return self;
        }
        let text = self.one_line();
        self.haproxy(format!("{before}{text}{after}"))
    }
}
