//! Reverse HTTP: requests are sent over a connection in the direction opposite to the one in which it was opened. The hooks are
//! at the beginning of a connection, before its first request:
//!
//! 1. [`dial::keep`] (a task for each `bind rhttp@` listener) opens connections, and `serve::handoff` passes each to a worker,
//!    where the session serves requests on it.
//! 2. `accept::attach` (called by the session after `tcp-request session attach-srv`) passes a client's connection to a server,
//!    where `routing::connect` finds it like any idle connection.
//!
//! Both sides begin with `handshake::Reversal`. `nbconn` is counted in `serve::reverse_quota`, because each connection that is
//! passed to a worker carries a permit.

pub(super) mod accept;
pub mod dial;
mod handshake;
