//! The runtime socket (management manual, chapter 9.3): its commands, its sessions, and the changes of servers that the commands
//! share with the forms of the statistics page.
//!
//! Reads and changes `state`; never calls the data path. The statistics and the view of the configuration are in the crate
//! `statistics`. Called by the binary.

#![forbid(unsafe_code)]

mod access;
mod admin;
pub mod anonymous;
mod commands;
mod invocation;
mod offload;
pub mod page;
mod process;
mod runtime_edit;
mod scripted;
pub mod sinks;
pub mod socket;
pub mod state_file;
mod versions;

pub use access::{AccessLevel, SeverityOutput};
pub use process::{Notify, Runtime, ShowPeers};
pub use runtime_edit::{
    Answered, DifferenceFormat, Keeper, NewBackend, OwnResponse, Receiving, Reloader, Scripts,
};
pub use scripted::{Ran, command};
pub use socket::session::serve;
pub use socket::table::{CommandRow, commands};
