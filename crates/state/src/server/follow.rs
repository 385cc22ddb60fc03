//! Servers that have the state of another (manual, 5.2 `track`): whom each follows, and who follows
//! it.
//!
//! Written when a configuration is resolved and when a server is added at run time; read by whoever
//! changes a server's state.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::Server;
use crate::proxy::Proxy;

/// The links of one server.
#[derive(Debug, Default)]
pub(crate) struct Follow {
    /// Set once.
    tracked: OnceLock<Arc<Server>>,
    followers: Mutex<Vec<(Weak<Proxy>, Weak<Server>)>>,
}

impl Server {
    /// Notes that this server of `proxy` follows `tracked` for good; says whether it followed none
    /// before.
    pub(crate) fn follow(self: &Arc<Self>, proxy: &Arc<Proxy>, tracked: &Arc<Self>) -> bool {
        if self.follow.tracked.set(tracked.clone()).is_err() {
            return false;
        }
        let mut followers = tracked.follow.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.push((Arc::downgrade(proxy), Arc::downgrade(self)));
        true
    }

    /// The server that this one follows.
    pub fn tracked(&self) -> Option<&Arc<Server>> {
        self.follow.tracked.get()
    }

    /// The server at the end of the chain, which is the one that is checked; the server itself
    /// where it follows none.
    pub fn watched(&self) -> &Server {
        let mut last = self;
        while let Some(next) = last.tracked() {
            last = next;
        }
        last
    }

    /// The servers that follow this one, with their backends: the latest declared first, as HAProxy
    /// tells them.
    pub fn followers(&self) -> Vec<(Arc<Proxy>, Arc<Server>)> {
        let followers = self.follow.followers.lock().unwrap_or_else(PoisonError::into_inner);
        let alive =
            followers.iter().rev().filter_map(|(proxy, server)| proxy.upgrade().zip(server.upgrade()));
        alive.filter(|(_, server)| !server.removed.load(std::sync::atomic::Ordering::Relaxed)).collect()
    }
}
