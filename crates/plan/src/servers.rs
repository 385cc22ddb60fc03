//! The servers of a backend: those of the configuration, and those added at run time behind them.
//!
//! A server has a place, by which balancers know it. Those of the configuration keep theirs for
//! good, and reading them takes no lock. The place of one that was added and removed goes to
//! another as soon as nobody holds the old one any more. So whoever means a server across a wait
//! holds the server ([`ServerAt::shared`]) and not its place alone. A server that was removed stays
//! in its place until then, in maintenance.

use std::ops::Deref;
use std::sync::{Arc, Mutex, RwLock};

use crate::append_list::Grown;
use crate::server::ServerSettings;

/// Written by whoever adds, under the lock of [`Servers::vacant`]; workers read it once for each
/// server that they come to know.
type ServerSlot = RwLock<Option<Arc<ServerSettings>>>;

/// A backend's servers, by place.
#[derive(Debug, Default)]
pub struct Servers {
    fixed: Vec<Arc<ServerSettings>>,
    /// The places behind them.
    added: Grown<ServerSlot>,
    /// Places of servers that were removed, the longest removed first. Adding and removing are for
    /// one at a time.
    vacant: Mutex<Vec<usize>>,
}

/// A server in its place.
#[derive(Debug)]
pub enum ServerAt<'a> {
    /// One of the configuration, which stays.
    Fixed(&'a Arc<ServerSettings>),
    /// One that was added: its place is not given to another while this is held.
    Added(Arc<ServerSettings>),
}

impl ServerAt<'_> {
    /// A count of it, to be kept.
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
    /// How many places there are, those of removed servers included.
    #[inline]
    pub fn len(&self) -> usize {
        self.fixed.len() + self.added.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The server at `index`.
    pub fn get(&self, index: usize) -> Option<ServerAt<'_>> {
        match self.fixed.get(index) {
            Some(server) => Some(ServerAt::Fixed(server)),
            None => self.get_added(index.checked_sub(self.fixed.len())?),
        }
    }

    fn get_added(&self, at: usize) -> Option<ServerAt<'_>> {
        // Whoever panicked here left a whole server behind.
        let slot = self.added.get(at)?.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        slot.clone().map(ServerAt::Added)
    }

    /// Those of the configuration, in its order.
    pub fn fixed(&self) -> &[Arc<ServerSettings>] {
        &self.fixed
    }

    /// All, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = ServerAt<'_>> {
        self.fixed.iter().map(ServerAt::Fixed).chain(self.iter_added())
    }

    /// Those added at run time.
    pub fn iter_added(&self) -> impl Iterator<Item = ServerAt<'_>> {
        (0..self.added.len()).filter_map(|at| self.get_added(at))
    }

    /// Adds a server, in the place of one that was removed and that nobody holds, or behind the
    /// others; it is told its place. `None` when there is no place left.
    pub fn add(&self, mut server: ServerSettings) -> Option<Arc<ServerSettings>> {
        let mut vacant = self.vacant.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for number in 0..vacant.len() {
            let at = vacant[number] - self.fixed.len();
            // Nobody comes to hold it while the slot is held for writing.
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

    /// Says that nothing finds the server at `index` any more: its place is another's once whoever
    /// still holds it is done. Those of the configuration keep theirs.
    pub fn remove(&self, index: usize) {
        if index >= self.fixed.len() && index < self.len() {
            self.vacant.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(index);
        }
    }

    /// Takes the only server out, of a plan that nobody else knows.
    pub fn into_only(mut self) -> Option<ServerSettings> {
        self.fixed.pop().and_then(Arc::into_inner)
    }
}

impl From<Vec<Arc<ServerSettings>>> for Servers {
    fn from(fixed: Vec<Arc<ServerSettings>>) -> Self {
        Self { fixed, ..Self::default() }
    }
}
