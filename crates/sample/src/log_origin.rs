//! Where a log line was made (`%OG`, manual 8.2.6), and which of these points the lines of a
//! `log-profile` are about.

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

    /// Whether the line is written before a request's response leaves: the request has no duration yet.
    pub(crate) fn precedes_response(self) -> bool {
        let others = [Self::Connect, Self::TcpResponseContent, Self::HttpResponse, Self::HttpAfterResponse];
        self.precedes_routing() || others.contains(&self)
    }

    /// Whether the line is written before a request has a backend: until then its rules are part of the
    /// time of the request (`%TR`).
    pub(crate) fn precedes_routing(self) -> bool {
        matches!(self, Self::Accept | Self::TcpRequestContent | Self::Request | Self::HttpRequest)
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
