//! Sessions of UDP load balancing, without sockets or a clock: which datagrams belong to a session, and when the session ends.
//!
//! A session begins with a datagram of a client without a session ([`Table::find`], [`Table::insert`]). Each datagram that is
//! forwarded is recorded ([`Table::request`], [`Table::response`]); the result tells whether the session is complete. Sessions
//! without datagrams expire ([`Table::expired`]). Called by `proxy`, which has the sockets and passes in the time.

#![forbid(unsafe_code)]

pub mod quic;
pub mod session;
pub mod table;

pub use session::{Limits, Progress, Session, SessionKey};
pub use table::{SessionId, Table};
