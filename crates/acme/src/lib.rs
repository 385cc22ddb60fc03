//! Certificates ordered by ACME (RFC 8555; manual, section 12.8).
//!
//! `engine` decides about requests and processes responses, without socket or clock. `task` drives one engine per certificate with
//! the HTTP client, on one worker. `challenge` sets challenges up. Issued certificates reach all listeners through `tls::files`,
//! and `save` writes them to their files. Keys are generated and files written on separate threads. Called by the binary.

#![forbid(unsafe_code)]

mod answers;
mod challenge;
mod context;
mod dns;
mod engine;
mod event;
pub mod fuzzing;
mod jws;
mod save;
mod schedule;
mod task;

pub use context::LogFn;
pub use save::{complete_pairs, keep_account_keys, try_files};
pub use task::start;
