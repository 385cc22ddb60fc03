//! What the rest of Weir asks about a certificate: names, dates, serial number.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_COMMON_NAME;
use x509_parser::prelude::FromDer;

/// A certificate taken apart.
#[derive(Debug)]
pub struct Facts<'a>(X509Certificate<'a>);

impl<'a> Facts<'a> {
    /// Takes `der` apart.
    ///
    /// # Errors
    /// It is no certificate, in a few words.
    pub fn parse(der: &'a [u8]) -> Result<Self, &'static str> {
        match X509Certificate::from_der(der) {
            Ok(([], certificate)) => Ok(Self(certificate)),
            Ok(_) => Err("bytes behind the end of a certificate"),
            Err(_) => Err("not a certificate"),
        }
    }

    /// Whether issuer and subject are the same.
    pub fn is_self_issued(&self) -> bool {
        self.0.subject().as_raw() == self.0.issuer().as_raw()
    }

    /// The subject, as DER.
    pub fn subject(&self) -> &[u8] {
        self.0.subject().as_raw()
    }

    /// The issuer, as DER.
    pub fn issuer(&self) -> &[u8] {
        self.0.issuer().as_raw()
    }

    /// Begin and end of its validity, in seconds since 1970.
    pub fn validity(&self) -> (i64, i64) {
        let validity = self.0.validity();
        (validity.not_before.timestamp(), validity.not_after.timestamp())
    }

    /// The bytes of its serial number.
    pub fn serial(&self) -> &[u8] {
        self.0.raw_serial()
    }

    /// Every host name it is for: the DNS names among its alternative names, then its common names.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for extension in self.0.extensions() {
            if let ParsedExtension::SubjectAlternativeName(alternatives) = extension.parsed_extension() {
                for name in &alternatives.general_names {
                    if let GeneralName::DNSName(name) = name {
                        names.push((*name).to_owned());
                    }
                }
            }
        }
        for name in self.0.subject().iter_by_oid(&OID_X509_COMMON_NAME) {
            names.extend(name.as_str().map(str::to_owned));
        }
        names
    }
}
