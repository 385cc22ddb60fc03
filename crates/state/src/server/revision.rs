//! Distinguishes consecutive servers with the same name and id.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use super::Server;

/// The revision of servers added now. Written when one is added.
static REVISION: AtomicU32 = AtomicU32::new(0);

/// Whether one was removed since then. Written when one is.
static WAS_REMOVED: AtomicBool = AtomicBool::new(false);

impl Server {
    /// Called when it is added at run time: sets its revision.
    pub fn number_revision(&self) {
        if WAS_REMOVED.swap(false, Relaxed) {
            REVISION.fetch_add(1, Relaxed);
        }
        self.revision.store(REVISION.load(Relaxed), Relaxed);
    }

    /// Called when it was removed: its name and id may be reused.
    pub fn end_revision(&self) {
        WAS_REMOVED.store(true, Relaxed);
    }
}
