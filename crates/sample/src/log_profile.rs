//! Where a log line was made (`%OG`, manual 8.2.6), and what `log-profile` sections make of lines by that (8.3.5).
//!
//! `config` reads the sections, `rules` names them in `do-log`, `proxy` asks them before a line goes to a logger.

use crate::format::Format;

/// The point at which a line is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum LogOrigin {
    /// Not said: formats that make no log line.
    #[default]
    Unspecified,
    SessionError,
    SessionKilled,
    Accept,
    Request,
    Connect,
    Response,
    Close,
    QuicInit,
    TcpRequestConnection,
    TcpRequestSession,
    TcpRequestContent,
    TcpResponseContent,
    HttpRequest,
    HttpResponse,
    HttpAfterResponse,
}

/// Each origin with what `%OG` says of it, and its step in a profile.
#[rustfmt::skip]
const ORIGINS: &[(LogOrigin, &str, &str)] = &[
    (LogOrigin::Unspecified,          "unspec",         ""),
    (LogOrigin::SessionError,         "sess_error",     "error"),
    (LogOrigin::SessionKilled,        "sess_killed",    ""),
    (LogOrigin::Accept,               "txn_accept",     "accept"),
    (LogOrigin::Request,              "txn_request",    "request"),
    (LogOrigin::Connect,              "txn_connect",    "connect"),
    (LogOrigin::Response,             "txn_response",   "response"),
    (LogOrigin::Close,                "txn_close",      "close"),
    (LogOrigin::QuicInit,             "quic-init",      "quic-init"),
    (LogOrigin::TcpRequestConnection, "tcp-req-conn",   "tcp-req-conn"),
    (LogOrigin::TcpRequestSession,    "tcp-req-sess",   "tcp-req-sess"),
    (LogOrigin::TcpRequestContent,    "tcp-req-cont",   "tcp-req-cont"),
    (LogOrigin::TcpResponseContent,   "tcp-res-cont",   "tcp-res-cont"),
    (LogOrigin::HttpRequest,          "http-req",       "http-req"),
    (LogOrigin::HttpResponse,         "http-res",       "http-res"),
    (LogOrigin::HttpAfterResponse,    "http-after-res", "http-after-res"),
];

impl LogOrigin {
    /// What `%OG` says.
    pub fn name(self) -> &'static str {
        ORIGINS.iter().find(|(origin, ..)| *origin == self).map_or("unspec", |(_, name, _)| name)
    }

    /// Whether the stream goes on: its times and counts are marked as such (`+`).
    pub fn is_early(self) -> bool {
        matches!(self, Self::Accept | Self::Request | Self::Connect | Self::Response)
    }
}

/// What a line of a profile is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogStep {
    /// Lines made there.
    At(LogOrigin),
    /// All that no other line of the profile is about.
    Any,
}

impl LogStep {
    /// The step of that name.
    pub fn find(name: &str) -> Option<Self> {
        match name {
            "any" => Some(Self::Any),
            _ => ORIGINS
                .iter()
                .find(|(.., step)| *step == name && !name.is_empty())
                .map(|(origin, ..)| Self::At(*origin)),
        }
    }

    /// The names of all steps.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ORIGINS.iter().map(|(.., step)| *step).filter(|step| !step.is_empty()).chain(["any"])
    }
}

/// What a profile makes of the lines of one step (`on`).
#[derive(Debug, Default)]
pub struct LogOverride {
    /// `drop`: no line.
    pub drop: bool,
    /// `format`: instead of the proxy's.
    pub format: Option<Format>,
    /// `sd`: instead of the proxy's structured data.
    pub structured: Option<Format>,
}

/// A `log-profile` section.
#[derive(Debug, Default)]
pub struct LogProfile {
    /// Its name.
    pub name: Box<str>,
    /// `log-tag`.
    pub tag: Option<Box<str>>,
    /// `on`, a step each.
    pub steps: Vec<(LogStep, LogOverride)>,
}

impl LogProfile {
    /// What is said of lines made at `origin`.
    pub fn at(&self, origin: LogOrigin) -> Option<&LogOverride> {
        let of = |step: LogStep| self.steps.iter().find(|(own, _)| *own == step).map(|(_, own)| own);
        of(LogStep::At(origin)).or_else(|| of(LogStep::Any))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_step_of_a_profile_counts() {
        let text = |text: &str| LogOverride {
            format: Some(Format::constant(text.as_bytes())),
            ..LogOverride::default()
        };
        let profile = LogProfile {
            steps: vec![
                (LogStep::Any, text("any")),
                (LogStep::At(LogOrigin::Connect), LogOverride { drop: true, ..LogOverride::default() }),
                (LogStep::At(LogOrigin::SessionError), text("error")),
            ],
            ..LogProfile::default()
        };
        let of = |origin| {
            let step = profile.at(origin).expect("`any` stands for all");
            step.format.as_ref().and_then(Format::as_constant)
        };
        assert_eq!(of(LogOrigin::Close), Some(b"any".as_slice()));
        assert_eq!(of(LogOrigin::Connect), None);
        assert_eq!(of(LogOrigin::SessionError), Some(b"error".as_slice()));
        assert!(LogProfile::default().at(LogOrigin::Close).is_none());
    }

    #[test]
    fn steps_are_found_by_the_names_of_the_manual() {
        assert_eq!(LogStep::find("error"), Some(LogStep::At(LogOrigin::SessionError)));
        assert_eq!(LogStep::find("close"), Some(LogStep::At(LogOrigin::Close)));
        assert_eq!(LogStep::find("http-after-res"), Some(LogStep::At(LogOrigin::HttpAfterResponse)));
        assert_eq!(LogStep::find(""), None);
        assert_eq!(LogStep::find("txn_close"), None);
        assert!(LogStep::names().all(|name| LogStep::find(name).is_some()));
    }
}
