//! Detects whether a client is still connected while its input is not being read.

/// The state of a client during a wait for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nothing new, or more requests.
    Here,
    /// It closed its side.
    Closed,
    /// Its connection broke.
    Broken,
}
