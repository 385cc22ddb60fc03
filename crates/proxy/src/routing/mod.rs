//! Which backend and which server serve a request, how the server is reached, and what follows when
//! it fails.

pub(crate) mod assign;
pub(crate) mod attempt;
pub mod check_bridge;
pub mod check_pool;
pub(crate) mod connect;
pub(crate) mod connect_error;
mod connect_wait;
pub(crate) mod cookie;
pub(crate) mod retry;
pub(crate) mod route;
mod send_proxy;
mod server_tls;
pub(crate) mod stick;
mod takeover;
