//! QUIC: the connections of one worker and bind line.
//!
//! A worker has a socket of its own for each bind line. The [`listener`] task receives datagrams in batches and passes each to its
//! connection without waking it for every one; the [`connection`] tasks then run once for the whole batch, so that acknowledgements
//! and responses leave together. Datagrams that arrive at the wrong worker are [forwarded](forwarding). Streams are served by `multiplexed`, as those of HTTP/2, over the [`carrier`].

mod admission;
mod carrier;
mod connection;
mod forwarding;
mod listener;
mod retries;

pub use forwarding::{DatagramQueue, Retirement};
pub use listener::{QuicPort, serve};

pub(super) use connection::run;

/// Whether the process has QUIC connections, or expects clients that it has sent a Retry. A stopping process waits until this is
/// false.
pub fn is_active() -> bool {
    connection::is_serving() || retries::expected_until().is_some()
}
