//! The servers of a backend: those of the configuration, and those added at run time behind them. A server that was removed stays where it
//! is, in maintenance for good.

use std::ops::Index;
use std::sync::Arc;

use crate::plan::grown::Grown;
use crate::plan::server::ServerSettings;

/// A backend's servers, by place.
#[derive(Debug, Default)]
pub struct Servers(Grown<Arc<ServerSettings>>);

impl Servers {
    /// How many places there are, removed servers included.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The server at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&Arc<ServerSettings>> {
        self.0.get(index)
    }

    /// All, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ServerSettings>> {
        self.0.iter()
    }

    /// Those added at run time.
    pub fn iter_added(&self) -> impl Iterator<Item = &Arc<ServerSettings>> {
        self.0.iter_added()
    }

    /// Adds a server behind the others; it is told its place. `None` when there is no place left.
    pub fn add(&self, mut server: ServerSettings) -> Option<&Arc<ServerSettings>> {
        self.0.add(|index| {
            server.index = index;
            Arc::new(server)
        })
    }

    /// Takes the only server out, of a plan that nobody else knows.
    pub(crate) fn into_only(self) -> Option<ServerSettings> {
        self.0.into_fixed().pop().and_then(Arc::into_inner)
    }
}

impl Index<usize> for Servers {
    type Output = Arc<ServerSettings>;

    #[inline]
    fn index(&self, index: usize) -> &Self::Output {
        &self.0[index]
    }
}

impl From<Vec<Arc<ServerSettings>>> for Servers {
    fn from(fixed: Vec<Arc<ServerSettings>>) -> Self {
        Self(fixed.into())
    }
}
