//! Accept, session, stream, route, connect, forward, retry, log: what is done with a connection.
//!
//! Read it in the order of a request: [`accept`], `session`, `exchange` (HTTP) or `relay` (TCP), and the steps
//! that these call. Never calls `control`; both meet in `state`. Started by the binary, one [`Worker`] a thread.

#![forbid(unsafe_code)]

pub mod accept;
mod assign;
mod cacheable;
mod client;
mod conclude;
mod connect;
mod cookie;
mod ending;
mod envs;
mod evaluate;
mod exchange;
mod fault;
mod fields;
mod filters;
mod finish;
mod flow;
mod glitch;
pub mod lend;
pub mod log;
mod relay;
mod report;
mod request;
mod respond;
mod response;
mod retry;
mod route;
mod server;
mod service;
mod session;
mod sockets;
mod tunnel;
mod upload;
pub mod worker;

pub use worker::{Services, Shared, Worker};
