//! Which side of a connection is which.

/// Which side of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Requests come: towards clients.
    Server,
    /// Requests go: towards servers.
    Client,
}
