//! Distinguishes consecutive servers with the same name and id.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use super::Server;

/// The revision of servers that are added now. Written when one is added.
static REVISION: AtomicU32 = AtomicU32::new(0);

/// Whether a server was removed since then. Written when one is removed.
static WAS_REMOVED: AtomicBool = AtomicBool::new(false);

impl Server {
    /// Sets the revision of a server that is added at run time.
    pub fn number_revision(&self) {
        if WAS_REMOVED.swap(false, Relaxed) {
            REVISION.fetch_add(1, Relaxed);
        }
        self.revision.store(REVISION.load(Relaxed), Relaxed);
    }

    /// Called when the server was removed, so that its name and id may be reused.
    pub fn end_revision(&self) {
        WAS_REMOVED.store(true, Relaxed);
    }
}
