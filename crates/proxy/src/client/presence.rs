//! Whether a client that is not listened to is still there.

/// What a client does while it is only waited for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nothing new, or more requests.
    Here,
    /// It closed its side.
    Closed,
    /// Its connection broke.
    Broken,
}
