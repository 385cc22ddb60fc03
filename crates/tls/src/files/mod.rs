//! The TLS files of a process, by name, and the users of each, which commands of the runtime socket show and change (management
//! manual, 9.3: `set ssl cert` and similar commands).
//!
//! The files are added while a configuration is resolved. A change is prepared separately and takes effect at its commit,
//! everywhere at once. It applies to new connections; open ones continue unchanged. This module does not read from disk or the
//! network. Called by `config` and `control`.

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

/// All files and their users. Changes are serialized.
#[derive(Debug, Default)]
pub struct Files {
    inner: Mutex<FilesInner>,
    challenges: Arc<Challenges>,
}

#[derive(Debug, Default)]
struct FilesInner {
    users: Users,
    /// OCSP response updates.
    updates: Updates,
    /// The base for relative certificate names (`crt-base`).
    base: Option<Box<str>>,
    /// Whether the extension of a file that accompanies a certificate replaces `.crt`.
    replaces_endings: bool,
    /// Chains for certificates without one (`issuers-chain-path`).
    chains: Arc<[IssuerChain]>,
    certificates: BTreeMap<Box<str>, CertificateSlot>,
    /// The uncommitted change of a certificate.
    pending: Option<PendingCertificate>,
    /// CA files and revocation lists.
    authorities: BTreeMap<Box<str>, KnownFile>,
    /// crt-lists and directories.
    lists: BTreeMap<Box<str>, ServedList>,
    /// Ticket keys by file, in order.
    ticket_keys: Vec<(Box<str>, Arc<TicketKeys>)>,
    pending_authorities: Option<PendingChange>,
    pending_revocations: Option<PendingChange>,
}

impl Files {
    // Entries are replaced as a whole, so they are valid even if the lock is poisoned.
    fn inner(&self) -> MutexGuard<'_, FilesInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the certificates for ACME challenges.
    pub fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Makes the extension of files that accompany a certificate replace `.crt` (`ssl-load-extra-del-ext`).
    pub fn replace_endings(&self) {
        self.inner().replaces_endings = true;
    }

    /// Stores the chains for certificates without one (`issuers-chain-path`).
    pub fn keep_chains(&self, chains: Vec<IssuerChain>) {
        self.inner().chains = chains.into();
    }

    /// Returns the chains for certificates without one.
    pub fn chains(&self) -> Arc<[IssuerChain]> {
        self.inner().chains.clone()
    }

    /// Sets the base for relative certificate names (`crt-base`), for lines added at run time.
    pub fn set_base(&self, base: &str) {
        self.inner().base = Some(base.trim_end_matches('/').into());
    }

    /// Stores a loaded certificate. If the name is already known, the existing certificate is returned instead.
    pub fn keep(&self, certificate: Arc<Certificate>) -> Arc<Certificate> {
        let mut inner = self.inner();
        let name = certificate.name.clone();
        let stored = inner.certificates.entry(name).or_insert_with(|| CertificateSlot::of(&certificate));
        stored.certificate.clone().unwrap_or(certificate)
    }

    /// Registers a `server` line for its lifetime.
    pub fn add_server(&self, connector: &Arc<Connector>) {
        self.inner().users.add_server(connector);
    }

    /// Removes the connector of a `server` line, even if it is still referenced elsewhere.
    pub fn remove_server(&self, connector: &Arc<Connector>) {
        self.inner().users.remove_server(connector);
    }
}
