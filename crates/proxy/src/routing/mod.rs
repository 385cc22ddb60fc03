//! Chooses the backend and the server of a request, connects to the server, and handles failures.

pub(crate) mod assign;
pub(crate) mod attempt;
pub mod check_bridge;
pub mod check_pool;
pub(crate) mod connect;
pub(crate) mod connect_error;
mod connect_qmux;
mod connect_quic;
mod connect_wait;
pub(crate) mod cookie;
pub(crate) mod retry;
pub(crate) mod route;
mod send_proxy;
mod server_target;
mod server_tls;
pub(crate) mod stick;
mod takeover;
