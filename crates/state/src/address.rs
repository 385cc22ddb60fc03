//! The address of a server, and the callback for an address that may be outdated. Both are part of [`crate::server`].

use std::net::SocketAddr;
use std::path::PathBuf;

/// The address for connections to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerAddress {
    /// TCP. Port 0 stands for the port to which the client connected.
    Ip(SocketAddr),
    /// A UNIX stream socket.
    Unix(PathBuf),
    /// A socket in Linux's abstract namespace, either `padded` with NULs to the full length (`abns`) or not (`abnsz`).
    Abstract {
        /// The name, without the leading NUL.
        name: Vec<u8>,
        /// Whether the address has the full length.
        padded: bool,
    },
    /// A name that was not resolved, so connecting is impossible.
    Unresolved,
    /// No address, because clients provide the server's connections (`rhttp@`).
    Reverse,
}

impl ServerAddress {
    /// Whether the address is unspecified, which stands for the client's destination.
    pub(crate) fn is_unspecified(&self) -> bool {
        matches!(self, Self::Ip(address) if address.ip().is_unspecified())
    }
}

/// The callback for a server address that may be outdated. It may be called from any thread.
pub struct Doubt(pub(crate) Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Doubt")
    }
}
