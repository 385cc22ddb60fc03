//! QUIC without sockets, clock or threads (RFC 9000, 9001 and 9002).
//!
//! An [`Endpoint`] demultiplexes the datagrams of one socket by connection ID and decides what to do with clients that it does not
//! know. A [`ClientEndpoint`] belongs to one connection to a server, and its socket to nothing else. A [`QuicConnection`] is one QUIC
//! connection with its streams. All get the time and the datagrams from their caller, and write datagrams into its buffers. The TLS handshake is that of the crate `tls`, so that certificates, tickets and captured details are
//! the same as over TCP.
//!
//! The protocol engine is the library `quinn-proto`, which only the module `engine` names. Caller: `proxy`.

#![forbid(unsafe_code)]

mod connection_id;
mod engine;
mod parameters;
mod settings;
mod stats;
mod versions;

pub use connection_id::{CONNECTION_ID_LENGTH, SocketIndex};
pub use engine::client::{ClientEndpoint, ClientSettings, ConnectFailure, ServerHandshake};
pub use engine::connection::{
    LostReason, ParameterBytes, QuicConnection, QuicEvent, Stopped, StreamDirection, StreamRead,
};
pub use engine::endpoint::{ConnectionHandle, Demultiplexed, Endpoint, NewClient, Refused, SharedKeys};
pub use engine::{ConnectionInput, Ecn, EndpointInput, Transmit};
pub use settings::{Congestion, CongestionAlgorithm, Settings};
pub use stats::Stats;
