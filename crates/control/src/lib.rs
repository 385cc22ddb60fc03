//! The runtime socket (management manual, chapter 9.3), the statistics page and the Prometheus
//! exporter.
//!
//! Reads and changes what lives in `state`; never calls the data path. What it must know of the
//! configuration comes as a [`ConfigView`], made anew at each reload. Called by the binary (sockets) and
//! by `proxy` (the page, a pure function).

#![forbid(unsafe_code)]

mod admin;
pub mod anonymous;
mod commands;
pub mod config_view;
mod disks;
mod identified;
mod invocation;
mod mirrors;
mod offload;
pub mod page;
mod policies;
pub mod prometheus;
mod runtime_edit;
mod scripted;
pub mod sharing;
pub mod sinks;
pub mod socket;
pub mod state_file;
mod statistics;
pub mod stats_file;
mod versions;

pub use config_view::{
    AccessLevel, ConfigView, Notify, ProxyView, Runtime, ServerView, SeverityOutput, SocketView,
};
pub use runtime_edit::{
    Answered, DifferenceFormat, Keeper, NewBackend, OwnResponse, Receiving, Reloader, Scripts,
};
pub use scripted::{Ran, command};
pub use socket::session::serve;
pub use socket::table::{CommandRow, commands};
pub use statistics::named::statistics;
