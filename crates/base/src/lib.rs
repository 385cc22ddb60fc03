//! Domain-independent helpers used by several crates: clock, time and size units, addresses, hashes, variable-length integers, the
//! protocol buffers format, raw bytes in text, output queues, whole files and inherited descriptors.
//!
//! No socket or environment variable is used here, except by [`clock`], which reads the system's time and time zone, and by
//! [`output`], which may write to a socket.

#![forbid(unsafe_code)]

pub mod address;
pub mod clock;
pub mod event_counter;
pub mod file;
pub mod hash;
pub mod keyword_support;
pub mod memory;
pub mod network;
pub mod outgoing;
pub mod output;
pub mod protobuf;
pub mod raw;
pub mod sample_line;
pub mod seen_files;
pub mod units;
pub mod varint;
