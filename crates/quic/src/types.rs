//! Events and results of a connection.

use bytes::Bytes;

/// The direction of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamDirection {
    /// Both sides send.
    Both,
    /// Only the side that opened the stream sends.
    One,
}

/// An event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuicEvent {
    /// The handshake parameters are known ([`QuicConnection::details`](crate::QuicConnection::details)).
    HandshakeData,
    /// The handshake is complete.
    Connected,
    /// The connection is over.
    Lost(LostReason),
    /// The peer has opened streams; [`QuicConnection::accept_stream`](crate::QuicConnection::accept_stream) returns them.
    Opened(StreamDirection),
    /// Data or an end has arrived.
    Readable(u64),
    /// A stream that was blocked takes data again.
    Writable(u64),
    /// The peer wants no more data.
    Stopped(u64, u64),
    /// All data of a stream was acknowledged.
    Finished(u64),
    /// More streams may be opened.
    Available(StreamDirection),
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostReason {
    /// The peer closed it, with a code of the application (HTTP/3).
    Application(u64),
    /// The peer closed it, with a transport error (RFC 9000, 20.1).
    Closed(u64),
    /// The peer violated the protocol, with the error that it was sent.
    Violation(u64, String),
    /// The peer has lost the connection's state.
    Reset,
    /// Nothing was received for too long.
    TimedOut,
    /// We closed it.
    Local,
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamRead {
    /// Data, in order.
    Bytes(Bytes),
    /// Nothing yet: [`QuicEvent::Readable`] follows.
    Blocked,
    /// The end of the stream.
    Finished,
    /// The peer aborted the stream, with its code.
    Reset(u64),
}

/// The peer wants no more data, with its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped(pub u64);

/// The transport parameters of both sides (RFC 9000, 18), as sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParameterBytes {
    /// Ours.
    pub local: Vec<u8>,
    /// The peer's; empty until they have arrived.
    pub remote: Vec<u8>,
}
