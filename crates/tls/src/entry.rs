//! A listener's certificate with the options of its line, and the engine configurations for both.
//!
//! A configuration is created when the first client needs it. Called by `acceptor`, which chooses the entry, and by `generated`,
//! which stores entries.

use std::sync::{Arc, OnceLock};

use crate::choice::CertificateNames;
use crate::engine::provider::has_suite;
use crate::engine::side::{RustlsServerSide, takes_name};
use crate::hello::Hello;
use crate::settings::{ClientVerify, Parameters, VerifyMode};
use crate::store::Certificate;
use crate::{TLS12, TLS13, legacy, rustls_fit};

/// The options of a `bind` line or a crt-list line, except the certificate.
#[derive(Clone, Debug, Default)]
pub struct EntryOptions {
    /// Versions, suites, groups.
    pub parameters: Parameters,
    /// Protocols, preferred first (`alpn`).
    pub alpn: Vec<Box<[u8]>>,
    /// How clients are verified.
    pub verify: ClientVerify,
    /// The maximum number of early data bytes that are accepted (`allow-0rtt`).
    pub early_data: u32,
    /// Whether self-issued certificates are not sent (`ssl-skip-self-issued-ca`).
    pub skips_roots: bool,
}

/// A certificate with the names for which it is used, and the options of its line.
#[derive(Clone, Debug)]
pub struct CertificateEntry {
    /// The certificate.
    pub certificate: Arc<Certificate>,
    /// The names on the crt-list line. If the list is empty, the names in the certificate are used. `*` makes the certificate a
    /// default, `!name` excludes a name.
    pub filters: Vec<Box<str>>,
    /// Whether the certificate is a default in addition to its names (`default-crt`).
    pub is_default: bool,
    /// The options of the line, which override those of the `bind` line.
    pub options: Arc<EntryOptions>,
}

/// An entry with its engine configurations.
#[derive(Debug)]
pub(crate) struct PreparedEntry {
    pub(crate) entry: CertificateEntry,
    /// The rustls configurations, created on first use: without and with ALPN, and without and with an OCSP response.
    sides: [[OnceLock<Option<RustlsServerSide>>; 2]; 2],
    /// The OpenSSL configuration, created on first use.
    pub(crate) legacy: OnceLock<Option<legacy::ServerSide>>,
    /// For a generated certificate, the default entry from which the key and the rustls settings are used.
    pub(crate) base: Option<Arc<Self>>,
}

impl PreparedEntry {
    pub(crate) fn new(entry: CertificateEntry) -> Self {
        Self { entry, sides: Default::default(), legacy: OnceLock::new(), base: None }
    }

    pub(crate) fn side(&self, agrees: bool, staples: bool) -> &OnceLock<Option<RustlsServerSide>> {
        &self.sides[usize::from(agrees)][usize::from(staples)]
    }

    pub(crate) fn needs_openssl(&self) -> bool {
        self.entry.options.parameters.legacy.is_some() || self.entry.certificate.key.needs_openssl()
    }

    /// Whether rustls can serve some of the clients. If the line explicitly allows weak certificates, only OpenSSL can verify them.
    pub(crate) fn serves_with_rustls(&self) -> bool {
        let EntryOptions { parameters, verify, .. } = &*self.entry.options;
        let is_alone = parameters.legacy.as_ref().is_some_and(|legacy| legacy.alone);
        let level = parameters.legacy.as_ref().and_then(|legacy| legacy.security_level);
        let takes_weak = verify.mode != VerifyMode::None && level.is_some_and(|level| level < 2);
        let speaks = |version| (parameters.min..=parameters.max).contains(&version);
        let has_common =
            speaks(TLS13) || (speaks(TLS12) && parameters.suites12.iter().any(|suite| has_suite(*suite)));
        !self.entry.certificate.key.needs_openssl() && !takes_weak && !is_alone && has_common
    }

    /// Whether rustls serves this client.
    pub(crate) fn is_for_rustls(&self, hello: &Hello<'_>) -> bool {
        let CertificateEntry { certificate, options, .. } = &self.entry;
        if options.parameters.takes_odd_names && !hello.server_name.is_none_or(takes_name) {
            return false;
        }
        !self.needs_openssl()
            || (self.serves_with_rustls()
                && rustls_fit::is_for_rustls(hello, &options.parameters, &certificate.key))
    }

    pub(crate) fn names(&self) -> CertificateNames<'_> {
        let CertificateEntry { certificate, filters, is_default, .. } = &self.entry;
        CertificateNames {
            kind: certificate.kind(),
            own: &certificate.names,
            validity: certificate.validity,
            filters,
            is_default: *is_default,
        }
    }
}
