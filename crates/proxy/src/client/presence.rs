//! Detects whether a client is still connected while its input is not read.

/// The state of a client while the proxy waits for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// There is nothing new, or the client sent further requests.
    Here,
    /// The client closed its side.
    Closed,
    /// The client's connection broke.
    Broken,
}
