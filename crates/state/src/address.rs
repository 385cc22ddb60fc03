//! Where a server is, and who is told that nothing answers there. [`crate::server`] keeps both.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where connections to the server go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerAddress {
    /// TCP. Port 0 keeps the port that the client connected to.
    Ip(SocketAddr),
    /// A UNIX stream socket.
    Unix(PathBuf),
    /// A socket in Linux's abstract namespace; `padded` with NULs to the full length (`abns`) or
    /// not (`abnsz`).
    Abstract {
        /// The name, without the leading NUL.
        name: Vec<u8>,
        /// Whether the address has the full length.
        padded: bool,
    },
    /// A name that has not been resolved: no connection is possible.
    Unresolved,
    /// None: clients bring the server's connections (`rhttp@`).
    Reverse,
}

impl ServerAddress {
    /// Whether it is the unspecified address, which stands for what the client wanted.
    pub(crate) fn is_unspecified(&self) -> bool {
        matches!(self, Self::Ip(address) if address.ip().is_unspecified())
    }
}

/// What is called, from any thread, when a server's address may be an old one.
pub struct Doubt(pub(crate) Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Doubt")
    }
}
