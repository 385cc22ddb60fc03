//! Versions of pattern lists under preparation (`prepare map`): kept by the runtime, made by
//! commands.

use std::collections::HashMap;

use sample::pattern::NewLine as Entry;

/// Versions of lists that were prepared, by the list's number.
#[derive(Debug, Default)]
pub(crate) struct Versions(pub(crate) HashMap<u32, PreparedVersions>);

/// The versions of one list.
#[derive(Debug, Default)]
pub(crate) struct PreparedVersions {
    /// The version matched against now.
    pub(crate) current: u32,
    /// The last version made.
    pub(crate) next: u32,
    /// Entries of versions not committed yet.
    pub(crate) waiting: HashMap<u32, Vec<Entry>>,
}

impl PreparedVersions {
    /// The number of entries in versions that are not committed yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.values().map(|entries| entries.len() as u64).sum()
    }
}
