//! Serves connections from accept to end. [`http`] serves a request, [`tcp`] a stream.

pub mod accept;
mod cache;
mod connection_deadline;
pub mod datagrams;
mod exchange_pool;
mod features;
mod handoff;
mod hedge;
pub(crate) mod http;
mod internal_request;
pub mod log;
mod lua;
mod mirror;
mod multiplexed;
pub(crate) mod obtain;
mod peer;
mod preface;
pub(crate) mod reply;
pub mod reverse;
mod reverse_quota;
mod sending;
pub(crate) mod session;
pub mod shutdown_wakers;
mod stream_quota;
mod stream_wakers;
pub(crate) mod tcp;
pub(crate) mod tunnel;
