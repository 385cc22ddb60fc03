//! Accept, session, stream, route, connect, forward, retry, log: what is done with a connection.
//!
//! Read it in the order of a request: [`accept`], `session`, `exchange` (HTTP) or `relay` (TCP), and the steps
//! that these call. Never calls `control`; both meet in `state`. Started by the binary, one [`Worker`] a thread.

#![forbid(unsafe_code)]

pub mod accept;
mod assign;
mod bell;
mod cacheable;
mod conclude;
mod connect;
mod connection;
mod cookie;
mod ending;
mod envs;
mod exchange;
mod fault;
mod fields;
mod finish;
mod flow;
mod gate;
mod glitch;
mod handshake;
pub mod lend;
mod local;
pub mod log;
mod pool;
mod relay;
mod report;
mod request;
mod respond;
mod response;
mod retry;
mod route;
mod rules_step;
mod service;
mod session;
mod sockets;
mod tracer;
mod tunnel;
mod upload;
pub mod worker;

pub use worker::{Services, Shared, Worker};
