//! Servers that have the state of another (manual, 5.2 `track`): whom each follows, and who follows
//! it.
//!
//! Written when a configuration is resolved and when a server is added at run time; read by whoever
//! changes a server's state.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwapOption;

use super::Server;
use crate::proxy::Proxy;

/// The links of one server.
#[derive(Debug, Default)]
pub(crate) struct Follow {
    /// Set by a configuration, or when it is added.
    tracked: ArcSwapOption<Server>,
    followers: Mutex<Vec<(Weak<Proxy>, Weak<Server>)>>,
}

impl Server {
    /// Notes that this server of `proxy` follows `tracked`; says whether it followed none before.
    pub(crate) fn follow(self: &Arc<Self>, proxy: &Arc<Proxy>, tracked: &Arc<Self>) -> bool {
        if self.follow.tracked.load().is_some() {
            return false;
        }
        self.follow.tracked.store(Some(tracked.clone()));
        let mut followers = tracked.follow.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.push((Arc::downgrade(proxy), Arc::downgrade(self)));
        true
    }

    /// The server that this one follows.
    pub fn tracked(&self) -> Option<Arc<Server>> {
        self.follow.tracked.load_full()
    }

    /// Follows nobody any more, and nobody follows it: a plan that is made says anew who does.
    pub(crate) fn part(&self) {
        self.follow.tracked.store(None);
        self.follow.followers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The server at the end of the chain, which is the one that is checked; `None` where this one
    /// follows none.
    pub fn watched(&self) -> Option<Arc<Server>> {
        let mut last = self.tracked()?;
        while let Some(next) = last.tracked() {
            last = next;
        }
        Some(last)
    }

    /// Whether the configuration names it, or another server tracks it.
    pub fn is_referenced(&self) -> bool {
        self.referenced.load(std::sync::atomic::Ordering::Relaxed) || !self.followers().is_empty()
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
