//! Sessions of UDP load balancing, without sockets or a clock: which datagrams belong to a session, and when the session ends.
//!
//! A session begins with a datagram of a client without a session ([`SessionTable::find`], [`SessionTable::insert`]). Each datagram that is
//! forwarded is recorded ([`SessionTable::request`], [`SessionTable::response`]); the result is whether the session is complete. Sessions
//! without datagrams expire ([`SessionTable::expired`]). Called by `proxy`, which has the sockets and passes in the time.

#![forbid(unsafe_code)]

pub mod quic;
pub mod session;
pub mod table;

pub use session::{Progress, SessionKey, SessionLimits, UdpSession};
pub use table::{SessionId, SessionTable};
