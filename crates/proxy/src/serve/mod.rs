//! Serving: from accepting a connection to its end. [`http`] serves a request, [`tcp`] a stream.

pub mod accept;
mod attach;
mod boxes;
mod cached;
pub mod feed;
mod hedge;
pub(crate) mod http;
mod mirror;
mod multiplexed;
mod newcomer;
mod obtain;
mod peer;
pub mod preconnect;
mod preface;
mod ready;
pub mod receive;
pub(crate) mod reply;
mod revalidate;
mod reversal;
mod script;
mod sending;
pub(crate) mod session;
mod share;
mod slots;
pub mod stopping;
pub(crate) mod tcp;
pub(crate) mod tunnel;
