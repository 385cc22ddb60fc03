//! Installs a certificate that this process obtained (`acme`), at all listeners and servers or at none.

use std::sync::Arc;

use super::Files;
use super::contents::Contents;
use crate::engine::key::PrivateKey;
use crate::store::{Certificate, PemParts};

impl Files {
    /// Stores the certificates of a PEM text and their key under `name`. Returns the new contents. If there is an uncommitted
    /// change of the certificate, it stays pending.
    ///
    /// # Errors
    /// The parts do not belong together, or a user of the certificate rejects them. In this case nothing has changed.
    pub fn install(&self, name: &str, chain: &[u8], key: &PrivateKey) -> Result<Contents, String> {
        let parts = PemParts::read(name, chain).map_err(|error| error.to_string())?;
        let made =
            Certificate::new(name, parts.certificates, key.clone()).map_err(|error| error.to_string())?;
        let mut inner = self.inner();
        let mut made = made;
        if let Some(stored) = inner.certificates.get(name) {
            made.sources.clone_from(&stored.sources);
        }
        let made = Arc::new(made);
        inner.replace(name, Some(&made)).map_err(|error| error.trim_end().to_owned())?;
        let contents = Contents::of(&made);
        let stored = inner.certificates.entry(name.into()).or_default();
        (stored.contents, stored.certificate) = (contents.clone(), Some(made));
        Ok(contents)
    }
}
