//! What tells servers of one name and number apart that followed one another.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use super::Server;

/// The revision of servers that are added now. Written when one is added.
static REVISION: AtomicU32 = AtomicU32::new(0);

/// Whether one was removed since. Written when one is.
static WAS_REMOVED: AtomicBool = AtomicBool::new(false);

impl Server {
    /// It is being added at run time: gives it its revision.
    pub fn number_revision(&self) {
        if WAS_REMOVED.swap(false, Relaxed) {
            REVISION.fetch_add(1, Relaxed);
        }
        self.revision.store(REVISION.load(Relaxed), Relaxed);
    }

    /// It was removed: its name and number may come again.
    pub fn end_revision(&self) {
        WAS_REMOVED.store(true, Relaxed);
    }
}
