//! Clock, time and size units, addresses, hashes, integers of variable length, raw bytes in text, bytes that wait to be sent,
//! whole files and inherited descriptors: what several crates use and that knows no word of the domain.
//!
//! No socket or environment variable is touched here, except by [`clock`], which asks the system
//! for the time and for the local time zone, and by [`output`], which may write to one.

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
pub mod raw;
pub mod units;
pub mod varint;
