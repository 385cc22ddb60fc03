//! The data path of a connection, from accept to the last byte.
//!
//! Read it in the order of a request: [`serve::accept`], `serve::session`, `serve::http` (HTTP) or `serve::tcp`, and the steps
//! that these call. A module calls only modules below it in this list, which `cargo run -p xtask -- imports` checks:
//!
//! | module | contents |
//! | --- | --- |
//! | `serve` | accept, sessions, requests, streams, sending generated responses |
//! | `evaluate` | running rule sets, and applying their verdicts to a message |
//! | `message` | receiving and forwarding a request and a response |
//! | `routing` | choice of backend and server, connecting, retries |
//! | `answers` | error pages, rule replies, services |
//! | `exchange` | the state of one request or stream, and its views |
//! | `client` | the client's side: connection, request, protocol |
//! | `worker` | state shared by one worker's tasks |
//! | `log` | sending log lines |
//! | `server` | the server's side: connections, idle ones, servers |
//! | `shared` | state shared by all workers |
//! | `flow` | one direction of bytes |
//! | `stream` | one stream of a multiplexed connection |
//! | `points` | trace points of the modules above it; the others are in `exchange::trace` |
//! | `fault`, `violation` | faults of an exchange, and tolerated protocol violations |
//!
//! This crate never calls `control`; both use `state`. The binary starts one [`Worker`] per thread.

#![forbid(unsafe_code)]

mod answers;
mod client;
mod evaluate;
mod event_counters;
mod exchange;
mod fault;
mod flow;
pub mod log;
mod message;
mod points;
mod routing;
pub mod serve;
mod server;
pub mod shared;
mod stream;
mod violation;
pub mod worker;

pub use event_counters::rare;
pub use flow::{Life, trace_process};
pub use routing::{check_bridge, check_pool};
pub use shared::{Services, Shared};
pub use worker::Worker;
