//! Serving: from accepting a connection to its end. [`http`] serves a request, [`tcp`] a stream.

pub mod accept;
pub mod feed;
pub(crate) mod http;
mod newcomer;
pub mod receive;
pub(crate) mod reply;
pub(crate) mod session;
pub(crate) mod tcp;
pub(crate) mod tunnel;
