//! The runtime socket (management manual, chapter 9.3), the statistics page and the Prometheus exporter.
//!
//! Reads and changes what lives in `state`; never calls the data path. What it must know of the configuration
//! comes as a [`View`], made anew at each reload. Called by the binary (sockets) and by `proxy` (the page, a pure function).

#![forbid(unsafe_code)]

pub mod field;
pub mod line;
pub mod master;
pub mod page;
pub mod prometheus;
pub mod session;
pub mod state_file;
pub mod statistics;
pub mod stats_file;
pub mod view;

mod admin;
pub mod anonymous;
mod backends;
mod captured;
mod certificates;
mod column;
mod command;
mod events;
mod forms;
mod info;
mod inside;
mod measures;
mod patterns;
mod places;
mod resolvers;
mod servers;
mod sets;
mod shows;
mod stat;
mod stream_dump;
mod streams;
mod traces;
mod variables;

pub use command::{CommandRow, commands};
pub use servers::{Keeper, NewBackend};
pub use session::serve;
pub use view::{Level, Notify, ProxyView, Runtime, ServerView, SeverityOutput, SocketView, View};
