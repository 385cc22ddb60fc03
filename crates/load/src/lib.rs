//! A load generator for HTTP/1, HTTP/2 and HTTP/3: `weir load`, with the options and the output of HAProxy's `haload`.
//!
//! [`arguments::parse`] reads a command line into [`Options`], and [`run`] generates the load. Each thread has its own reactor and
//! its share of the users. A user is a task that keeps a number of requests in flight, over one connection to each server of its
//! URLs. Counters are written by one thread each and read by the thread that prints them. Latency is measured per thread into a
//! histogram, and merged at the end.
//!
//! Reading order: `engine` (threads), `user` (what to send and when), `link` (one connection), `tally` and `report`. Caller: the
//! binary.

#![forbid(unsafe_code)]

pub mod arguments;
mod clock;
mod dump;
mod engine;
mod environment;
mod histogram;
mod line_words;
mod link;
mod numbers;
mod options;
mod pace;
mod report;
mod schedule;
mod summary;
mod tally;
mod target;
mod url;
mod user;

pub use arguments::{Command, HELP};
pub use dump::dump;
pub use engine::{Interrupts, run};
pub use options::Options;
