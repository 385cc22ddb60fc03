//! Who uses files: `bind` and `server` lines, and how all of them get other contents at once.

use std::sync::{Arc, Weak};

use crate::acceptor::{Acceptor, Entry, Options, Prepared};
use crate::connector::{Connecting, Connector, Current};

/// A `bind` line with TLS.
#[derive(Clone, Debug)]
pub struct Line {
    /// The name of its frontend.
    pub frontend: Box<str>,
    /// Where it stands: `file:line`.
    pub place: Box<str>,
    /// Its certificates.
    pub acceptor: Arc<Acceptor>,
    /// What it says itself, which lines of its crt-lists may override.
    pub options: Arc<Options>,
}

/// Everybody.
#[derive(Debug, Default)]
pub(super) struct Users {
    pub(super) lines: Vec<Line>,
    servers: Vec<Weak<Connector>>,
}

/// Why a commit changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It did not begin; what was to be committed waits on.
    Refused(String),
    /// Somebody could not use it; it was thrown away.
    Unusable(String),
}

/// Gives the entry or the connection anew that uses what changes.
pub(super) type Changed<'a, T> = &'a dyn Fn(&T) -> Option<T>;

impl Users {
    pub(super) fn add_server(&mut self, connector: &Arc<Connector>) {
        self.servers.retain(|server| server.strong_count() > 0);
        self.servers.push(Arc::downgrade(connector));
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = Arc<Connector>> {
        self.servers.iter().filter_map(Weak::upgrade)
    }

    /// Whether an entry or a server is so.
    pub(super) fn any(&self, entry: impl Fn(&Entry) -> bool, server: impl Fn(&Connecting) -> bool) -> bool {
        self.lines.iter().any(|line| line.acceptor.entries().iter().any(|(_, one)| entry(one)))
            || self.servers().any(|connector| server(&connector.connecting()))
    }

    /// Makes everything anew that `entry` and `server` give other contents.
    pub(super) fn prepare(
        &self,
        entry: Changed<'_, Entry>,
        server: Changed<'_, Connecting>,
    ) -> Result<Swap, String> {
        let mut swap = Swap::default();
        for line in &self.lines {
            let changed = line.acceptor.prepare(entry)?;
            if !changed.is_empty() {
                swap.lines.push((line.acceptor.clone(), changed));
            }
        }
        for connector in self.servers() {
            if let Some(connecting) = server(&connector.connecting()) {
                let current = connector.prepare(connecting)?;
                swap.servers.push((connector, current));
            }
        }
        Ok(swap)
    }
}

/// What was made anew and is to be put in place.
#[derive(Debug, Default)]
pub(super) struct Swap {
    lines: Vec<(Arc<Acceptor>, Vec<(u32, Prepared)>)>,
    servers: Vec<(Arc<Connector>, Current)>,
}

impl Swap {
    /// How many entries and servers change.
    pub(super) fn count(&self) -> usize {
        self.lines.iter().map(|(_, entries)| entries.len()).sum::<usize>() + self.servers.len()
    }

    pub(super) fn put(self) {
        for (acceptor, entries) in self.lines {
            acceptor.put(entries);
        }
        for (connector, current) in self.servers {
            connector.put(current);
        }
    }
}
