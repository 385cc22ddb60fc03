//! The sources and their events. The names are those of HAProxy; events that cannot occur in Weir are omitted.

/// A part of the process that can be traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceSource {
    /// Connections that carry HTTP/2, on either side.
    H2,
    /// Connections to FastCGI applications.
    Fcgi,
    /// Connections to SPOE agents.
    Spop,
    /// Certificate orders.
    Acme,
    /// TLS, on either side.
    Ssl,
    /// Client connections that carry HTTP/3.
    H3,
    /// Client connections over QUIC, and the datagrams of their listeners.
    Quic,
    /// Connections over QMux, on either side.
    Qmux,
    /// Connections that carry HTTP/1, on either side.
    H1,
    /// Requests and TCP streams, step by step.
    Stream,
    /// Sessions with peers.
    Peers,
    /// Health checks.
    Check,
    /// Client connections, from accept to close.
    Session,
    /// The evaluation of rules. Only in Weir.
    Rules,
}

/// An event of a source.
#[derive(Debug, Clone, Copy)]
pub struct TraceEvent {
    /// The bit of the event.
    pub bit: u64,
    /// The name of the event.
    pub name: &'static str,
    /// A one-line description.
    pub doc: &'static str,
}

const fn event(bit: u64, name: &'static str, doc: &'static str) -> TraceEvent {
    TraceEvent { bit, name, doc }
}

/// Events of [`TraceSource::H1`].
pub mod h1 {
    use super::{TraceEvent, event};
    /// A connection starts to use HTTP/1.
    pub const CONNECTION_NEW: u64 = 1;
    /// A connection is over.
    pub const CONNECTION_END: u64 = 1 << 1;
    /// A head was received.
    pub const RX_HEADERS: u64 = 1 << 3;
    /// Body bytes were received.
    pub const RX_DATA: u64 = 1 << 4;
    /// A head was sent.
    pub const TX_HEADERS: u64 = 1 << 5;
    /// Body bytes were sent.
    pub const TX_DATA: u64 = 1 << 6;
    /// A request starts on a connection.
    pub const STREAM_NEW: u64 = 1 << 7;
    /// A request is over.
    pub const STREAM_END: u64 = 1 << 8;
    /// A request failed, or was invalid.
    pub const STREAM_ERROR: u64 = 1 << 9;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(CONNECTION_NEW, "h1c_new", "connection opened"),
        event(CONNECTION_END, "h1c_end", "connection closed"),
        event(RX_DATA, "rx_data", "body data received"),
        event(RX_HEADERS, "rx_headers", "header section received"),
        event(TX_DATA, "tx_data", "body data sent"),
        event(TX_HEADERS, "tx_headers", "header section serialized"),
        event(STREAM_NEW, "h1s_new", "request started"),
        event(STREAM_END, "h1s_end", "request ended"),
        event(STREAM_ERROR, "h1s_err", "request failed"),
    ];
}

/// Events of [`TraceSource::H3`].
pub mod h3 {
    use super::{TraceEvent, event};
    /// A connection begins.
    pub const CONNECTION_NEW: u64 = 1;
    /// A connection is over.
    pub const CONNECTION_END: u64 = 1 << 1;
    /// A protocol violation.
    pub const PROTOCOL_ERROR: u64 = 1 << 2;
    /// A stream begins.
    pub const STREAM_NEW: u64 = 1 << 3;
    /// A stream is over.
    pub const STREAM_END: u64 = 1 << 4;
    /// A header section was received.
    pub const RX_HEADERS: u64 = 1 << 5;
    /// A header section was sent.
    pub const TX_HEADERS: u64 = 1 << 6;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(CONNECTION_NEW, "h3c_new", "connection opened"),
        event(CONNECTION_END, "h3c_end", "connection closed"),
        event(PROTOCOL_ERROR, "proto_err", "protocol violation"),
        event(STREAM_NEW, "h3s_new", "stream started"),
        event(STREAM_END, "h3s_end", "stream ended"),
        event(RX_HEADERS, "rx_hdr", "header section received"),
        event(TX_HEADERS, "tx_hdr", "header section sent"),
    ];
}

/// Events of [`TraceSource::Quic`].
pub mod quic {
    use super::{TraceEvent, event};
    /// A connection begins.
    pub const NEW: u64 = 1;
    /// A client sent a first datagram.
    pub const LISTENER_PACKET: u64 = 1 << 1;
    /// The handshake is complete.
    pub const PARAMETERS: u64 = 1 << 2;
    /// Datagrams were received.
    pub const RX: u64 = 1 << 3;
    /// Datagrams were sent.
    pub const TX: u64 = 1 << 4;
    /// Packets were declared lost.
    pub const LOSS: u64 = 1 << 5;
    /// A connection was closed by either side.
    pub const CLOSE: u64 = 1 << 6;
    /// A connection is over, and its memory is released.
    pub const END: u64 = 1 << 7;
    /// A stateless reset was sent.
    pub const RESET: u64 = 1 << 8;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(NEW, "new_conn", "connection opened"),
        event(LISTENER_PACKET, "lstnr_packet", "first datagram of a client received"),
        event(TX, "tx_pkt", "datagrams sent"),
        event(RX, "rx_pkt", "datagrams received"),
        event(LOSS, "pktloss", "packets lost"),
        event(END, "conn_freed", "connection released"),
        event(CLOSE, "conn_close", "connection closed by either side"),
        event(RESET, "stateless_reset", "stateless reset sent"),
        event(PARAMETERS, "transport_params", "handshake complete, transport parameters known"),
    ];
}

/// Events of [`TraceSource::Qmux`].
pub mod qmux {
    use super::{TraceEvent, event};
    /// A connection begins.
    pub const NEW: u64 = 1;
    /// The transport parameters of the peer have arrived.
    pub const PARAMETERS: u64 = 1 << 1;
    /// Records were received.
    pub const RX: u64 = 1 << 2;
    /// Records were sent.
    pub const TX: u64 = 1 << 3;
    /// A connection was closed by the peer, or because of the peer.
    pub const CLOSE: u64 = 1 << 4;
    /// A connection is over.
    pub const END: u64 = 1 << 5;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(NEW, "new_conn", "connection opened"),
        event(TX, "tx_record", "records sent"),
        event(RX, "rx_record", "records received"),
        event(END, "conn_freed", "connection released"),
        event(CLOSE, "conn_close", "connection closed by the peer, or because of it"),
        event(PARAMETERS, "transport_params", "transport parameters received"),
    ];
}

/// Events of [`TraceSource::H2`].
pub mod h2 {
    use super::{TraceEvent, event};
    /// A connection begins.
    pub const CONNECTION_NEW: u64 = 1;
    /// A connection is over.
    pub const CONNECTION_END: u64 = 1 << 1;
    /// A connection failed.
    pub const CONNECTION_ERROR: u64 = 1 << 2;
    /// A protocol violation.
    pub const PROTOCOL_ERROR: u64 = 1 << 3;
    /// A stream begins.
    pub const STREAM_NEW: u64 = 1 << 4;
    /// A stream is over.
    pub const STREAM_END: u64 = 1 << 5;
    /// A stream was reset.
    pub const STREAM_ERROR: u64 = 1 << 6;
    /// A frame was received.
    pub const RX_FRAME: u64 = 1 << 7;
    /// A frame was sent.
    pub const TX_FRAME: u64 = 1 << 8;

    /// The first bit of the received frame types, in numerical order.
    const RX: u32 = 16;
    /// The first bit of the sent frame types.
    const TX: u32 = 32;

    /// The event bits of a frame of this type.
    pub fn frame(kind: u8, is_sent: bool) -> u64 {
        let (any, first) = if is_sent { (TX_FRAME, TX) } else { (RX_FRAME, RX) };
        if kind <= 9 { any | 1 << (first + u32::from(kind)) } else { any }
    }

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(CONNECTION_NEW, "h2c_new", "connection opened"),
        event(CONNECTION_END, "h2c_end", "connection closed"),
        event(CONNECTION_ERROR, "h2c_err", "connection failed"),
        event(RX_FRAME, "rx_frame", "frame of any type received"),
        event(1 << RX, "rx_data", "DATA frame received"),
        event(2 << RX, "rx_hdr", "HEADERS frame received"),
        event(4 << RX, "rx_prio", "PRIORITY frame received"),
        event(8 << RX, "rx_rst", "RST_STREAM frame received"),
        event(16 << RX, "rx_settings", "SETTINGS frame received"),
        event(32 << RX, "rx_push", "PUSH_PROMISE frame received"),
        event(64 << RX, "rx_ping", "PING frame received"),
        event(128 << RX, "rx_goaway", "GOAWAY frame received"),
        event(256 << RX, "rx_wu", "WINDOW_UPDATE frame received"),
        event(512 << RX, "rx_cont", "CONTINUATION frame received"),
        event(TX_FRAME, "tx_frame", "frame of any type serialized"),
        event(1 << TX, "tx_data", "DATA frame serialized"),
        event(2 << TX, "tx_hdr", "HEADERS frame serialized"),
        event(8 << TX, "tx_rst", "RST_STREAM frame serialized"),
        event(16 << TX, "tx_settings", "SETTINGS frame serialized"),
        event(64 << TX, "tx_ping", "PING frame serialized"),
        event(128 << TX, "tx_goaway", "GOAWAY frame serialized"),
        event(256 << TX, "tx_wu", "WINDOW_UPDATE frame serialized"),
        event(512 << TX, "tx_cont", "CONTINUATION frame serialized"),
        event(STREAM_NEW, "h2s_new", "stream opened"),
        event(STREAM_END, "h2s_end", "stream closed"),
        event(STREAM_ERROR, "h2s_err", "stream reset"),
        event(PROTOCOL_ERROR, "proto_err", "protocol error by the peer"),
    ];
}

/// Events of [`TraceSource::Fcgi`].
pub mod fcgi {
    use super::{TraceEvent, event};
    /// A connection begins.
    pub const CONNECTION_NEW: u64 = 1;
    /// A connection is over.
    pub const CONNECTION_END: u64 = 1 << 1;
    /// A request begins.
    pub const STREAM_NEW: u64 = 1 << 3;
    /// A request is over.
    pub const STREAM_END: u64 = 1 << 4;
    /// A response head was received.
    pub const RESPONSE_HEADERS: u64 = 1 << 5;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(CONNECTION_NEW, "fconn_new", "connection opened"),
        event(CONNECTION_END, "fconn_end", "connection closed"),
        event(RESPONSE_HEADERS, "rsp_headers", "response header section received"),
        event(STREAM_NEW, "fstrm_new", "request started"),
        event(STREAM_END, "fstrm_end", "request ended"),
    ];
}

/// Events of [`TraceSource::Acme`].
pub mod acme {
    use super::{TraceEvent, event};
    /// An order starts, makes progress, or is over.
    pub const TASK: u64 = 1;

    pub(super) const EVENTS: &[TraceEvent] = &[event(TASK, "acme_task", "order started, advanced or ended")];
}

/// Events of [`TraceSource::Ssl`].
pub mod ssl {
    use super::{TraceEvent, event};
    /// A handshake begins.
    pub const NEW: u64 = 1;
    /// A handshake is over.
    pub const HANDSHAKE: u64 = 1 << 1;
    /// A handshake failed.
    pub const ERROR: u64 = 1 << 2;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(NEW, "sslc_new", "handshake started"),
        event(ERROR, "sslc_err", "handshake failed"),
        event(HANDSHAKE, "sslc_hndshk", "handshake ended"),
    ];
}

/// Events of [`TraceSource::Stream`].
pub mod stream {
    use super::{TraceEvent, event};
    /// A stream begins.
    pub const NEW: u64 = 1;
    /// A stream is over.
    pub const FREE: u64 = 1 << 1;
    /// A stream ended with an error.
    pub const ERROR: u64 = 1 << 2;
    /// A state change on the server side.
    pub const SERVER_STATE: u64 = 1 << 3;
    /// A processing step of an HTTP request or response.
    pub const HTTP: u64 = 1 << 4;
    /// An error in an HTTP processing step.
    pub const HTTP_ERROR: u64 = 1 << 5;
    /// A processing step of a TCP stream.
    pub const TCP: u64 = 1 << 6;
    /// An error in a TCP processing step.
    pub const TCP_ERROR: u64 = 1 << 7;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(NEW, "strm_new", "stream opened"),
        event(FREE, "strm_free", "stream closed"),
        event(ERROR, "strm_err", "stream ended with an error"),
        event(SERVER_STATE, "sc_state", "server selected, connected or abandoned"),
        event(HTTP, "http_ana", "HTTP processing step"),
        event(HTTP_ERROR, "http_err", "HTTP error"),
        event(TCP, "tcp_ana", "TCP processing step"),
        event(TCP_ERROR, "tcp_err", "TCP error"),
    ];
}

/// Events of [`TraceSource::Peers`].
pub mod peers {
    use super::{TraceEvent, event};
    /// A session begins.
    pub const NEW: u64 = 1;
    /// A session is over.
    pub const END: u64 = 1 << 1;
    /// A session ended with an error.
    pub const ERROR: u64 = 1 << 2;
    /// Bytes were received.
    pub const RX: u64 = 1 << 3;
    /// Bytes were sent.
    pub const TX: u64 = 1 << 4;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(NEW, "sess_new", "session started"),
        event(END, "sess_end", "session ended"),
        event(ERROR, "sess_err", "session failed"),
        event(RX, "rx_msg", "messages received"),
        event(TX, "tx_msg", "messages sent"),
    ];
}

/// Events of [`TraceSource::Check`].
pub mod check {
    use super::{TraceEvent, event};
    /// A check begins.
    pub const START: u64 = 1;
    /// A check is over.
    pub const END: u64 = 1 << 1;
    /// A check succeeded.
    pub const SUCCESS: u64 = 1 << 2;
    /// A check failed.
    pub const ERROR: u64 = 1 << 3;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(START, "hchck_start", "check started"),
        event(END, "hchck_end", "check ended"),
        event(SUCCESS, "hchck_succ", "check passed"),
        event(ERROR, "hchck_err", "check failed"),
    ];
}

/// Events of [`TraceSource::Session`].
pub mod session {
    use super::{TraceEvent, event};
    /// A connection was accepted.
    pub const NEW: u64 = 1;
    /// A connection is over.
    pub const END: u64 = 1 << 1;
    /// A connection was refused, or failed before it became a stream.
    pub const ERROR: u64 = 1 << 2;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(NEW, "sess_new", "session started"),
        event(END, "sess_end", "session ended"),
        event(ERROR, "sess_err", "session rejected or failed"),
    ];
}

/// Events of [`TraceSource::Rules`].
pub mod rules {
    use super::{TraceEvent, event};
    /// The condition of a rule is false.
    pub const SKIPPED: u64 = 1;
    /// A rule was applied.
    pub const APPLIED: u64 = 1 << 1;
    /// A rule ended the request or its rule set.
    pub const ENDED: u64 = 1 << 2;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(SKIPPED, "rule_skip", "condition of a rule is false"),
        event(APPLIED, "rule_apply", "rule applied"),
        event(ENDED, "rule_end", "rule ended the request or its rule set"),
    ];
}

/// Events of [`TraceSource::Spop`].
pub mod spop {
    use super::{TraceEvent, event};
    /// A connection begins.
    pub const CONNECTION_NEW: u64 = 1;
    /// A connection is over.
    pub const CONNECTION_END: u64 = 1 << 1;
    /// A connection failed, or was closed by the agent.
    pub const CONNECTION_ERROR: u64 = 1 << 2;
    /// A request to the agent starts.
    pub const STREAM_NEW: u64 = 1 << 3;
    /// A request to the agent is over.
    pub const STREAM_END: u64 = 1 << 4;
    /// A request to the agent got no response.
    pub const STREAM_ERROR: u64 = 1 << 5;
    /// The agent's HELLO was received.
    pub const RX_HELLO: u64 = 1 << 6;
    /// An ACK was received.
    pub const RX_ACK: u64 = 1 << 7;
    /// Our HELLO was created.
    pub const TX_HELLO: u64 = 1 << 8;
    /// A NOTIFY was created.
    pub const TX_NOTIFY: u64 = 1 << 9;
    /// Our DISCONNECT was created.
    pub const TX_DISCONNECT: u64 = 1 << 10;

    pub(super) const EVENTS: &[TraceEvent] = &[
        event(CONNECTION_NEW, "spop_conn_new", "connection opened"),
        event(CONNECTION_END, "spop_conn_end", "connection closed"),
        event(CONNECTION_ERROR, "spop_conn_err", "connection failed or closed by the agent"),
        event(RX_HELLO, "rx_hello", "HELLO frame received"),
        event(RX_ACK, "rx_ack", "ACK frame received"),
        event(TX_HELLO, "tx_hello", "HELLO frame serialized"),
        event(TX_NOTIFY, "tx_notify", "NOTIFY frame serialized"),
        event(TX_DISCONNECT, "tx_disconnect", "DISCONNECT frame serialized"),
        event(STREAM_NEW, "spop_strm_new", "request started"),
        event(STREAM_END, "spop_strm_end", "request ended"),
        event(STREAM_ERROR, "spop_strm_err", "request without response"),
    ];
}

impl TraceSource {
    /// All sources, in HAProxy's order, then Weir's own. This is also the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::H2,
        Self::Fcgi,
        Self::Spop,
        Self::Acme,
        Self::Ssl,
        Self::H3,
        Self::Quic,
        Self::Qmux,
        Self::H1,
        Self::Stream,
        Self::Peers,
        Self::Check,
        Self::Session,
        Self::Rules,
    ];

    /// The bit of the source.
    #[inline]
    pub(super) fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The name of the source.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// A one-line description.
    pub fn doc(self) -> &'static str {
        self.row().1
    }

    /// The events of the source.
    pub fn events(self) -> &'static [TraceEvent] {
        self.row().2
    }

    fn row(self) -> (&'static str, &'static str, &'static [TraceEvent]) {
        match self {
            Self::H2 => ("h2", "HTTP/2", h2::EVENTS),
            Self::H3 => ("h3", "HTTP/3", h3::EVENTS),
            Self::Quic => ("quic", "QUIC connections", quic::EVENTS),
            Self::Qmux => ("qmux", "QMux connections", qmux::EVENTS),
            Self::Fcgi => ("fcgi", "FastCGI", fcgi::EVENTS),
            Self::Acme => ("acme", "ACME orders", acme::EVENTS),
            Self::Ssl => ("ssl", "TLS handshakes", ssl::EVENTS),
            Self::H1 => ("h1", "HTTP/1", h1::EVENTS),
            Self::Stream => ("stream", "requests and TCP streams", stream::EVENTS),
            Self::Peers => ("peers", "peers sessions", peers::EVENTS),
            Self::Check => ("check", "health checks", check::EVENTS),
            Self::Session => ("session", "client connections", session::EVENTS),
            Self::Rules => ("rules", "rules and their conditions", rules::EVENTS),
            Self::Spop => ("spop", "SPOP", spop::EVENTS),
        }
    }
}

/// HAProxy's sources that do not exist in Weir, with the reason.
pub const ABSENT: &[(&str, &str)] = &[
    ("applet", "Weir has no applets: use `stream`"),
    ("haterm", "requests in `mode haterm` are traced like others: use `stream`"),
    ("pt", "Weir has no pass-through multiplexer: use `stream` for TCP streams"),
    (
        "qcm",
        "Weir has no separate multiplexer for QUIC: use `h3` for streams, `quic` and `qmux` for connections",
    ),
];
