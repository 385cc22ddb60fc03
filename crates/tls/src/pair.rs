//! A certificate and its key in files of their own, written by this program: one is replaced after
//! the other, and whoever is interrupted in between leaves files that do not belong together.
//!
//! So both are written into a third file first, which goes once the other two are in place. What it
//! has counts only where those two do not belong together. Called by `load`, `config` and `acme`.

use std::path::{Path, PathBuf};

use crate::store::{Certificate, PemParts};

/// The third file: beside the certificate's.
pub fn beside(certificate: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(certificate.file_name().unwrap_or_default());
    name.push(".pair");
    certificate.with_file_name(name)
}

/// What the third file has, where it is needed: a certificate with its key.
pub fn left_over(certificate: &str, key: &str) -> Option<Vec<u8>> {
    let text = base::file::read(beside(Path::new(certificate))).ok()?;
    Certificate::from_pem(certificate, &text).ok()?;
    let parts = |path: &str| PemParts::read(path, &base::file::read(path).ok()?).ok();
    let (chain, key) = (parts(certificate).map(|own| own.certificates), parts(key).and_then(|own| own.key));
    let belongs =
        chain.zip(key).is_some_and(|(chain, key)| Certificate::new(certificate, chain, key).is_ok());
    (!belongs).then_some(text)
}
