//! The points at which log lines are created (`%OG`, manual 8.2.6), and the steps of a `log-profile` that select them.

/// The point at which a line is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum LogOrigin {
    /// Not set, for formats that do not produce a log line.
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
    UdpRequest,
    TcpRequestConnection,
    TcpRequestSession,
    TcpRequestContent,
    TcpResponseContent,
    HttpRequest,
    HttpResponse,
    HttpAfterResponse,
}

/// Each origin with its `%OG` name and its step in a profile.
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
    (LogOrigin::UdpRequest,           "udp-req",        "udp-req"),
    (LogOrigin::TcpRequestConnection, "tcp-req-conn",   "tcp-req-conn"),
    (LogOrigin::TcpRequestSession,    "tcp-req-sess",   "tcp-req-sess"),
    (LogOrigin::TcpRequestContent,    "tcp-req-cont",   "tcp-req-cont"),
    (LogOrigin::TcpResponseContent,   "tcp-res-cont",   "tcp-res-cont"),
    (LogOrigin::HttpRequest,          "http-req",       "http-req"),
    (LogOrigin::HttpResponse,         "http-res",       "http-res"),
    (LogOrigin::HttpAfterResponse,    "http-after-res", "http-after-res"),
];

impl LogOrigin {
    /// The name printed by `%OG`.
    pub fn name(self) -> &'static str {
        ORIGINS.iter().find(|(origin, ..)| *origin == self).map_or("unspec", |(_, name, _)| name)
    }

    /// Whether the line is written before the response is sent, when the duration of the request is not known yet.
    pub(crate) fn precedes_response(self) -> bool {
        let others = [Self::Connect, Self::TcpResponseContent, Self::HttpResponse, Self::HttpAfterResponse];
        self.precedes_routing() || others.contains(&self)
    }

    /// Whether the line is written before a backend is chosen. Until then, rule processing counts towards `%TR`.
    pub(crate) fn precedes_routing(self) -> bool {
        matches!(self, Self::Accept | Self::TcpRequestContent | Self::Request | Self::HttpRequest)
    }
}

/// The log lines that an entry of a profile applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogStep {
    /// Lines created at that point.
    At(LogOrigin),
    /// All lines without their own entry.
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
