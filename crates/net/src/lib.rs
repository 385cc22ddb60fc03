//! Listeners, dialing, the PROXY protocol and other connection preambles, and splicing.
//!
//! This crate does not depend on the request level. `unsafe` occurs only in [`sys`]. Callers: `proxy`, `health`, `resolvers` and
//! the binary.

#![deny(unsafe_code)]

pub mod connected;
pub mod dial;
pub mod listen;
pub mod netscaler;
pub mod pass;
mod place;
pub mod proxy_protocol;
mod secure;
pub mod socks4;
pub mod splice;
pub mod steering;
pub mod stream;
pub mod sys;
pub mod udp;

pub use dial::{Dial, Target};
pub use listen::{AcceptedSocket, Listener};
pub use stream::{Detached, Stream};
