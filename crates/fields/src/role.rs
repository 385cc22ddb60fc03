//! The role of a side in a connection.

/// The role of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Receives requests from a client.
    Server,
    /// Sends requests to a server.
    Client,
}
