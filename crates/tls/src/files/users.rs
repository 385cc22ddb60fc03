//! The users of files, which are `bind` and `server` lines, and how all of them switch to new contents in one step.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::acceptor::Acceptor;
use crate::connector::{Connecting, Connector, ConnectorState};
use crate::entry::{CertificateEntry, EntryOptions, PreparedEntry};
use crate::settings::Trust;

/// A `bind` line with TLS.
#[derive(Clone, Debug)]
pub struct BindLine {
    /// The name of the frontend.
    pub frontend: Box<str>,
    /// The position of the line: `file:line`.
    pub place: Box<str>,
    /// The certificates of the line.
    pub acceptor: Arc<Acceptor>,
    /// The line's own options, which lines of its crt-lists may override.
    pub options: Arc<EntryOptions>,
}

/// All users of files.
#[derive(Debug, Default)]
pub(super) struct Users {
    pub(super) lines: Vec<BindLine>,
    servers: Vec<Weak<Connector>>,
}

/// Why a commit changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitFailed {
    /// The change was not started and stays pending.
    Refused(String),
    /// A user rejected the change, which was discarded.
    Unusable(String),
}

/// Returns a new version of an entry or a connection, if a change affects it.
pub(super) type Changed<'a, T> = &'a dyn Fn(&T) -> Option<T>;

impl Users {
    /// Returns the positions of the `bind` lines that use one of these certificates as a default, one per line.
    pub(super) fn lines_with_default(&self, served: &[(usize, u32)]) -> String {
        let of_default =
            served.iter().filter(|(number, place)| self.lines[*number].acceptor.falls_back_on(*place));
        of_default.map(|(number, _)| format!("\t- {}\n", self.lines[*number].place)).collect()
    }

    pub(super) fn add_server(&mut self, connector: &Arc<Connector>) {
        self.servers.retain(|server| server.strong_count() > 0);
        self.servers.push(Arc::downgrade(connector));
    }

    pub(super) fn remove_server(&mut self, connector: &Arc<Connector>) {
        self.servers.retain(|server| !std::ptr::eq(server.as_ptr(), Arc::as_ptr(connector)));
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = Arc<Connector>> {
        self.servers.iter().filter_map(Weak::upgrade)
    }

    /// Whether an entry or a server satisfies a condition.
    pub(super) fn any(
        &self,
        entry: impl Fn(&CertificateEntry) -> bool,
        server: impl Fn(&Connecting) -> bool,
    ) -> bool {
        self.lines.iter().any(|line| line.acceptor.entries().iter().any(|(_, one)| entry(one)))
            || self.servers().any(|connector| server(&connector.connecting()))
    }

    /// Prepares new versions of everything for which `entry` or `server` returns new contents.
    pub(super) fn prepare(
        &self,
        entry: Changed<'_, CertificateEntry>,
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

/// Entries of a listener with their indexes.
type Entries = Vec<(u32, PreparedEntry)>;

/// New versions that are prepared but not in place yet.
#[derive(Debug, Default)]
pub(super) struct Swap {
    lines: Vec<(Arc<Acceptor>, Entries)>,
    servers: Vec<(Arc<Connector>, ConnectorState)>,
}

impl Swap {
    /// Returns how many entries and servers change.
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

/// Old objects and their new versions, or `None` if nothing changes.
type RemadeEntries<T> = RefCell<Vec<(Arc<T>, Option<Arc<T>>)>>;

/// New versions of the lines' trust anchors. Each is created only once, so that sharing is preserved.
pub(super) struct Remade<F> {
    /// Returns the new version, or `None` if nothing changes.
    again: F,
    trusts: RemadeEntries<Trust>,
    options: RemadeEntries<EntryOptions>,
}

impl<F: Fn(&Arc<Trust>) -> Option<Arc<Trust>>> Remade<F> {
    pub(super) fn new(again: F) -> Self {
        Self { again, trusts: RefCell::default(), options: RefCell::default() }
    }

    pub(super) fn trust(&self, old: &Arc<Trust>) -> Option<Arc<Trust>> {
        once(&self.trusts, old, || (self.again)(old))
    }

    pub(super) fn options(&self, old: &Arc<EntryOptions>) -> Option<Arc<EntryOptions>> {
        once(&self.options, old, || {
            let mut options = (**old).clone();
            options.verify.trust = self.trust(&old.verify.trust)?;
            Some(Arc::new(options))
        })
    }
}

/// Returns the new version of `old` that was created before, or the result of `make`.
fn once<T>(made: &RemadeEntries<T>, old: &Arc<T>, make: impl FnOnce() -> Option<Arc<T>>) -> Option<Arc<T>> {
    let known = made.borrow().iter().find(|(one, _)| Arc::ptr_eq(one, old)).map(|(_, new)| new.clone());
    known.unwrap_or_else(|| {
        let new = make();
        made.borrow_mut().push((old.clone(), new.clone()));
        new
    })
}
