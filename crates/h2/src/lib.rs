//! HTTP/2 without sockets, clock or threads: RFC 9113, 7541, 8441 and 9218.
//!
//! [`hpack`] compresses header blocks, and [`fields`] reads and writes them as messages. [`Connection`] implements everything else:
//! frames, streams, windows, priorities and limits, for both sides. Callers: `proxy`, `health`, `load`.

#![forbid(unsafe_code)]

pub mod code;
mod connection;
mod counts;
mod event;
mod fault;
pub mod frame;
pub mod hpack;
mod limits;
mod output;
mod priority;
mod rare;
mod settings;
mod stream;
mod watch;
mod window;

pub use code::Code;
pub use connection::{Connection, OpenError, Phase};
pub use counts::Counts;
pub use event::{By, Event};
pub use fault::{Breach, Closed, Reason};
pub use fields::Role;
pub use limits::Config;
pub use rare::rare;
pub use settings::PeerSettings;
pub use stream::StreamKey;
pub use watch::WatchedFrame;
