//! Changes crt-lists and certificate directories at run time: `show`, `add` and `del ssl crt-list`. Errors have HAProxy's wording.

use std::sync::Arc;

use super::options::{FILES, override_options, update_mode};
use super::users::BindLine;
use super::{Files, FilesInner};
use crate::crt_list;
use crate::entry::{CertificateEntry, EntryOptions, PreparedEntry};
use crate::store::Certificate;

/// A line of a crt-list, or a file of a directory.
#[derive(Clone, Debug, Default)]
pub struct ListEntry {
    /// The line number; 0 for all files of a directory.
    pub number: usize,
    /// The name of the line's certificate.
    pub certificate: Box<str>,
    /// The words between the brackets.
    pub options: Vec<Box<str>>,
    /// The names after the brackets.
    pub filters: Vec<Box<str>>,
}

/// A crt-list or a directory.
#[derive(Clone, Debug, Default)]
pub struct CertificateList {
    /// Whether the list is a directory.
    pub is_directory: bool,
    /// The lines of the list, in order.
    pub entries: Vec<ListEntry>,
    /// The number of lines, including empty ones and comments.
    pub lines: usize,
}

/// A list and its users.
#[derive(Debug)]
pub(super) struct ServedList {
    list: CertificateList,
    /// For each entry, the `bind` lines that serve it and its index at each of them.
    served: Vec<Vec<(usize, u32)>>,
    /// The `bind` lines that use the list.
    users: Vec<usize>,
}

/// A `bind` line's certificates from one list.
#[derive(Clone, Debug)]
pub struct LineCertificates {
    /// The list's name.
    pub list: Box<str>,
    /// The index of each entry of the list.
    pub places: Vec<u32>,
}

/// Why a line was not added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdded {
    /// The line is invalid.
    Refused(String),
    /// A `bind` line rejected the certificate. Holds the name of the certificate, the name of the list, and the reason.
    Unusable(Box<str>, Box<str>, String),
}

fn bare(name: &str) -> &str {
    if name.len() > 1 { name.trim_end_matches('/') } else { name }
}

impl Files {
    /// Stores a parsed crt-list or directory, unless it is known.
    pub fn keep_list(&self, name: &str, list: CertificateList) {
        let served = vec![Vec::new(); list.entries.len()];
        let kept = || ServedList { list, served, users: Vec::new() };
        self.inner().lists.entry(bare(name).into()).or_insert_with(kept);
    }

    /// Stores a `bind` line and the lists that it uses.
    pub fn add_line(&self, line: BindLine, all: &[LineCertificates]) {
        let mut inner = self.inner();
        let number = inner.users.lines.len();
        inner.users.lines.push(line);
        for one in all {
            let Some(kept) = inner.lists.get_mut(bare(&one.list)) else { continue };
            kept.users.push(number);
            for (served, place) in kept.served.iter_mut().zip(&one.places) {
                served.push((number, *place));
            }
        }
    }

    /// Returns the names of all lists, in order.
    pub fn lists(&self) -> Vec<Box<str>> {
        self.inner().lists.keys().cloned().collect()
    }

    /// Returns a list and its full name.
    pub fn list(&self, name: &str) -> Option<(Box<str>, CertificateList)> {
        let inner = self.inner();
        let (name, kept) = inner.lists.get_key_value(bare(name))?;
        Some((name.clone(), kept.list.clone()))
    }

    /// `add ssl crt-list` for a certificate, or with `payload` for a line. Returns the name of the certificate, the name of the
    /// list, and how many `bind` lines use it.
    ///
    /// # Errors
    /// The reason why nothing was added.
    pub fn add_to_list(
        &self,
        name: &str,
        text: &str,
        is_line: bool,
    ) -> Result<(Box<str>, Box<str>, usize), NotAdded> {
        let mut inner = self.inner();
        let refused = |text: String| NotAdded::Refused(text);
        let entry = if is_line {
            entry_of(text)
        } else {
            Ok(ListEntry { certificate: text.into(), ..ListEntry::default() })
        };
        let mut entry = entry.map_err(refused)?;
        let (list, kept) = inner
            .lists
            .get_key_value(bare(name))
            .ok_or_else(|| refused(format!("crt-list '{name}' does not exist!\n")))?;
        if kept.list.is_directory {
            if kept.list.entries.iter().any(|one| one.certificate == entry.certificate) {
                return Err(refused("file already exists in this directory!\n".to_owned()));
            }
            if !entry.options.is_empty() || !entry.filters.is_empty() {
                let text = "this is a directory, SSL configuration, crt-store keywords and filters are not allowed\n";
                return Err(refused(text.to_owned()));
            }
        }
        let (list, users, line) = (list.clone(), kept.users.clone(), kept.list.lines + 1);
        entry.certificate = inner.full_name(&entry.certificate);
        let certificate = inner.certificate_of(&entry.certificate).map_err(refused)?;
        let words: Vec<&str> = entry.options.iter().map(|word| &**word).collect();
        if let Some(word) = words.iter().find(|word| matches!(**word, "acme" | "domains" | "ips")) {
            let text = format!(
                "'{word}' requires a line in the configuration: orders cannot be added at run time\n"
            );
            return Err(refused(text));
        }
        let mode = update_mode(&words).map_err(|error| refused(format!("{error}\n")))?;
        inner.note_mode(&entry.certificate, mode, false).map_err(|why| {
            let (own, list) = (&entry.certificate, &list);
            refused(format!(
                "'crt-list' : '{own}' in crt-list '{list}' line {line}, is already defined with incompatible \
                 parameters:\n - {why}\n"
            ))
        })?;
        let mut made = Vec::new();
        for &number in &users {
            let line = &inner.users.lines[number];
            let options = inner.options_of(line, &entry).map_err(refused)?;
            let one = CertificateEntry {
                certificate: certificate.clone(),
                filters: entry.filters.clone(),
                is_default: false,
                options,
            };
            let prepared = line.acceptor.prepare_one(one).map_err(|error| {
                NotAdded::Unusable(entry.certificate.clone(), list.clone(), format!("{error}\n"))
            })?;
            made.push((number, prepared));
        }
        let count = made.len();
        let served = inner.put_all(made);
        let certificate = entry.certificate.clone();
        if let Some(kept) = inner.lists.get_mut(&list) {
            kept.list.lines += 1;
            entry.number = kept.list.lines;
            kept.list.entries.push(entry);
            kept.served.push(served);
        }
        inner.wake();
        Ok((certificate, list, count))
    }

    /// `del ssl crt-list`: removes a certificate's line. `number` distinguishes the line from others with the same certificate.
    /// Returns the list's name.
    ///
    /// # Errors
    /// The reason why nothing was removed.
    pub fn remove_from_list(
        &self,
        name: &str,
        certificate: &str,
        number: Option<usize>,
    ) -> Result<Box<str>, String> {
        let mut inner = self.inner();
        let full = inner.full_name(certificate);
        let certificate = &*full;
        let has_certificate = inner.certificates.contains_key(certificate);
        let (list, kept) = inner
            .lists
            .get_key_value(bare(name))
            .ok_or_else(|| format!("crt-list '{name}' does not exist!\n"))?;
        if !has_certificate {
            return Err(format!("certificate '{certificate}' does not exist!\n"));
        }
        let list = list.clone();
        let own: Vec<(usize, usize)> = (0..)
            .zip(&kept.list.entries)
            .filter(|(_, one)| *one.certificate == *certificate)
            .map(|(at, one)| (at, one.number))
            .collect();
        let numbers = || own.iter().map(|(_, number)| number.to_string()).collect::<Vec<_>>().join(", ");
        let at = match (&*own, number) {
            ([], _) => {
                return Err(format!("certificate '{certificate}' can't be found in crt-list '{list}'!\n"));
            }
            ([(at, _)], None) => *at,
            (_, None) => {
                return Err(format!(
                    "found the certificate '{certificate}' in several entries, please specify a line number \
                     preceded by colons ({})!\n",
                    numbers()
                ));
            }
            (own, Some(number)) => {
                let found = own.iter().find(|(_, own)| *own == number);
                let missing = || {
                    format!(
                        "found a certificate '{certificate}' but the line number is incorrect, please specify \
                         a correct line number preceded by colons ({})!\n",
                        numbers()
                    )
                };
                found.ok_or_else(missing)?.0
            }
        };
        let lines = inner.users.lines_with_default(&kept.served[at]);
        if !lines.is_empty() {
            return Err(format!(
                "certificate '{certificate}' cannot be deleted, it is used as default certificate by the following \
                 frontends:\n{lines}"
            ));
        }
        let served = match inner.lists.get_mut(&list) {
            Some(kept) => {
                kept.list.entries.remove(at);
                kept.served.remove(at)
            }
            None => Vec::new(),
        };
        for (number, place) in served {
            inner.users.lines[number].acceptor.remove(place);
        }
        inner.wake();
        Ok(list)
    }
}

/// Parses the single line of a payload.
fn entry_of(payload: &str) -> Result<ListEntry, String> {
    let text = payload.trim_end_matches('\n');
    if text.contains('\n') {
        return Err("only one line of payload is supported!\n".to_owned());
    }
    let line = crt_list::line(1, text).map_err(|what| format!("parsing [CLI:1]: {what}\n"))?;
    let line = line.ok_or_else(|| {
        let first = text.split_whitespace().next().unwrap_or_default();
        format!("certificate '{first}' does not exist!\n")
    })?;
    let words = |words: &[&str]| words.iter().map(|word| Box::from(*word)).collect();
    Ok(ListEntry {
        number: 0,
        certificate: line.certificate.into(),
        options: words(&line.options),
        filters: words(&line.filters),
    })
}

impl FilesInner {
    /// Whether a line of a list refers to this certificate, even if the list is not used.
    pub(super) fn lists_name(&self, certificate: &str) -> bool {
        let mut entries = self.lists.values().flat_map(|kept| &kept.list.entries);
        entries.any(|entry| *entry.certificate == *certificate)
    }

    /// Returns the full name of a certificate: an unknown relative name is resolved against `crt-base`.
    fn full_name(&self, name: &str) -> Box<str> {
        match &self.base {
            Some(base) if !name.starts_with(['/', '@']) && !self.certificates.contains_key(name) => {
                let full = format!("{base}/{name}");
                if self.certificates.contains_key(&*full) { full.into() } else { name.into() }
            }
            _ => name.into(),
        }
    }

    fn certificate_of(&self, name: &str) -> Result<Arc<Certificate>, String> {
        let stored = self.certificates.get(name);
        let stored = stored.ok_or_else(|| format!("certificate '{name}' does not exist!\n"))?;
        if stored.contents.chain.is_empty() {
            return Err(format!("certificate '{name}' is empty!\n"));
        }
        stored.certificate.clone().ok_or_else(|| format!("certificate '{name}' has no private key!\n"))
    }

    /// Returns the options of a list entry at a `bind` line. Does not read files that are not loaded yet.
    fn options_of(&self, line: &BindLine, entry: &ListEntry) -> Result<Arc<EntryOptions>, String> {
        if entry.options.is_empty() {
            return Ok(line.options.clone());
        }
        let words: Vec<&str> = entry.options.iter().map(|word| &**word).collect();
        let mut file = |place: usize, name: &str| match self.authorities.get_key_value(name) {
            Some((name, _)) => Ok(name.clone()),
            None => Err(format!("'{}' : unable to load {name}", FILES[place])),
        };
        let made = override_options(&line.options, &words, &mut file, &|files| self.trust(files));
        made.map(Arc::new).map_err(|error| {
            let of_the_line = error.starts_with("unknown ssl keyword") || error.starts_with("ssl args out");
            if of_the_line { format!("parsing [CLI:1]: {error}\n") } else { format!("{error}\n") }
        })
    }

    fn put_all(&self, made: Vec<(usize, PreparedEntry)>) -> Vec<(usize, u32)> {
        let put = |(number, prepared): (usize, PreparedEntry)| {
            (number, self.users.lines[number].acceptor.put_one(prepared))
        };
        made.into_iter().map(put).collect()
    }
}
