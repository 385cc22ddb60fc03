//! Clock, time and size units, addresses, hashes and raw bytes in text: what three or more rooms use and that knows no word of the domain.
//!
//! No file, socket or environment variable is touched here, except by [`clock`], which asks the system for the time
//! and for the local time zone.

#![forbid(unsafe_code)]

pub mod address;
pub mod clock;
pub mod hash;
pub mod network;
pub mod raw;
pub mod support;
pub mod units;
