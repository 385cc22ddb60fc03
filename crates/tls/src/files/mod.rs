//! The files of TLS that a process uses, by name, and who uses each: what the runtime socket shows
//! and changes (management manual, 9.3: `set ssl cert` and the like).
//!
//! Filled while a configuration is resolved. A change is prepared aside and takes effect at its
//! commit, everywhere at once: new connections see it, those that are open go on as they were.
//! Nothing is read from disk here, and nobody is spoken to. Called by `config` and `control`.

mod authorities;
mod certificates;
mod contents;
mod install;
mod lists;
mod names;
mod options;
mod responses;
mod updates;
mod users;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use authorities::{AuthorityKind, ShownStore};
pub use certificates::CertificateSummary;
pub use contents::Contents;
pub use lists::{CertificateList, LineCertificates, ListEntry, NotAdded};
pub use names::{LineNames, ServedName};
pub use options::{
    EARLY_DATA, FILES, FileOf, ListOption, TABLE as LIST_OPTIONS, TrustOf, kernel_mode, list_option,
    override_options, protocols, update_mode,
};
pub use responses::Answered;
pub use updates::{Due, Update, UpdateOutcome, UpdateSettings, Wake};
pub use users::{BindLine, CommitFailed};

use crate::challenges::Challenges;
use crate::connector::Connector;
use crate::load::IssuerChain;
use crate::store::Certificate;
use crate::tickets::TicketKeys;
use authorities::{KnownFile, PendingChange};
use certificates::{CertificateSlot, PendingCertificate};
use lists::ServedList;
use updates::Updates;
use users::Users;

/// All files, and who uses them. One change at a time.
#[derive(Debug, Default)]
pub struct Files {
    inner: Mutex<FilesInner>,
    challenges: Arc<Challenges>,
}

#[derive(Debug, Default)]
struct FilesInner {
    users: Users,
    /// Answers of OCSP responders that are asked for.
    updates: Updates,
    /// Where relative names of certificates point (`crt-base`).
    base: Option<Box<str>>,
    /// Whether the names of files beside a certificate have no `.crt` before their own ending.
    replaces_endings: bool,
    /// Chains for certificates that come without (`issuers-chain-path`).
    chains: Arc<[IssuerChain]>,
    certificates: BTreeMap<Box<str>, CertificateSlot>,
    /// The change of a certificate that was not committed yet.
    pending: Option<PendingCertificate>,
    /// Files of authorities and of revocation lists.
    authorities: BTreeMap<Box<str>, KnownFile>,
    /// crt-lists and directories.
    lists: BTreeMap<Box<str>, ServedList>,
    /// Keys of tickets by file, in order.
    ticket_keys: Vec<(Box<str>, Arc<TicketKeys>)>,
    pending_authorities: Option<PendingChange>,
    pending_revocations: Option<PendingChange>,
}

impl Files {
    // Whoever panicked while holding the lock left whole entries behind.
    fn inner(&self) -> MutexGuard<'_, FilesInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificates that answer challenges of ACME.
    pub fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Says that the endings of files beside a certificate replace its `.crt`
    /// (`ssl-load-extra-del-ext`).
    pub fn replace_endings(&self) {
        self.inner().replaces_endings = true;
    }

    /// Keeps the chains for certificates that come without (`issuers-chain-path`).
    pub fn keep_chains(&self, chains: Vec<IssuerChain>) {
        self.inner().chains = chains.into();
    }

    /// The chains for certificates that come without.
    pub fn chains(&self) -> Arc<[IssuerChain]> {
        self.inner().chains.clone()
    }

    /// Says where relative names of certificates point (`crt-base`), for lines added at run time.
    pub fn set_base(&self, base: &str) {
        self.inner().base = Some(base.trim_end_matches('/').into());
    }

    /// Keeps a certificate that was loaded. One that is known by that name already is given back
    /// instead.
    pub fn keep(&self, certificate: Arc<Certificate>) -> Arc<Certificate> {
        let mut inner = self.inner();
        let name = certificate.name.clone();
        let stored = inner.certificates.entry(name).or_insert_with(|| CertificateSlot::of(&certificate));
        stored.certificate.clone().unwrap_or(certificate)
    }

    /// Keeps a `server` line as long as it lives.
    pub fn add_server(&self, connector: &Arc<Connector>) {
        self.inner().users.add_server(connector);
    }

    /// Forgets a `server` line that was removed, whoever still holds it.
    pub fn remove_server(&self, connector: &Arc<Connector>) {
        self.inner().users.remove_server(connector);
    }
}
