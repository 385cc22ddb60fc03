//! Identifies the requests that a stored response answers. One is created for each response that is stored, in memory or in a file.

use crate::vary::Variant;

/// Identifies the requests for a response.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The hash of the key.
    pub(crate) hash: u64,
    /// The resource: host, path and so on.
    pub(crate) key: Box<[u8]>,
    /// The request fields on which the response varies.
    pub(crate) variant: Variant,
}
