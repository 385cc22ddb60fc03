//! What a response that is kept is an answer to. Made where one is stored, in memory or in a file.

use crate::vary::Variant;

/// Which requests get a response.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The hash of the key.
    pub(crate) hash: u64,
    /// Host, path and what else tells resources apart.
    pub(crate) key: Box<[u8]>,
    /// What requests must have alike beside that.
    pub(crate) variant: Variant,
}
