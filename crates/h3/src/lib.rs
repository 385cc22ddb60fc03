//! HTTP/3 without sockets, clock or threads: RFC 9114, 9204, 9218 and 9220.
//!
//! [`qpack`] compresses field sections, which [`fields`] reads and writes as messages. [`Connection`] is everything else: frames,
//! request streams, the control stream and limits, for both sides. It runs over [`Streams`], which a QUIC connection implements.
//! Callers: `proxy`, `load`.

#![forbid(unsafe_code)]

pub mod code;
mod connection;
mod counts;
mod event;
mod fault;
pub mod frame;
mod limits;
mod priority;
pub mod qpack;
mod rare;
mod settings;
mod stream;
mod transport;
pub mod varint;

pub use code::Code;
pub use connection::{Connection, OpenError, RequestState};
pub use counts::Counts;
pub use event::{H3Event, ResetBy};
pub use fault::{FaultReason, Violation};
pub use fields::Role;
pub use limits::Config;
pub use rare::rare;
pub use settings::PeerSettings;
pub use stream::RequestKey;
pub use transport::{Stopped, StreamChunk, Streams};
