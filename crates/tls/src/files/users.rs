//! Who uses files: `bind` and `server` lines, and how all of them get other contents at once.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::acceptor::Acceptor;
use crate::connector::{Connecting, Connector, ConnectorState};
use crate::entry::{CertificateEntry, EntryOptions, PreparedEntry};
use crate::settings::Trust;

/// A `bind` line with TLS.
#[derive(Clone, Debug)]
pub struct BindLine {
    /// The name of its frontend.
    pub frontend: Box<str>,
    /// Where it stands: `file:line`.
    pub place: Box<str>,
    /// Its certificates.
    pub acceptor: Arc<Acceptor>,
    /// What it says itself, which lines of its crt-lists may override.
    pub options: Arc<EntryOptions>,
}

/// Everybody.
#[derive(Debug, Default)]
pub(super) struct Users {
    pub(super) lines: Vec<BindLine>,
    servers: Vec<Weak<Connector>>,
}

/// Why a commit changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitFailed {
    /// It did not begin; what was to be committed waits on.
    Refused(String),
    /// Somebody could not use it; it was thrown away.
    Unusable(String),
}

/// Gives the entry or the connection anew that uses what changes.
pub(super) type Changed<'a, T> = &'a dyn Fn(&T) -> Option<T>;

impl Users {
    /// The places of those `bind` lines that fall back on one of these certificates, a line each.
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

    /// Whether an entry or a server is so.
    pub(super) fn any(
        &self,
        entry: impl Fn(&CertificateEntry) -> bool,
        server: impl Fn(&Connecting) -> bool,
    ) -> bool {
        self.lines.iter().any(|line| line.acceptor.entries().iter().any(|(_, one)| entry(one)))
            || self.servers().any(|connector| server(&connector.connecting()))
    }

    /// Makes everything anew that `entry` and `server` give other contents.
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

/// Entries of a listener by their places.
type Entries = Vec<(u32, PreparedEntry)>;

/// What was made anew and is to be put in place.
#[derive(Debug, Default)]
pub(super) struct Swap {
    lines: Vec<(Arc<Acceptor>, Entries)>,
    servers: Vec<(Arc<Connector>, ConnectorState)>,
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

/// What there was, and what was made of each; `None` where nothing changes.
type RemadeEntries<T> = RefCell<Vec<(Arc<T>, Option<Arc<T>>)>>;

/// Whom lines trust after a change, each made once: what was shared stays shared.
pub(super) struct Remade<F> {
    /// Whom to trust instead; `None` where nothing changes.
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

/// What was made of `old` before, or what `make` makes of it.
fn once<T>(made: &RemadeEntries<T>, old: &Arc<T>, make: impl FnOnce() -> Option<Arc<T>>) -> Option<Arc<T>> {
    let known = made.borrow().iter().find(|(one, _)| Arc::ptr_eq(one, old)).map(|(_, new)| new.clone());
    known.unwrap_or_else(|| {
        let new = make();
        made.borrow_mut().push((old.clone(), new.clone()));
        new
    })
}
