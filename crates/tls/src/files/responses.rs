//! OCSP responses at run time: `show` and `set ssl ocsp-response`.

use std::sync::Arc;

use base::clock::WallTime;

use super::{Files, FilesInner};
use crate::ocsp::{self, Response};
use crate::store::Certificate;

/// A certificate with an OCSP response that is stapled now or will be.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The certificate's identifier in OCSP requests and responses, in hexadecimal digits.
    pub id: String,
    /// The name of the certificate.
    pub certificate: Box<str>,
    /// The hashes and the serial number in the identifier, in hexadecimal digits.
    pub parts: [String; 3],
    /// The response, or `None` before the first one (`ocsp-update`).
    pub response: Option<Response>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl FilesInner {
    fn answers(&self) -> impl Iterator<Item = Answered> {
        self.certificates.iter().filter_map(|(name, stored)| {
            let certificate = stored.certificate.as_ref()?;
            let response = certificate.ocsp.clone();
            if response.is_none() && !self.asks_about(name, certificate) {
                return None;
            }
            let (own, issuer) = (certificate.chain.first()?, certificate.issuer_der()?);
            let [name_hash, key_hash] = ocsp::issuer_hashes(issuer)?;
            let serial = ocsp::serial(own)?;
            Some(Answered {
                id: hex(&ocsp::certificate_id(own, issuer)?),
                certificate: name.clone(),
                parts: [hex(&name_hash), hex(&key_hash), hex(&serial)].map(|one| one.to_uppercase()),
                response,
            })
        })
    }
}

impl Files {
    /// Returns all responses, by the names of their certificates. A certificate with several names is listed once.
    pub fn responses(&self) -> Vec<Answered> {
        let mut all: Vec<Answered> = Vec::new();
        for one in self.inner().answers() {
            if all.iter().all(|other| other.id != one.id) {
                all.push(one);
            }
        }
        all
    }

    /// Returns the response for an identifier or a certificate name.
    pub fn response(&self, word: &str) -> Option<Response> {
        let id = word.to_ascii_lowercase();
        let found = self.inner().answers().find(|one| *one.certificate == *word || one.id == id);
        found?.response
    }

    /// Returns the response of a certificate, or with `waits` of its uncommitted change.
    pub fn response_of(&self, name: &str, waits: bool) -> Option<Response> {
        let contents = self.show(name, waits)?.contents;
        Response::parse(&contents.ocsp?).ok()
    }

    /// `set ssl ocsp-response`: applies a response to its certificate immediately.
    ///
    /// # Errors
    /// The reason, with HAProxy's wording.
    pub fn set_response(&self, der: &[u8]) -> Result<(), String> {
        let response = Response::parse(der)?;
        let mut inner = self.inner();
        let now = WallTime::now().seconds;
        let mut error = None;
        let mut found = Vec::new();
        for (name, stored) in &inner.certificates {
            let Some(certificate) = &stored.certificate else { continue };
            let Some((own, issuer)) = certificate.chain.first().zip(certificate.issuer_der()) else {
                continue;
            };
            if !response.is_about(own, issuer) {
                continue;
            }
            match response.check(own, issuer, now) {
                Ok(()) => {
                    let made = Certificate { ocsp: Some(response.clone()), ..(**certificate).clone() };
                    found.push((name.clone(), Arc::new(made)));
                }
                Err(why) => error = Some(why),
            }
        }
        if found.is_empty() {
            let nobody = "OCSP single response: Certificate ID does not match any certificate or issuer";
            return Err(error.unwrap_or(nobody).to_owned());
        }
        for (name, made) in found {
            inner.replace(&name, Some(&made))?;
            if let Some(stored) = inner.certificates.get_mut(&name) {
                stored.contents.ocsp = Some(response.der.clone());
                stored.certificate = Some(made);
            }
        }
        Ok(())
    }
}
