//! Uncommitted versions of pattern lists, which `prepare map` creates. They are stored in the runtime.

use std::collections::HashMap;

use sample::pattern::NewLine as Entry;

/// Prepared versions, by list number.
#[derive(Debug, Default)]
pub(crate) struct Versions(pub(crate) HashMap<u32, PreparedVersions>);

/// The versions of one list.
#[derive(Debug, Default)]
pub(crate) struct PreparedVersions {
    /// The active version.
    pub(crate) current: u32,
    /// The last version number assigned.
    pub(crate) next: u32,
    /// Entries of uncommitted versions.
    pub(crate) waiting: HashMap<u32, Vec<Entry>>,
}

impl PreparedVersions {
    /// The number of entries in versions that are not committed yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.values().map(|entries| entries.len() as u64).sum()
    }
}
