//! HTTP/2 without sockets, clock or threads: RFC 9113, 7541 and 8441.
//!
//! [`hpack`] knows header blocks, [`message`] knows what a request, a response and trailers are in
//! HTTP/2 and what of them becomes a [`http::Head`]. Caller: `proxy`.

#![forbid(unsafe_code)]

pub mod code;
pub mod hpack;
pub mod message;

pub use code::Code;
