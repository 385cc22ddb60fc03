//! QUIC without sockets, clock or threads (RFC 9000, 9001 and 9002).
//!
//! An [`Endpoint`] demultiplexes the datagrams of one socket by connection ID and decides what to do with clients that it does not
//! know. A [`QuicConnection`] is one QUIC connection with its streams. Both get the time and the datagrams from their caller, and write
//! datagrams into its buffers. The TLS handshake is that of the crate `tls`, so that certificates, tickets and captured details are
//! the same as over TCP. Callers: `proxy`, `load`.
//!
//! Streams are created when they are used, the TLS session goes after the handshake, and packets are encrypted and decrypted in the
//! caller's buffers: an idle connection takes little memory, and a packet little time.

#![forbid(unsafe_code)]

mod client;
mod congestion;
mod connection;
mod connection_id;
mod endpoint;
mod error;
mod frame;
mod keys;
mod mtu;
mod pacer;
mod packet;
mod parameters;
mod ranges;
mod registration;
mod rtt;
mod sent;
mod settings;
mod stats;
mod stream_frame;
mod streams;
mod token;
mod transmit;
pub mod transport;
mod types;
pub mod varint;
mod versions;

pub use client::{ClientSettings, ConnectFailure, ServerHandshake};
pub use connection::QuicConnection;
pub use connection_id::{CONNECTION_ID_LENGTH, SocketIndex};
pub use endpoint::{ConnectionHandle, Demultiplexed, Endpoint, NewClient, Refused};
pub use keys::SharedKeys;
pub use registration::EndpointInput;
pub use settings::{Congestion, CongestionAlgorithm, Settings};
pub use stats::Stats;
pub use transmit::{Ecn, Transmit};
pub use types::{LostReason, ParameterBytes, QuicEvent, Stopped, StreamDirection, StreamRead};
