//! The statistics of the process and of its proxies, servers and listeners, in every format.
//!
//! Contains the columns of `show stat` and the fields of `show info` with their CSV, typed and JSON formats (management manual, 9.1
//! and 9.2), the statistics page, the Prometheus exporter, and the counters that outlive a process or are shared between processes.
//! Reads `state`, changes only counters (when they are restored or shared), and never calls the data path. The configuration is a
//! [`ConfigView`], replaced at each reload. Called by `control` (commands) and by the binary, which passes the page and the
//! exporter to `proxy` as functions.

#![forbid(unsafe_code)]

mod aggregates;
mod certificates;
mod collected;
mod column;
pub mod config_view;
pub mod discovery;
pub mod disks;
mod durations;
mod exposition;
pub mod faults;
mod field;
mod identified;
pub mod info;
pub mod mirrors;
mod named;
pub mod page;
mod patterns;
pub mod pieces;
pub mod policies;
mod process;
pub mod prometheus;
mod quic_columns;
pub mod resolvers;
mod row_objects;
pub mod sampling;
pub mod sharing;
pub mod stat;
pub mod stats_file;
pub mod telemetry;

pub use config_view::{ConfigView, ProxyView, ServerView, SocketView};
pub use named::by_name;
pub use process::Statistics;
