//! An OCSP responder's answer in lines, as `openssl ocsp -text` writes them (management manual, 9.3:
//! `show ssl ocsp-response`), as far as what it says of the certificate.

use std::fmt::Write;

use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use crate::crl::time_text;
use crate::der::{self, Der};
use crate::dn;
use crate::ocsp::{Response, Status, basic};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// A name as OpenSSL writes it there: `C = FR, CN = ocsp.test`.
fn name(der: &[u8]) -> Option<String> {
    let (_, name) = X509Name::from_der(der).ok()?;
    let attributes = name.iter_attributes().map(|one| {
        let oid = one.attr_type().to_id_string();
        format!("{} = {}", dn::short(&oid), String::from_utf8_lossy(one.as_slice()))
    });
    Some(attributes.collect::<Vec<_>>().join(", "))
}

/// Who answers, and when.
fn responder(der: &[u8]) -> Option<(String, i64)> {
    let body = Der(der).take(der::SEQUENCE).map(|mut all| {
        let _ = all.take(der::ENUMERATED);
        all
    })?;
    let mut data = basic(body)?.take(der::SEQUENCE)?;
    data.option(0xa0)?;
    let (tag, mut who) = data.any()?;
    let who = match tag {
        0xa1 => name(who.0)?,
        _ => hex(who.take(der::OCTET_STRING)?.0),
    };
    Some((who, der::time(data.take(der::GENERALIZED_TIME)?.0)?))
}

impl Response {
    /// What it says, in lines: of whom, of which certificate, for how long.
    pub fn text(&self) -> String {
        let (who, produced) = responder(&self.der).unwrap_or_default();
        let serial = self.serial.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(&self.serial);
        let mut out = format!(
            "OCSP Response Data:\n    OCSP Response Status: successful (0x0)\n    \
             Response Type: Basic OCSP Response\n    Version: 1 (0x0)\n    Responder Id: {who}\n    \
             Produced At: {}\n    Responses:\n    Certificate ID:\n      Hash Algorithm: {}\n      \
             Issuer Name Hash: {}\n      Issuer Key Hash: {}\n      Serial Number: {}\n",
            time_text(produced),
            self.hash_name(),
            hex(&self.issuer_name),
            hex(&self.issuer_key),
            hex(serial),
        );
        let status = match self.status {
            Status::Good => "good".to_owned(),
            Status::Revoked => {
                let at = self.revoked_at.map_or_else(String::new, time_text);
                format!("revoked\n    Revocation Time: {at}")
            }
            Status::Unknown => "unknown".to_owned(),
        };
        let _ = writeln!(out, "    Cert Status: {status}\n    This Update: {}", time_text(self.this_update));
        if let Some(next) = self.next_update {
            let _ = writeln!(out, "    Next Update: {}", time_text(next));
        }
        out
    }
}
