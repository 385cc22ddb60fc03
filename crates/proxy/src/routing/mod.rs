//! Which backend and which server serve a request, how the server is reached, and what follows when
//! it fails.

pub(crate) mod assign;
pub(crate) mod attempt;
pub mod bridge;
pub(crate) mod connect;
pub(crate) mod cookie;
mod introduction;
pub mod lend;
mod reach;
pub(crate) mod retry;
pub(crate) mod route;
mod secure;
pub(crate) mod stick;
mod takeover;
pub(crate) mod unreached;
