//! The contents of a certificate slot, possibly incomplete, and changes to its parts.

use std::sync::Arc;

use base::clock::WallTime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::engine::key::PrivateKey;
use crate::load::is_timestamp_list;
use crate::store::{Certificate, PemParts};
use crate::{ocsp, pem};

/// The parts of a certificate, any of which may be missing.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The certificate and its chain, as DER.
    pub chain: Vec<Arc<[u8]>>,
    /// The private key.
    pub key: Option<PrivateKey>,
    /// The OCSP response, as DER.
    pub ocsp: Option<Arc<[u8]>>,
    /// Signed certificate timestamps.
    pub sctl: Option<Arc<[u8]>>,
    /// The issuer's certificate, as DER.
    pub issuer: Option<Arc<[u8]>>,
}

/// The part of a certificate that a file name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificatePart {
    Pem,
    Key,
    Ocsp,
    Sctl,
    Issuer,
}

impl CertificatePart {
    /// Returns the part, and the name of the certificate.
    pub(super) fn of(name: &str) -> (&str, Self) {
        let endings =
            [(".key", Self::Key), (".ocsp", Self::Ocsp), (".sctl", Self::Sctl), (".issuer", Self::Issuer)];
        let found = endings.iter().find_map(|(ending, part)| Some((name.strip_suffix(ending)?, *part)));
        found.unwrap_or((name, Self::Pem))
    }
}

impl Contents {
    /// Returns the contents of a certificate.
    pub fn of(certificate: &Certificate) -> Self {
        Self {
            chain: certificate.chain.clone(),
            key: Some(certificate.key.clone()),
            ocsp: certificate.ocsp.as_ref().map(|ocsp| ocsp.der.clone()),
            sctl: certificate.sctl.clone(),
            issuer: certificate.issuer.clone(),
        }
    }

    /// Applies a payload to a part. The error consists of one or more lines.
    pub(super) fn take(&mut self, name: &str, part: CertificatePart, payload: &str) -> Result<(), String> {
        match part {
            CertificatePart::Pem => {
                let parts = PemParts::read(name, payload.as_bytes()).map_err(|error| format!("{error}\n"))?;
                if parts.certificates.is_empty() {
                    return Err(format!("unable to load certificate from file '{name}': no start line.\n"));
                }
                // A previous key does not belong to the new certificate.
                (self.chain, self.key) = (parts.certificates, parts.key);
            }
            CertificatePart::Key => {
                let parts = PemParts::read(name, payload.as_bytes()).map_err(|error| format!("{error}\n"))?;
                let missing = || format!("unable to load private key from file '{name}': no start line.\n");
                self.key = Some(parts.key.ok_or_else(missing)?);
            }
            CertificatePart::Ocsp => {
                let der = decode(payload).ok_or("Error reading OCSP response in base64 format\n")?;
                self.ocsp = Some(der.into());
            }
            CertificatePart::Sctl => {
                let list = Some(payload.trim_end_matches('\n').as_bytes().to_vec());
                let list = list.filter(|list| is_timestamp_list(list));
                let list = list.or_else(|| decode(payload).filter(|list| is_timestamp_list(list)));
                self.sctl = Some(list.ok_or_else(String::new)?.into());
            }
            CertificatePart::Issuer => {
                let parts = PemParts::read(name, payload.as_bytes()).ok();
                let issuer = parts.and_then(|parts| parts.certificates.into_iter().next());
                self.issuer = Some(issuer.ok_or_else(|| format!("'{name}' cannot be read or parsed'.\n"))?);
            }
        }
        Ok(())
    }

    /// Returns the certificate, if it is complete.
    ///
    /// # Errors
    /// The parts do not belong together, as lines.
    pub(super) fn certificate(&self, name: &str) -> Result<Option<Certificate>, String> {
        let (Some(key), false) = (&self.key, self.chain.is_empty()) else { return Ok(None) };
        let made = Certificate::new(name, self.chain.clone(), key.clone());
        let mut made = made.map_err(|error| format!("{error}\n"))?;
        made.issuer.clone_from(&self.issuer);
        made.sctl.clone_from(&self.sctl);
        if let Some(ocsp) = &self.ocsp {
            let stapled = made.staple(ocsp, WallTime::now().seconds);
            made.warning = stapled.err().map(|cause| format!("{cause}. Content will be ignored.").into());
        }
        Ok(Some(made))
    }

    /// Returns the key, the certificate and the chain as PEM. The result is secret.
    pub fn to_pem(&self) -> String {
        let mut out = String::new();
        if let Some(key) = &self.key {
            out.push_str(&pem::block("PRIVATE KEY", key.pkcs8()));
        }
        for der in &self.chain {
            out.push_str(&pem::block("CERTIFICATE", der));
        }
        out
    }

    /// Returns the identifier of the OCSP response, in hexadecimal digits. `None` if there is no response, unless `is_asked` is
    /// set.
    pub fn ocsp_id(&self, is_asked: bool) -> Option<String> {
        if !is_asked {
            ocsp::Response::parse(self.ocsp.as_ref()?).ok()?;
        }
        let issuer = self.issuer.as_deref().or(self.chain.get(1).map(|der| &**der))?;
        let id = ocsp::certificate_id(self.chain.first()?, issuer)?;
        Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Decodes base64 that may span several lines.
fn decode(payload: &str) -> Option<Vec<u8>> {
    let text: String = payload.split_whitespace().collect();
    STANDARD.decode(text).ok()
}
