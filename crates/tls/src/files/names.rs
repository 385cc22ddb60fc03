//! Lists names with their certificates (`show ssl sni`), and ticket keys.

use std::sync::Arc;

use super::Files;
use crate::engine::key::KeyKind;
use crate::entry::CertificateEntry;
use crate::tickets::TicketKeys;
use crate::x509::CertificateFields;

/// A name served by a `bind` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedName {
    /// The name: `*.…` for a wildcard, `*` for a default.
    pub name: String,
    /// The names that the line excludes from the wildcard, with their `!`.
    pub excluded: Vec<Box<str>>,
    /// The signature algorithm of the key: `rsa`, `ecdsa`.
    pub kind: &'static str,
    /// The name of the certificate.
    pub certificate: Box<str>,
    /// Start and end of the certificate's validity, in seconds since 1970.
    pub validity: (i64, i64),
}

/// The names of a `bind` line.
#[derive(Clone, Debug)]
pub struct LineNames {
    /// The name of the frontend.
    pub frontend: Box<str>,
    /// The position of the line: `file:line`.
    pub place: Box<str>,
    /// The names: first exact names, then wildcards by the part after `*`.
    pub names: Vec<ServedName>,
}

/// Returns the names of an entry.
fn names_of(place: u32, entry: &CertificateEntry) -> Vec<ServedName> {
    let certificate = &entry.certificate;
    let all = if entry.filters.is_empty() { &certificate.names[..] } else { &entry.filters[..] };
    let excluded: Vec<Box<str>> = entry
        .filters
        .iter()
        .rev()
        .filter(|one| one.starts_with('!') && !one.starts_with("!*"))
        .cloned()
        .collect();
    let mut names: Vec<String> =
        all.iter().filter(|name| !name.starts_with('!')).map(|name| name.to_ascii_lowercase()).collect();
    if place == 0 || entry.is_default {
        names.push("*".to_owned());
    }
    names.sort_unstable();
    names.dedup();
    let facts = certificate.chain.first().and_then(|der| CertificateFields::parse(der).ok());
    let validity = facts.map_or((0, 0), |facts| facts.validity());
    let kind = match certificate.kind() {
        KeyKind::Rsa => "rsa",
        KeyKind::Dsa => "dsa",
        KeyKind::Ecdsa => "ecdsa",
        KeyKind::Ed25519 => "ed25519",
    };
    let one = |name: String| ServedName {
        excluded: if name.starts_with('*') { excluded.clone() } else { Vec::new() },
        name,
        kind,
        certificate: certificate.name.clone(),
        validity,
    };
    names.into_iter().map(one).collect()
}

impl Files {
    /// Returns the names of all `bind` lines, in configuration order.
    pub fn names(&self) -> Vec<LineNames> {
        let lines = self.inner().users.lines.clone();
        let names = |line: &super::BindLine| {
            let entries = line.acceptor.entries();
            let mut names: Vec<ServedName> =
                entries.iter().flat_map(|(place, entry)| names_of(*place, entry)).collect();
            names.sort_by(|a, b| {
                let key = |one: &ServedName| {
                    one.name
                        .strip_prefix('*')
                        .map_or((false, one.name.clone()), |rest| (true, rest.to_owned()))
                };
                key(a).cmp(&key(b))
            });
            names
        };
        let of = |line: super::BindLine| {
            let names = names(&line);
            LineNames { frontend: line.frontend, place: line.place, names }
        };
        lines.into_iter().map(of).collect()
    }

    /// Stores the ticket keys read from a file.
    pub fn keep_ticket_keys(&self, file: &str, keys: &Arc<TicketKeys>) {
        self.inner().ticket_keys.push((file.into(), keys.clone()));
    }

    /// Returns the ticket key files, in order, with their keys.
    pub fn ticket_keys(&self) -> Vec<(Box<str>, Arc<TicketKeys>)> {
        self.inner().ticket_keys.clone()
    }
}
