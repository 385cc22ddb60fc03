//! Writes a certificate and its key to separate files. They are replaced one after the other, so an interruption leaves files that
//! do not belong together.
//!
//! Therefore, both are first written to a third file, which is removed once the other two are in place. Its content is used only
//! if the other two do not match. Called by `load`, `config` and `acme`.

use std::path::{Path, PathBuf};

use crate::store::{Certificate, PemParts};

/// Returns the path of the third file, next to the certificate's.
pub fn path_of(certificate: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(certificate.file_name().unwrap_or_default());
    name.push(".pair");
    certificate.with_file_name(name)
}

/// Returns the content of the third file, a certificate with its key, if it is needed.
pub fn left_over(certificate: &str, key: &str) -> Option<Vec<u8>> {
    let text = base::file::read(path_of(Path::new(certificate))).ok()?;
    Certificate::from_pem(certificate, &text).ok()?;
    let parts = |path: &str| PemParts::read(path, &base::file::read(path).ok()?).ok();
    let (chain, key) = (parts(certificate).map(|own| own.certificates), parts(key).and_then(|own| own.key));
    let belongs =
        chain.zip(key).is_some_and(|(chain, key)| Certificate::new(certificate, chain, key).is_ok());
    (!belongs).then_some(text)
}
