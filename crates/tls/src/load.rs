//! Loads certificates, CA files and revocation lists from the files in a configuration.
//!
//! Files are never loaded in part: an unusable file is an error that names the file, with HAProxy's wording if HAProxy has such a
//! message.

use std::fmt;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use base::clock::WallTime;
use base::raw::{path_of, text_of, text_of_path};
use base::seen_files;

use crate::engine::key::PrivateKey;
use crate::load_error::LoadError;
use crate::pair;
use crate::store::{Certificate, Passphrases, PemParts, Sources};
use crate::x509;

/// The files to look for next to a certificate (`ssl-load-extra-files`, `ssl-load-extra-del-ext`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraFiles {
    /// `.rsa`, `.ecdsa` and `.dsa`, if the file itself is missing.
    pub bundle: bool,
    /// `.sctl`.
    pub sctl: bool,
    /// `.ocsp`.
    pub ocsp: bool,
    /// `.issuer`.
    pub issuer: bool,
    /// `.key` if the file has no key.
    pub key: bool,
    /// Whether these extensions replace `.crt` instead of being appended to it.
    pub replaces_ending: bool,
}

impl ExtraFiles {
    /// HAProxy's default.
    pub const ALL: Self =
        Self { bundle: true, sctl: true, ocsp: true, issuer: true, key: true, replaces_ending: false };

    /// No additional files, only those in the configuration.
    pub const NONE: Self =
        Self { bundle: false, sctl: false, ocsp: false, issuer: false, key: false, replaces_ending: false };
}

/// The files of one certificate (`load` of a crt-store, options of a crt-list line).
#[derive(Clone, Debug, Default)]
pub struct CertificateFiles {
    /// The private key.
    pub key: Option<Box<str>>,
    /// Whether the key overrides one in the certificate's file, because it was configured and not just found.
    pub key_is_named: bool,
    /// The OCSP response.
    pub ocsp: Option<Box<str>>,
    /// The issuer's certificate.
    pub issuer: Option<Box<str>>,
    /// The signed certificate timestamps.
    pub sctl: Option<Box<str>>,
}

impl CertificateFiles {
    /// Returns which of the files to look for exist next to `path`.
    fn existing(path: &str, extra: ExtraFiles) -> Self {
        let base = match path.strip_suffix(".crt") {
            Some(base) if extra.replaces_ending => base,
            _ => path,
        };
        let find = |wanted: bool, ending: &str| -> Option<Box<str>> {
            let path = format!("{base}.{ending}");
            (wanted && exists(&path)).then(|| path.into())
        };
        Self {
            key: find(extra.key, "key"),
            key_is_named: false,
            ocsp: find(extra.ocsp, "ocsp"),
            issuer: find(extra.issuer, "issuer"),
            sctl: find(extra.sctl, "sctl"),
        }
    }
}

fn exists(path: &str) -> bool {
    let path = path_of(path);
    seen_files::note(&path);
    path.exists()
}

fn read(path: &str) -> Result<Vec<u8>, LoadError> {
    base::file::read(path).map_err(|error| {
        LoadError::new(path, format!("unable to open the file '{path}': {}", reason(&error)))
    })
}

fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A chain file: an issuer's certificate and those of the CAs above it, as DER (`issuers-chain-path`).
#[derive(Clone, Debug)]
pub struct IssuerChain {
    /// The file.
    pub file: Box<str>,
    /// The certificates, starting with the issuer's own.
    pub certificates: Vec<Arc<[u8]>>,
}

/// If a chain only has the certificate itself, completes it with the chain file of the issuer.
pub(crate) fn complete_chain(certificate: &mut Certificate, chains: &[IssuerChain]) {
    let [own] = &*certificate.chain else { return };
    let Ok(own) = x509::CertificateFields::parse(own) else { return };
    let issuer = chains.iter().find(|chain| {
        let first = chain.certificates.first().and_then(|first| x509::CertificateFields::parse(first).ok());
        first.is_some_and(|first| first.subject() == own.issuer())
    });
    if let Some(chain) = issuer {
        certificate.chain.extend(chain.certificates.iter().cloned());
        certificate.sources.chain = Some(chain.file.clone());
    }
}

/// The settings for loading certificates.
#[derive(Clone)]
pub struct Loader {
    /// The files to look for next to each certificate.
    pub extra: ExtraFiles,
    /// Chains for certificates without one (`issuers-chain-path`).
    pub chains: Arc<[IssuerChain]>,
    /// Provides the passphrases of encrypted keys (`ssl-passphrase-cmd`).
    pub passphrases: Option<Arc<Passphrases>>,
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("extra", &self.extra).finish_non_exhaustive()
    }
}

impl Default for Loader {
    fn default() -> Self {
        Self { extra: ExtraFiles::ALL, chains: Arc::default(), passphrases: None }
    }
}

impl Loader {
    /// Loads all certificates at `path`: a file, the files of a bundle, or those of a directory in order of their names.
    ///
    /// # Errors
    /// One of them is unusable, or `path` does not exist.
    pub fn certificates(&self, path: &str) -> Result<Vec<Arc<Certificate>>, LoadError> {
        let one = |file: &str, extra| {
            self.certificate(file, &CertificateFiles::existing(file, extra)).map(Arc::new)
        };
        let extra = self.extra;
        seen_files::note(path);
        match std::fs::metadata(path_of(path)) {
            Ok(found) if found.is_dir() => directory(path)?.iter().map(|file| one(file, extra)).collect(),
            Ok(_) => Ok(vec![one(path, extra)?]),
            Err(error) => {
                let endings: &[&str] = if extra.bundle { &["rsa", "dsa", "ecdsa"] } else { &[] };
                let bundle: Vec<_> = endings.iter().map(|ending| format!("{path}.{ending}")).collect();
                let bundle: Vec<_> = bundle.iter().filter(|file| exists(file)).collect();
                if bundle.is_empty() {
                    let why = reason(&error);
                    let cause = format!("unable to stat SSL certificate from file '{path}' : {why}.");
                    return Err(LoadError::new(path, cause));
                }
                let extra = ExtraFiles { replaces_ending: false, ..extra };
                bundle.into_iter().map(|file| one(file, extra)).collect()
            }
        }
    }

    /// Loads a CA for signing: a certificate from a file, with its key in that file or next to it.
    ///
    /// # Errors
    /// A file is unusable.
    pub fn authority(&self, path: &str) -> Result<Certificate, LoadError> {
        let extra = ExtraFiles {
            key: self.extra.key,
            replaces_ending: self.extra.replaces_ending,
            ..ExtraFiles::NONE
        };
        self.certificate(path, &CertificateFiles::existing(path, extra))
    }

    /// Loads one certificate from its files.
    ///
    /// # Errors
    /// A file is unusable.
    pub fn certificate(&self, path: &str, files: &CertificateFiles) -> Result<Certificate, LoadError> {
        let passphrases = self.passphrases.as_deref();
        let parts = PemParts::read_with(path, &read(path)?, passphrases)?;
        if parts.certificates.is_empty() {
            let cause = format!("unable to load certificate from file '{path}': no start line.");
            return Err(LoadError::new(path, cause));
        }
        let (key, key_file) = match (&files.key, parts.key) {
            (Some(file), found) if files.key_is_named || found.is_none() => {
                (key(file, passphrases)?, Some(file.clone()))
            }
            (_, Some(key)) => (key, None),
            (_, None) => {
                let cause = format!("No Private Key found in '{path}.key'.");
                return Err(LoadError::new(path, cause));
            }
        };
        let mut certificate = match (Certificate::new(path, parts.certificates, key), &key_file) {
            (Err(error), Some(key_file)) => match pair::left_over(path, key_file) {
                Some(text) => Certificate::from_pem(path, &text)?,
                None => return Err(error),
            },
            (made, _) => made?,
        };
        certificate.sources = sources(path, files, key_file, self.extra);
        complete_chain(&mut certificate, &self.chains);
        if let Some(file) = &files.issuer {
            let issuer = PemParts::read(file, &read(file)?)?.certificates.into_iter().next();
            let cause = || format!("unable to load issuer certificate from file '{file}'.");
            certificate.issuer = Some(issuer.ok_or_else(|| LoadError::new(file, cause()))?);
        }
        if let Some(file) = &files.sctl {
            let list = read(file)?;
            if !is_timestamp_list(&list) {
                return Err(LoadError::new(file, format!("invalid SCTL file '{file}'")));
            }
            certificate.sctl = Some(list.into());
        }
        if let Some(file) = &files.ocsp {
            staple(&mut certificate, file, &read(file)?)?;
        }
        Ok(certificate)
    }
}

/// Returns a certificate's files as reported by the runtime socket. The files for OCSP and timestamps are listed even if they do
/// not exist, unless they are not looked for.
fn sources(path: &str, files: &CertificateFiles, key: Option<Box<str>>, extra: ExtraFiles) -> Sources {
    let beside = |wanted: bool, ending: &str| wanted.then(|| format!("{path}.{ending}").into());
    Sources {
        certificate: Some(path.into()),
        key: key.or(Some(path.into())),
        ocsp: files.ocsp.clone().or_else(|| beside(extra.ocsp, "ocsp")),
        issuer: files.issuer.clone(),
        sctl: files.sctl.clone().or_else(|| beside(extra.sctl, "sctl")),
        chain: None,
    }
}

/// Adds the OCSP response in `file`. An empty file means that the response has not arrived yet. A response that must not be stapled
/// is skipped with a warning.
fn staple(certificate: &mut Certificate, file: &str, response: &[u8]) -> Result<(), LoadError> {
    if certificate.issuer_der().is_none() {
        let cause = format!(
            "'{file}' is present and activates OCSP but it is impossible to compute the OCSP certificate ID \
             (maybe the issuer could not be found)'."
        );
        return Err(LoadError::new(file, cause));
    }
    if !response.is_empty()
        && let Err(cause) = certificate.staple(response, WallTime::now().seconds)
    {
        certificate.warning = Some(format!("{cause}. Content will be ignored.").into());
    }
    Ok(())
}

/// Returns the files of a directory that have names of certificates.
fn directory(path: &str) -> Result<Vec<String>, LoadError> {
    let failed = |error: std::io::Error| {
        LoadError::new(path, format!("unable to scan directory '{path}' : {}.", reason(&error)))
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path_of(path)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = text_of(name.as_bytes());
        let is_reserved = [".key", ".issuer", ".ocsp", ".sctl"].iter().any(|ending| name.ends_with(ending));
        if name.starts_with('.') || is_reserved || !std::fs::metadata(entry.path()).is_ok_and(|m| m.is_file())
        {
            continue;
        }
        found.push(format!("{}/{name}", path.trim_end_matches('/')));
    }
    found.sort();
    Ok(found)
}

fn key(file: &str, passphrases: Option<&Passphrases>) -> Result<PrivateKey, LoadError> {
    let parts = PemParts::read_with(file, &read(file)?, passphrases)?;
    parts.key.ok_or_else(|| LoadError::new(file, format!("No Private Key found in '{file}'.")))
}

/// Whether the bytes are a SignedCertificateTimestampList (RFC 6962, 3.3), according to the lengths in it.
pub(crate) fn is_timestamp_list(bytes: &[u8]) -> bool {
    fn vector(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (length, rest) = bytes.split_first_chunk()?;
        rest.split_at_checked(u16::from_be_bytes(*length).into())
    }
    let Some((mut list, [])) = vector(bytes) else { return false };
    while !list.is_empty() {
        match vector(list) {
            Some((one, rest)) if !one.is_empty() => list = rest,
            _ => return false,
        }
    }
    true
}

/// Loads CA certificates and revocation lists from a file or a directory (`ca-file`, `crl-file`). `@system-ca` stands for the CA
/// certificates of the system.
///
/// # Errors
/// The path cannot be read, or contains none.
pub fn authorities(path: &str) -> Result<PemParts, LoadError> {
    if path == "@system-ca" {
        return system_authorities();
    }
    let failed = |error: &std::io::Error| {
        LoadError::new(path, format!("Couldn't open the ca-file '{path}' ({}).", reason(error)))
    };
    let location = path_of(path);
    seen_files::note(&location);
    let metadata = std::fs::metadata(&location).map_err(|error| failed(&error))?;
    let mut all = PemParts::default();
    if metadata.is_dir() {
        let entries = std::fs::read_dir(&location).map_err(|error| failed(&error))?;
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files.iter().map(|file| text_of_path(file)) {
            let is_hidden = file.rsplit('/').next().is_some_and(|name| name.starts_with('.'));
            let fits = [".pem", ".crt", ".cer", ".crl"].iter().any(|ending| file.ends_with(ending));
            if !is_hidden && fits {
                all.merge(PemParts::read(&file, &read(&file)?)?);
            }
        }
    } else {
        all = PemParts::read(path, &base::file::read(path).map_err(|error| failed(&error))?)?;
    }
    if all.certificates.is_empty() && all.crls.is_empty() {
        return Err(LoadError::new(path, format!("unable to load CA file '{path}': no start line.")));
    }
    Ok(all)
}

/// Loads the system's CA certificates: from `SSL_CERT_DIR`, otherwise from OpenSSL's default directory. Files without certificates
/// are skipped.
fn system_authorities() -> Result<PemParts, LoadError> {
    let named = std::env::var("SSL_CERT_DIR").ok();
    let path = named.as_deref().unwrap_or("/etc/ssl/certs");
    let mut all = PemParts::default();
    seen_files::note(path);
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(all),
        Err(error) => {
            return Err(LoadError::new(path, format!("unable to scan '{path}': {}", reason(&error))));
        }
    };
    // Debian has each CA under several names, and also all of them in one file.
    let mut seen = std::collections::HashSet::new();
    for entry in entries.flatten() {
        let Ok(bytes) = base::file::read(entry.path()) else { continue };
        let file = entry.path().to_string_lossy().into_owned();
        let Ok(parts) = PemParts::read(&file, &bytes) else { continue };
        for authority in parts.certificates {
            if seen.insert(authority.clone()) {
                all.certificates.push(authority);
            }
        }
    }
    Ok(all)
}

/// Loads the chains in a directory, one per file (`issuers-chain-path`).
///
/// # Errors
/// The directory or a file in it cannot be read.
pub fn chains(path: &str) -> Result<Vec<IssuerChain>, LoadError> {
    let mut chains = Vec::new();
    for file in directory(path)? {
        let certificates = PemParts::read(&file, &read(&file)?)?.certificates;
        chains.push(IssuerChain { file: file.into(), certificates });
    }
    Ok(chains)
}
