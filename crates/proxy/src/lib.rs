//! What is done with a connection, from accept to its last byte.
//!
//! Read it in the order of a request: [`serve::accept`], `serve::session`, `serve::http` (HTTP) or
//! `serve::tcp`, and the steps that these call. Calls go down this list, which
//! `cargo run -p xtask -- imports` checks:
//!
//! | module | holds |
//! | --- | --- |
//! | `serve` | accept, sessions, requests, streams, sending answers made here |
//! | `evaluate` | running rule sets, and what their verdicts make of a message |
//! | `message` | receiving a request and a response and sending them on |
//! | `routing` | which backend and server, connecting, retries |
//! | `answers` | error pages, replies of rules, services |
//! | `exchange` | what is known of one request or stream, and what is told of it |
//! | `client` | the client's side: connection, request, protocol |
//! | `worker` | what one worker's tasks share |
//! | `log` | log lines on their way out |
//! | `server` | the server's side: connections, idle ones, servers |
//! | `shared` | what all workers share |
//! | `flow` | one direction of bytes |
//! | `stream` | one stream of a connection that carries many |
//! | `points` | trace points of the modules above it; the others are in `exchange::trace` |
//! | `fault`, `violation` | faults of an exchange, and tolerated protocol violations |
//!
//! Never calls `control`; both meet in `state`. Started by the binary, one [`Worker`] a thread.

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
pub use flow::{Life, tell_of_process};
pub use routing::{check_bridge, check_pool};
pub use shared::{Services, Shared};
pub use worker::Worker;
