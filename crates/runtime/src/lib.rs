//! Workers, mailboxes, lazy deadlines, per-thread counters and the buffer pool.
//!
//! Each worker is an OS thread with its own single-threaded tokio runtime and `!Send` tasks. This crate does not depend on the
//! proxied protocols. All crates above it use it; `state` uses only [`shard`] and [`count`].

#![forbid(unsafe_code)]

mod boxed;
pub mod buffer;
pub mod count;
pub mod datagrams;
pub mod local;
pub mod placement;
pub mod pools;
pub mod profile;
pub mod shard;
pub mod shared;
pub mod timer;
pub mod topology;
pub mod trace;
pub mod turns;
pub mod usage;
pub mod watchdog;
mod wheel;
pub mod worker;

pub use boxed::{Boxed, Boxes};
pub use buffer::Buffer;
pub use count::{Count, Gauge, Latest, Rate};
pub use local::Local;
pub use shard::{LazySharded, Sharded, current_worker};
