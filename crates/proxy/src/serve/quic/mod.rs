//! QUIC: the connections of one worker and bind line.
//!
//! A worker has a socket of its own for each bind line. The [`listener`] task receives datagrams in batches and passes each to its
//! connection without waking it for every one; the [`connection`] tasks then run once for the whole batch, so that acknowledgements
//! and responses leave together. Streams are served by `multiplexed`, as those of HTTP/2, over the [`carrier`].

mod admission;
mod carrier;
mod connection;
mod listener;

pub use listener::serve;

pub(super) use connection::run;
