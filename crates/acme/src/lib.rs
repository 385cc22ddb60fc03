//! Certificates from an authority by ACME (RFC 8555; manual, section 12.8).
//!
//! What is asked when, and what answers mean, is `engine`, without socket or clock. `task` drives
//! one engine for each certificate with the HTTP client, on one worker; `meet` makes challenges
//! ready; what was issued goes to all listeners through `tls::files` and to its file through `save`.
//! Keys are made and files written on threads of their own. Called by the binary.

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
