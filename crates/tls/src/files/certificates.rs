//! Changes certificates at run time: `new`, `set`, `commit`, `abort`, `del` and `show ssl cert`. Errors have HAProxy's wording.

use std::borrow::Cow;
use std::sync::Arc;

use super::contents::{CertificatePart, Contents};
use super::users::CommitFailed;
use super::{Files, FilesInner};
use crate::connector::Connecting;
use crate::entry::CertificateEntry;
use crate::load::complete_chain;
use crate::store::{Certificate, Sources};

/// A slot for a certificate.
#[derive(Debug, Default)]
pub(super) struct CertificateSlot {
    pub(super) contents: Contents,
    /// The certificate built from the contents, or `None` while parts are missing.
    pub(super) certificate: Option<Arc<Certificate>>,
    pub(super) sources: Sources,
}

impl CertificateSlot {
    pub(super) fn of(certificate: &Arc<Certificate>) -> Self {
        Self {
            contents: Contents::of(certificate),
            certificate: Some(certificate.clone()),
            sources: certificate.sources.clone(),
        }
    }
}

/// An uncommitted change.
#[derive(Debug)]
pub(super) struct PendingCertificate {
    name: Box<str>,
    contents: Contents,
}

/// The information shown about a certificate.
#[derive(Clone, Debug)]
pub struct CertificateSummary {
    /// The name of the certificate.
    pub name: Box<str>,
    /// The parts of the certificate.
    pub contents: Contents,
    /// The files from which the parts were read.
    pub sources: Sources,
    /// Whether a listener or a server uses the certificate.
    pub is_used: bool,
    /// Whether OCSP responses of the certificate are updated.
    pub is_updated: bool,
    /// Whether the change is uncommitted.
    pub waits: bool,
}

fn about_another(about: &str, verb: &str, name: &str) -> String {
    format!("The ongoing transaction is about '{about}' but you are trying to {verb} '{name}'\n")
}

impl FilesInner {
    pub(super) fn uses(&self, name: &str) -> bool {
        self.users.any(
            |entry| *entry.certificate.name == *name,
            |server| server.certificate.as_ref().is_some_and(|own| *own.name == *name),
        )
    }
}

impl Files {
    /// Returns the names of all certificates, in order.
    pub fn certificates(&self) -> Vec<Box<str>> {
        self.inner().certificates.keys().cloned().collect()
    }

    /// Returns the certificate with that name, if it is complete.
    pub fn certificate(&self, name: &str) -> Option<Arc<Certificate>> {
        self.inner().certificates.get(name)?.certificate.clone()
    }

    /// Returns the name of the certificate with an uncommitted change.
    pub fn uncommitted(&self) -> Option<Box<str>> {
        self.inner().pending.as_ref().map(|pending| pending.name.clone())
    }

    /// Whether `name` is a certificate, or a file that is part of one.
    pub fn knows(&self, name: &str) -> bool {
        let inner = self.inner();
        inner.certificates.contains_key(name) || inner.certificates.contains_key(&*inner.part_of(name).0)
    }

    /// Returns the information about a certificate, or with `waits` about its uncommitted replacement.
    pub fn show(&self, name: &str, waits: bool) -> Option<CertificateSummary> {
        let inner = self.inner();
        let stored = inner.certificates.get(name)?;
        let contents = match &inner.pending {
            _ if !waits => &stored.contents,
            Some(pending) if *pending.name == *name => &pending.contents,
            _ => return None,
        };
        Some(CertificateSummary {
            name: name.into(),
            contents: contents.clone(),
            sources: stored.sources.clone(),
            is_used: inner.uses(name),
            is_updated: inner.updates.is_on(name),
            waits,
        })
    }

    /// `new ssl cert`: creates an empty slot. `false` if the name exists.
    pub fn create(&self, name: &str) -> bool {
        let mut inner = self.inner();
        if inner.certificates.contains_key(name) {
            return false;
        }
        inner.certificates.insert(name.into(), CertificateSlot::default());
        true
    }

    /// `set ssl cert`: starts a change, or modifies the pending one. `file` is the name of a certificate or of one of its files.
    /// Returns the certificate's name, and whether a change was started.
    ///
    /// # Errors
    /// The reason for rejecting the change, as lines.
    pub fn set(&self, file: &str, payload: &str) -> Result<(Box<str>, bool), String> {
        let mut inner = self.inner();
        let (name, part) = inner.part_of(file);
        let name = &*name;
        let before = match &inner.pending {
            Some(pending) if *pending.name == *name => &pending.contents,
            Some(pending) => return Err(about_another(&pending.name, "set", name)),
            None => {
                let missing = "Can't replace a certificate which is not referenced by the configuration!\n";
                &inner.certificates.get(name).ok_or(missing)?.contents
            }
        };
        let mut contents = before.clone();
        let taken = contents.take(name, part, payload);
        taken.map_err(|error| format!("{error}Can't load the payload\n"))?;
        let begun = inner.pending.is_none();
        inner.pending = Some(PendingCertificate { name: name.into(), contents });
        Ok((name.into(), begun))
    }

    /// `commit ssl cert`: returns how many entries and servers were updated, and a warning about ignored parts.
    ///
    /// # Errors
    /// The reason why nothing changed, as lines.
    pub fn commit(&self, name: &str) -> Result<(usize, Option<Box<str>>), CommitFailed> {
        let mut inner = self.inner();
        let Some(pending) = &inner.pending else {
            return Err(CommitFailed::Refused("No ongoing transaction! !\n".to_owned()));
        };
        if *pending.name != *name {
            return Err(CommitFailed::Refused(about_another(&pending.name, "set", name)));
        }
        let mut made = pending.contents.certificate(name).map_err(CommitFailed::Refused)?;
        if let Some(made) = &mut made {
            complete_chain(made, &inner.chains);
        }
        let warning = made.as_ref().and_then(|made| made.warning.clone());
        let made = made.map(Arc::new);
        let count = match inner.replace(name, made.as_ref()) {
            Ok(count) => count,
            Err(error) => {
                inner.pending = None;
                return Err(CommitFailed::Unusable(error));
            }
        };
        if let Some(PendingCertificate { name, contents }) = inner.pending.take() {
            let stored = inner.certificates.entry(name).or_default();
            if stored.contents.chain != contents.chain {
                stored.sources.chain = made.as_ref().and_then(|made| made.sources.chain.clone());
            }
            (stored.contents, stored.certificate) = (contents, made);
        }
        inner.wake();
        Ok((count, warning))
    }

    /// `abort ssl cert`.
    ///
    /// # Errors
    /// The reason for rejecting the command, as a line.
    pub fn abort(&self, name: &str) -> Result<(), String> {
        let mut inner = self.inner();
        match &inner.pending {
            None => Err("No ongoing transaction!\n".to_owned()),
            Some(own) if *own.name != *name => Err(about_another(&own.name, "abort a transaction for", name)),
            Some(_) => {
                inner.pending = None;
                Ok(())
            }
        }
    }

    /// `del ssl cert`: deletes an unused certificate.
    ///
    /// # Errors
    /// The reason for rejecting the command.
    pub fn delete(&self, name: &str) -> Result<(), String> {
        let mut inner = self.inner();
        if inner.pending.as_ref().is_some_and(|pending| *pending.name == *name) {
            return Err(format!("ongoing transaction for the certificate '{name}'"));
        }
        if !inner.certificates.contains_key(name) {
            return Err(format!("certificate '{name}' doesn't exist!\n"));
        }
        if inner.uses(name) || inner.lists_name(name) {
            return Err(format!("certificate '{name}' in use, can't be deleted!\n"));
        }
        inner.certificates.remove(name);
        inner.forget_mode(name);
        Ok(())
    }
}

impl FilesInner {
    /// Returns the certificate that a file belongs to, and which part the file holds.
    fn part_of<'a>(&self, file: &'a str) -> (Cow<'a, str>, CertificatePart) {
        let (name, part) = CertificatePart::of(file);
        if part != CertificatePart::Pem && self.replaces_endings && !self.certificates.contains_key(name) {
            return (Cow::Owned(format!("{name}.crt")), part);
        }
        (Cow::Borrowed(name), part)
    }

    /// Replaces the certificate with this name in all its uses. Returns the number of uses.
    pub(super) fn replace(&mut self, name: &str, new: Option<&Arc<Certificate>>) -> Result<usize, String> {
        if !self.uses(name) {
            return Ok(0);
        }
        let new = new.ok_or_else(|| {
            format!("unable to load SSL private key into SSL Context '{name}': there is none.\n")
        })?;
        let entry = |entry: &CertificateEntry| {
            let is_it = *entry.certificate.name == *name;
            is_it.then(|| CertificateEntry { certificate: new.clone(), ..entry.clone() })
        };
        let server = |server: &Connecting| {
            server.certificate.as_ref().filter(|own| *own.name == *name)?;
            Some(Connecting { certificate: Some(new.clone()), ..server.clone() })
        };
        let swap = self.users.prepare(&entry, &server).map_err(|error| format!("{error}\n"))?;
        let count = swap.count();
        swap.put();
        Ok(count)
    }
}
