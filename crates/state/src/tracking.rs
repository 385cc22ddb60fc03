//! Servers that follow the state of another server (manual, 5.2 `track`).
//!
//! A server refers to the server that it tracks, and the backend of the tracked server has the list of trackers. Written when a
//! configuration is resolved and when a server is added at run time; read when the state of a server changes.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use crate::proxy::{Proxy, Tracker};
use crate::server::Server;

impl Proxy {
    /// Records that `server` of `backend` tracks `tracked` of this backend. Returns `false` if it already tracks a server.
    pub(crate) fn add_tracker(
        &self,
        tracked: &Arc<Server>,
        backend: &Arc<Self>,
        server: &Arc<Server>,
    ) -> bool {
        if server.tracked.load().is_some() {
            return false;
        }
        server.tracked.store(Some(tracked.clone()));
        let tracker = Tracker {
            tracked: Arc::downgrade(tracked),
            backend: Arc::downgrade(backend),
            server: Arc::downgrade(server),
        };
        let mut trackers = self.trackers.lock().unwrap_or_else(PoisonError::into_inner);
        trackers.retain(|tracker| tracker.server.strong_count() > 0);
        trackers.push(tracker);
        true
    }

    /// Returns the servers that track `tracked`, with their backends. As in HAProxy's messages, the server that was declared last
    /// is first.
    pub fn trackers(&self, tracked: &Server) -> Vec<(Arc<Self>, Arc<Server>)> {
        let trackers = self.trackers.lock().unwrap_or_else(PoisonError::into_inner);
        trackers
            .iter()
            .rev()
            .filter(|tracker| std::ptr::eq(tracker.tracked.as_ptr(), tracked))
            .filter_map(|tracker| tracker.backend.upgrade().zip(tracker.server.upgrade()))
            .filter(|(_, server)| !server.removed.load(Relaxed))
            .collect()
    }

    /// Whether the configuration refers to `server`, or another server tracks it.
    pub fn refers_to(&self, server: &Server) -> bool {
        server.referenced.load(Relaxed) || !self.trackers(server).is_empty()
    }
}

impl Server {
    /// Returns the server that this one tracks.
    pub fn tracked(&self) -> Option<Arc<Self>> {
        self.tracked.load_full()
    }

    /// Returns the server at the end of the chain, which is the one that is checked, or `None` if this server does not track
    /// another one.
    pub fn watched(&self) -> Option<Arc<Self>> {
        let mut last = self.tracked()?;
        while let Some(next) = last.tracked() {
            last = next;
        }
        Some(last)
    }
}
