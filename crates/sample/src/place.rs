//! Where an expression is used, and where a fetch may be used: the 22 columns of `-dKsmp` as bits.

/// The place of an expression, which determines which fetches may be used (the columns of `-dKsmp`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Place {
    /// `quic-initial`.
    QuicInitial,
    /// `tcp-request connection`.
    TcpConnection,
    /// `tcp-request session`.
    TcpSession,
    /// `udp-request`.
    UdpRequest,
    /// `tcp-request content` of a frontend or backend.
    TcpRequestContent,
    /// `http-request`, `use_backend`, `redirect` …
    HttpRequest,
    /// `use-server`, `balance`, server names and `source`: the request on the backend side.
    BackendRequest,
    /// `tcp-response content`.
    TcpResponseContent,
    /// `http-response`, and `http-after-response`.
    HttpResponse,
    /// Log formats, after the stream's end.
    Log,
    /// Health checks.
    Check,
    /// `global`, at startup.
    Boot,
    /// A command of the runtime socket.
    Command,
}

impl Place {
    /// The name of the rules at this place, or `None` for places without rules.
    pub(crate) fn rules(self) -> Option<&'static str> {
        Some(match self {
            Self::QuicInitial => "quic-initial",
            Self::TcpConnection => "tcp-request connection",
            Self::TcpSession => "tcp-request session",
            Self::UdpRequest => "udp-request",
            Self::TcpRequestContent => "tcp-request content",
            Self::HttpRequest => "http-request header",
            Self::BackendRequest => "use-server",
            Self::TcpResponseContent => "tcp-response content",
            Self::HttpResponse => "http-response header",
            Self::Log | Self::Check | Self::Boot | Self::Command => return None,
        })
    }
}

/// A set of columns, the first in the lowest bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Columns(pub u32);

/// The columns from `first` to `last`.
const fn span(first: u32, last: u32) -> u32 {
    ((1 << (last - first + 1)) - 1) << first
}

pub(crate) const CHECK: u32 = 1 << 19;
pub(crate) const CONFIG: u32 = 1 << 20;
pub(crate) const CLI: u32 = 1 << 21;

impl Columns {
    /// Response contents, headers and body: while the response is processed, and in checks.
    pub const RESPONSE: Self = Self(span(11, 17) | CHECK);
    /// Response data kept for the log.
    pub const RESPONSE_KEPT: Self = Self(span(11, 19));
    /// The server, once chosen.
    pub const SERVER: Self = Self(span(10, 19));
    /// Byte counts of the server side.
    pub const TRANSFER: Self = Self(span(9, 18));
    /// The backend, once chosen.
    pub const BACKEND: Self = Self(span(6, 19));
    /// Request contents, headers and body.
    pub const REQUEST: Self = Self(span(2, 10));
    /// Contents in the direction being processed.
    pub const EITHER: Self = Self(span(2, 17) | CHECK);
    /// Request data kept for the log.
    pub const REQUEST_KEPT: Self = Self(span(2, 18));
    /// Facts of the established client session.
    pub const CLIENT_SESSION: Self = Self(span(1, 18));
    /// The frontend and its listener.
    pub const FRONTEND: Self = Self(span(0, 18));
    /// Facts of the client connection.
    pub const CLIENT: Self = Self(span(0, 19));
    /// State of the process, proxies and servers.
    pub const INTERNAL: Self = Self(span(0, 19) | CLI);
    /// Anywhere.
    pub const ALWAYS: Self = Self(span(0, 19) | CONFIG | CLI);

    /// Whether the two have a column in common.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Formats the columns as in `-dKsmp`.
    pub fn show(self) -> String {
        (0..22).map(|bit| if self.0 & (1 << bit) == 0 { '.' } else { 'Y' }).collect()
    }

    /// The required data, for the message that it is not available.
    pub fn needs(self) -> &'static str {
        match self {
            Self::RESPONSE => "the response's contents",
            Self::RESPONSE_KEPT => "the response",
            Self::SERVER => "the selected server",
            Self::TRANSFER => "the transfer's counters",
            Self::BACKEND => "the selected backend",
            Self::REQUEST => "the request's contents",
            Self::EITHER => "the contents of a request or response",
            Self::REQUEST_KEPT => "the request",
            Self::CLIENT_SESSION => "the client's session",
            Self::FRONTEND => "the frontend's session",
            Self::CLIENT => "the client's connection",
            _ => "the process",
        }
    }
}

/// Whether fetches such as `hdr` and `payload` refer to the response at this place.
pub fn is_response(place: Place) -> bool {
    matches!(place, Place::TcpResponseContent | Place::HttpResponse | Place::Check)
}
