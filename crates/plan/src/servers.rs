//! The servers of a backend: those of the configuration, followed by those added at run time.
//!
//! A server has an index, by which balancers identify it. Configured servers keep their indexes permanently, and reading them takes
//! no lock. The index of a server that was added and removed is reused once nothing refers to the old server. Code that refers to a
//! server across a wait therefore holds the server ([`ServerAt::shared`]) and not only its index. Until its index is reused, a
//! removed server is in maintenance.

use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, RwLock};

use crate::append_list::Grown;
use crate::server::ServerSettings;

/// Written when a server is added, under the lock of [`Servers::vacant`]. A worker reads it once for each server, on first use.
type ServerSlot = RwLock<Option<Arc<ServerSettings>>>;

/// A backend's servers, by index.
#[derive(Debug, Default)]
pub struct Servers {
    fixed: Vec<Arc<ServerSettings>>,
    /// The added servers, which follow them.
    added: Grown<ServerSlot>,
    /// Indexes of removed servers, in the order of removal. Additions and removals are serialized.
    vacant: Mutex<Vec<usize>>,
}

/// A server at an index.
#[derive(Debug)]
pub enum ServerAt<'a> {
    /// A configured server, which is permanent.
    Fixed(&'a Arc<ServerSettings>),
    /// An added server. Its index is not reused as long as this is held.
    Added(Arc<ServerSettings>),
}

impl ServerAt<'_> {
    /// Returns a reference that can be kept.
    pub fn shared(&self) -> Arc<ServerSettings> {
        match self {
            Self::Fixed(server) => Arc::clone(server),
            Self::Added(server) => Arc::clone(server),
        }
    }
}

impl Deref for ServerAt<'_> {
    type Target = ServerSettings;

    fn deref(&self) -> &ServerSettings {
        match self {
            Self::Fixed(server) => server,
            Self::Added(server) => server,
        }
    }
}

impl Servers {
    /// Returns the number of indexes, including those of removed servers.
    #[inline]
    pub fn len(&self) -> usize {
        self.fixed.len() + self.added.len()
    }

    /// Whether there are no servers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the server at `index`.
    pub fn get(&self, index: usize) -> Option<ServerAt<'_>> {
        match self.fixed.get(index) {
            Some(server) => Some(ServerAt::Fixed(server)),
            None => self.get_added(index.checked_sub(self.fixed.len())?),
        }
    }

    fn get_added(&self, at: usize) -> Option<ServerAt<'_>> {
        // Slots are replaced as a whole, so they are valid even if the lock is poisoned.
        let slot = self.added.get(at)?.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        slot.clone().map(ServerAt::Added)
    }

    /// Returns the configured servers, in order.
    pub fn fixed(&self) -> &[Arc<ServerSettings>] {
        &self.fixed
    }

    /// Returns all servers, in order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = ServerAt<'_>> {
        self.fixed.iter().map(ServerAt::Fixed).chain(self.iter_added())
    }

    /// Returns the servers added at run time.
    pub fn iter_added(&self) -> impl Iterator<Item = ServerAt<'_>> {
        (0..self.added.len()).filter_map(|at| self.get_added(at))
    }

    /// Returns the discovered servers that were not removed.
    pub fn discovered(&self) -> impl Iterator<Item = Arc<ServerSettings>> {
        let is_here =
            |server: &ServerAt<'_>| server.discovered.is_some() && !server.state.removed.load(Relaxed);
        self.iter_added().filter(is_here).map(|server| server.shared())
    }

    /// Adds a server and sets its index: that of a removed server without references, or the next one. `None` without room left.
    pub fn add(&self, mut server: ServerSettings) -> Option<Arc<ServerSettings>> {
        let mut vacant = self.vacant.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for number in 0..vacant.len() {
            let at = vacant[number] - self.fixed.len();
            // No new references can appear while the slot is locked for writing.
            let mut slot = self.added.get(at)?.write().unwrap_or_else(|poisoned| poisoned.into_inner());
            if slot.as_ref().is_none_or(|old| Arc::strong_count(old) == 1) {
                server.index = vacant.remove(number);
                return Some(Arc::clone(slot.insert(Arc::new(server))));
            }
        }
        let place = self.added.add(|at| {
            server.index = self.fixed.len() + at;
            RwLock::new(Some(Arc::new(server)))
        })?;
        place.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Marks the server at `index` as removed. Its index is reused once nothing refers to it. Configured servers keep their
    /// indexes.
    pub fn remove(&self, index: usize) {
        if index >= self.fixed.len() && index < self.len() {
            self.vacant.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(index);
        }
    }

    /// Returns the only server, from a plan without other references.
    pub fn into_only(mut self) -> Option<ServerSettings> {
        self.fixed.pop().and_then(Arc::into_inner)
    }
}

impl From<Vec<Arc<ServerSettings>>> for Servers {
    fn from(fixed: Vec<Arc<ServerSettings>>) -> Self {
        Self { fixed, ..Self::default() }
    }
}
