//! QMux without sockets, clock or threads (draft-ietf-quic-qmux-01): QUIC's streams over a byte stream, such as TCP or TLS.
//!
//! A [`QmuxConnection`] gets the received bytes and the time from its caller, and returns the bytes to send. Streams, their flow
//! control and their frames are those of the crate `quic`; this crate adds the records that carry the frames, the exchange of
//! transport parameters, pings, the idle timeout, and the end of a connection. Datagrams (RFC 9221) are not supported. Callers:
//! `proxy`, `load`.
//!
//! The transport delivers bytes in order, so data counts as acknowledged once it is in a record. Memory is bounded by the windows of
//! the streams in both directions, one partial record of at most 16 KiB, and one batch of records to send.

#![forbid(unsafe_code)]

mod close;
mod connection;
mod frames;
mod idle;
mod output;
mod parameters;
mod ping;
mod record;
#[cfg(test)]
mod tests;

pub use connection::QmuxConnection;
