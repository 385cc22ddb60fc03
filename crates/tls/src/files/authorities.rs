//! Changes CA files and revocation lists at run time: `new`, `set`, `add`, `commit`, `abort`, `del` and `show ssl ca-file` and
//! `crl-file`. Errors have HAProxy's wording.

use std::sync::Arc;

use aws_lc_rs::rand;

use super::users::{CommitFailed, Remade};
use super::{Files, FilesInner};
use crate::connector::Connecting;
use crate::entry::CertificateEntry;
use crate::settings::{Trust, VerifyMode};
use crate::store::PemParts;

/// The kind of a file. Both kinds share a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityKind {
    /// `ca-file`, `ca-verify-file`.
    Authorities,
    /// `crl-file`.
    Revocations,
}

impl AuthorityKind {
    /// Returns `CA` or `CRL`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Authorities => "CA",
            Self::Revocations => "CRL",
        }
    }
}

/// The contents of a file, as DER.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    certificates: Vec<Arc<[u8]>>,
    crls: Vec<Arc<[u8]>>,
}

impl Store {
    fn of(parts: PemParts) -> Self {
        Self { certificates: parts.certificates, crls: parts.crls }
    }

    fn of_kind(&self, kind: AuthorityKind) -> &[Arc<[u8]>] {
        match kind {
            AuthorityKind::Authorities => &self.certificates,
            AuthorityKind::Revocations => &self.crls,
        }
    }
}

/// A known file.
#[derive(Debug)]
pub(super) struct KnownFile {
    kind: AuthorityKind,
    store: Store,
}

/// An uncommitted change.
#[derive(Debug)]
pub(super) struct PendingChange {
    name: Box<str>,
    store: Store,
}

/// A CA file or revocation list to be shown.
#[derive(Clone, Debug)]
pub struct ShownStore {
    /// The contents of the file, as DER.
    pub ders: Vec<Arc<[u8]>>,
    /// Whether a listener or a server uses the file.
    pub is_used: bool,
}

fn about_another(about: &str, verb: &str, name: &str) -> String {
    format!("The ongoing transaction is about '{about}' but you are trying to {verb} '{name}'\n")
}

fn names(trust: &Trust, name: &str) -> bool {
    trust.files.iter().flatten().any(|file| **file == *name)
}

impl FilesInner {
    fn waiting(&mut self, kind: AuthorityKind) -> &mut Option<PendingChange> {
        match kind {
            AuthorityKind::Authorities => &mut self.pending_authorities,
            AuthorityKind::Revocations => &mut self.pending_revocations,
        }
    }

    fn trusts_by(&self, name: &str) -> bool {
        self.users.any(
            |entry| {
                let verify = &entry.options.verify;
                verify.mode != VerifyMode::None && names(&verify.trust, name)
            },
            |server| server.trust.as_ref().is_some_and(|trust| names(trust, name)),
        )
    }

    /// Returns the trust anchors in these files, or the index of a file that is not loaded.
    pub(super) fn trust(&self, files: &[Option<Box<str>>; 3]) -> Result<Trust, usize> {
        let mut trust = Trust { files: files.clone(), ..Trust::default() };
        for (place, name) in files.iter().enumerate() {
            let Some(name) = name else { continue };
            let store = &self.authorities.get(name).ok_or(place)?.store;
            match place {
                0 => trust.authorities.clone_from(&store.certificates),
                1 => trust.unnamed.clone_from(&store.certificates),
                _ => trust.crls.clone_from(&store.crls),
            }
        }
        Ok(trust)
    }

    /// Updates all users of that file to the new contents. Returns their number.
    fn renew_trust(&mut self, name: &str) -> Result<usize, String> {
        let mut generation = [0; 16];
        rand::fill(&mut generation).map_err(|_| "the system provided no random bytes\n")?;
        let generation = Some(generation);
        let trust_again = |old: &Arc<Trust>| {
            let made = self.trust(&old.files).unwrap_or_else(|_| (**old).clone());
            Arc::new(Trust { generation, ..made })
        };
        let remade = Remade::new(|old: &Arc<Trust>| names(old, name).then(|| trust_again(old)));
        let entry = |entry: &CertificateEntry| {
            let options = remade.options(&entry.options)?;
            (options.verify.mode != VerifyMode::None).then(|| CertificateEntry { options, ..entry.clone() })
        };
        let server = |server: &Connecting| {
            let trust = remade.trust(server.trust.as_ref()?)?;
            Some(Connecting { trust: Some(trust), ..server.clone() })
        };
        let swap = self.users.prepare(&entry, &server).map_err(|error| format!("{error}\n"))?;
        let count = swap.count();
        let lines = self.users.lines.iter().map(|line| remade.options(&line.options)).collect::<Vec<_>>();
        drop(remade);
        swap.put();
        for (line, options) in self.users.lines.iter_mut().zip(lines) {
            line.options = options.unwrap_or_else(|| line.options.clone());
        }
        Ok(count)
    }
}

impl Files {
    /// Whether a CA file or revocation list is known.
    pub fn knows_authority(&self, name: &str) -> bool {
        self.inner().authorities.contains_key(name)
    }

    /// Stores the parsed contents of a CA file or revocation list, unless the file is known.
    pub fn keep_authority(&self, name: &str, kind: AuthorityKind, parts: PemParts) {
        let known = || KnownFile { kind, store: Store::of(parts) };
        self.inner().authorities.entry(name.into()).or_insert_with(known);
    }

    /// Returns the trust anchors in `ca-file`, `ca-verify-file` and `crl-file`.
    ///
    /// # Errors
    /// The index of a file that is not loaded.
    pub fn trust(&self, files: &[Option<Box<str>>; 3]) -> Result<Trust, usize> {
        self.inner().trust(files)
    }

    /// Returns the files of that kind and the number of items in each, in order.
    pub fn authorities(&self, kind: AuthorityKind) -> Vec<(Box<str>, usize)> {
        let inner = self.inner();
        let own = inner.authorities.iter().filter(|(_, known)| known.kind == kind);
        own.map(|(name, known)| (name.clone(), known.store.of_kind(kind).len())).collect()
    }

    /// Returns the file with an uncommitted change, and the number of items after the change.
    pub fn waiting_authority(&self, kind: AuthorityKind) -> Option<(Box<str>, usize)> {
        let mut inner = self.inner();
        inner.waiting(kind).as_ref().map(|own| (own.name.clone(), own.store.of_kind(kind).len()))
    }

    /// Returns a file to show, or with `waits` its uncommitted replacement.
    pub fn show_authority(&self, kind: AuthorityKind, name: &str, waits: bool) -> Option<ShownStore> {
        let mut inner = self.inner();
        if waits {
            let own = inner.waiting(kind).as_ref().filter(|own| *own.name == *name)?;
            return Some(ShownStore { ders: own.store.of_kind(kind).to_vec(), is_used: false });
        }
        let known = inner.authorities.get(name).filter(|known| known.kind == kind)?;
        Some(ShownStore { ders: known.store.of_kind(kind).to_vec(), is_used: inner.trusts_by(name) })
    }

    /// `new ssl ca-file`, `new ssl crl-file`: creates an empty file. `false` if the name exists.
    pub fn create_authority(&self, kind: AuthorityKind, name: &str) -> bool {
        let mut inner = self.inner();
        if inner.authorities.contains_key(name) {
            return false;
        }
        inner.authorities.insert(name.into(), KnownFile { kind, store: Store::default() });
        true
    }

    /// `set ssl ca-file`, `set ssl crl-file`, and with `adds` `add ssl ca-file`: starts a change, or modifies the pending one.
    /// Returns whether a change was started.
    ///
    /// # Errors
    /// The reason for rejecting the change, as lines.
    pub fn set_authority(
        &self,
        kind: AuthorityKind,
        name: &str,
        payload: &str,
        adds: bool,
    ) -> Result<bool, String> {
        let mut inner = self.inner();
        let before = match inner.waiting(kind) {
            Some(own) if *own.name != *name => return Err(about_another(&own.name, "set", name)),
            Some(own) => Some(own.store.clone()),
            None => None,
        };
        let begun = before.is_none();
        let Some(known) = inner.authorities.get(name) else {
            let kind = kind.name();
            return Err(format!(
                "Can't replace a {kind} file which is not referenced by the configuration!\n"
            ));
        };
        let before = before.unwrap_or_else(|| known.store.clone());
        let parts = PemParts::read(name, payload.as_bytes()).ok();
        let parts = parts.filter(|parts| !parts.certificates.is_empty() || !parts.crls.is_empty());
        let parts = parts.ok_or("Invalid payload\n")?;
        let mut store = if adds { before } else { Store::default() };
        store.certificates.extend(parts.certificates);
        store.crls.extend(parts.crls);
        *inner.waiting(kind) = Some(PendingChange { name: name.into(), store });
        Ok(begun)
    }

    /// `commit ssl ca-file`, `commit ssl crl-file`: returns how many entries and servers were updated.
    ///
    /// # Errors
    /// The reason why nothing changed, as lines.
    pub fn commit_authority(&self, kind: AuthorityKind, name: &str) -> Result<usize, CommitFailed> {
        let mut inner = self.inner();
        let Some(own) = inner.waiting(kind).take() else {
            return Err(CommitFailed::Refused("No ongoing transaction! !\n".to_owned()));
        };
        if *own.name != *name {
            let error = about_another(&own.name, "set", name);
            *inner.waiting(kind) = Some(own);
            return Err(CommitFailed::Refused(error));
        }
        let before = inner.authorities.insert(own.name.clone(), KnownFile { kind, store: own.store });
        inner.renew_trust(name).map_err(|error| {
            match before {
                Some(before) => inner.authorities.insert(own.name, before),
                None => inner.authorities.remove(name),
            };
            CommitFailed::Unusable(error)
        })
    }

    /// `abort ssl ca-file`, `abort ssl crl-file`.
    ///
    /// # Errors
    /// The reason for rejecting the command, as a line.
    pub fn abort_authority(&self, kind: AuthorityKind, name: &str) -> Result<(), String> {
        let mut inner = self.inner();
        match inner.waiting(kind) {
            None => Err("No ongoing transaction!\n".to_owned()),
            Some(own) if *own.name != *name => Err(about_another(&own.name, "abort a transaction for", name)),
            waiting => {
                *waiting = None;
                Ok(())
            }
        }
    }

    /// `del ssl ca-file`, `del ssl crl-file`: deletes an unused file.
    ///
    /// # Errors
    /// The reason for rejecting the command.
    pub fn delete_authority(&self, kind: AuthorityKind, name: &str) -> Result<(), String> {
        let mut inner = self.inner();
        let title = kind.name();
        if inner.waiting(kind).as_ref().is_some_and(|own| *own.name == *name) {
            return Err(format!("ongoing transaction for the {title} file '{name}'"));
        }
        match inner.authorities.get(name).map(|known| known.kind) {
            None => return Err(format!("{title} file '{name}' doesn't exist!\n")),
            Some(AuthorityKind::Authorities) if kind == AuthorityKind::Revocations => {
                return Err("'del ssl crl-file' does not work on CA files!\n".to_owned());
            }
            Some(AuthorityKind::Revocations) if kind == AuthorityKind::Authorities => {
                return Err("'del ssl ca-file' does not work on CRL files!\n".to_owned());
            }
            Some(_) => {}
        }
        // A line keeps its options for entries that are added to its crt-lists later.
        let named = inner.users.lines.iter().any(|line| names(&line.options.verify.trust, name));
        if named || inner.trusts_by(name) {
            return Err(format!("{title} file '{name}' in use, can't be deleted!\n"));
        }
        inner.authorities.remove(name);
        Ok(())
    }
}
