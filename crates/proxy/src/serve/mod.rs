//! Serving: from accepting a connection to its end. [`http`] serves a request, [`tcp`] a stream.

pub mod accept;
mod boxes;
pub mod feed;
pub(crate) mod http;
mod multiplexed;
mod newcomer;
mod preface;
mod ready;
pub mod receive;
pub(crate) mod reply;
pub(crate) mod session;
mod share;
pub mod stopping;
pub(crate) mod tcp;
pub(crate) mod tunnel;
