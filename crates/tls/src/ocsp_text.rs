//! Formats an OCSP response as lines, like `openssl ocsp -text` (management manual, 9.3: `show ssl ocsp-response`). Empty lines
//! are replaced with a space, because an empty line would end the output of the runtime socket.

use std::fmt::Write;

use x509_parser::asn1_rs::Oid;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use crate::crl::{self, time_text};
use crate::der::{self, Der};
use crate::ocsp::{CertificateStatus, Response, basic};
use crate::{dn, legacy, pem, x509};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Formats an object identifier as numbers.
fn dotted(oid: &[u8]) -> String {
    Oid::new(oid.into()).to_id_string()
}

/// Formats a name as in OpenSSL's output: `C = FR, CN = ocsp.test`.
fn name(der: &[u8]) -> Option<String> {
    let (_, name) = X509Name::from_der(der).ok()?;
    let attributes = name.iter_attributes().map(|one| {
        let oid = one.attr_type().to_id_string();
        format!("{} = {}", dn::short(&oid), String::from_utf8_lossy(one.as_slice()))
    });
    Some(attributes.collect::<Vec<_>>().join(", "))
}

/// The parts of a response that are not needed for stapling.
struct AnswerParts<'a> {
    /// The responder: a name or a key hash.
    who: String,
    /// When the response was produced, in seconds since 1970.
    produced: i64,
    /// Extensions of the single response, and of the whole.
    extensions: [Vec<Extension<'a>>; 2],
    /// The revocation reason.
    reason: Option<u8>,
    /// The object identifier of the algorithm, as DER, and the signature.
    signature: (&'a [u8], &'a [u8]),
    certificates: Vec<&'a [u8]>,
}

struct Extension<'a> {
    oid: &'a [u8],
    is_critical: bool,
    value: &'a [u8],
}

fn parts(der: &[u8]) -> Option<AnswerParts<'_>> {
    let mut body = Der(der).take(der::SEQUENCE)?;
    body.take(der::ENUMERATED)?;
    let mut basic = basic(body)?;
    let mut data = basic.take(der::SEQUENCE)?;
    data.option(0xa0)?;
    let (tag, mut who) = data.any()?;
    let who = match tag {
        0xa1 => name(who.0)?,
        _ => hex(who.take(der::OCTET_STRING)?.0),
    };
    let produced = der::time(data.take(der::GENERALIZED_TIME)?.0)?;
    let mut single = data.take(der::SEQUENCE)?.take(der::SEQUENCE)?;
    single.take(der::SEQUENCE)?;
    let (tag, mut fields) = single.any()?;
    let mut reason = None;
    if tag & 0x1f == 1 {
        fields.take(der::GENERALIZED_TIME)?;
        let code = fields.option(0xa0)?.and_then(|mut code| code.take(der::ENUMERATED));
        reason = code.and_then(|code| code.0.last().copied());
    }
    single.take(der::GENERALIZED_TIME)?;
    single.option(0xa0)?;
    let of_single = extensions(single.option(0xa1)?)?;
    let of_all = extensions(data.option(0xa1)?)?;
    let algorithm = basic.take(der::SEQUENCE)?.take(der::OID)?.0;
    let signature = basic.take(der::BIT_STRING)?.0.split_first()?.1;
    let mut certificates = Vec::new();
    if let Some(mut all) = basic.option(0xa0)? {
        let mut all = all.take(der::SEQUENCE)?;
        while !all.is_empty() {
            certificates.push(all.take_whole(der::SEQUENCE)?);
        }
    }
    let extensions = [of_single, of_all];
    Some(AnswerParts { who, produced, extensions, reason, signature: (algorithm, signature), certificates })
}

fn extensions(all: Option<Der<'_>>) -> Option<Vec<Extension<'_>>> {
    let mut found = Vec::new();
    let Some(mut all) = all else { return Some(found) };
    let mut all = all.take(der::SEQUENCE)?;
    while !all.is_empty() {
        let mut one = all.take(der::SEQUENCE)?;
        let oid = one.take(der::OID)?.0;
        let is_critical = one.option(der::BOOLEAN)?.is_some_and(|flag| flag.0 != [0]);
        found.push(Extension { oid, is_critical, value: one.take(der::OCTET_STRING)?.0 });
    }
    Some(found)
}

/// Returns OpenSSL's name of a revocation reason (RFC 5280, 5.3.1).
fn reason_name(code: u8) -> &'static str {
    match code {
        0 => "unspecified",
        1 => "keyCompromise",
        2 => "cACompromise",
        3 => "affiliationChanged",
        4 => "superseded",
        5 => "cessationOfOperation",
        6 => "certificateHold",
        8 => "removeFromCRL",
        9 => "privilegeWithdrawn",
        10 => "aACompromise",
        _ => "(UNKNOWN)",
    }
}

/// 1.3.6.1.5.5.7.48.1.2
const NONCE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 2];

fn put_extensions(out: &mut String, title: &str, indent: usize, all: &[Extension<'_>]) {
    if all.is_empty() {
        return;
    }
    let _ = writeln!(out, "{:indent$}{title}:", "");
    for one in all {
        let name = if one.oid == NONCE { "OCSP Nonce".to_owned() } else { dotted(one.oid) };
        let critical = if one.is_critical { "critical" } else { "" };
        let _ = writeln!(out, "{:in1$}{name}: {critical}", "", in1 = indent + 4);
        let _ = writeln!(out, "{:in2$}{}", "", hex(one.value), in2 = indent + 8);
    }
}

/// Signature bytes per line.
const ON_A_LINE: usize = 18;

fn put_signature(out: &mut String, (algorithm, signature): (&[u8], &[u8])) {
    let name = crl::long(&x509::algorithm(&dotted(algorithm)));
    let _ = write!(out, "    Signature Algorithm: {name}\n    Signature Value:");
    for (at, byte) in signature.iter().enumerate() {
        let before = if at % ON_A_LINE == 0 { "\n        " } else { "" };
        let behind = if at + 1 < signature.len() { ":" } else { "" };
        let _ = write!(out, "{before}{byte:02x}{behind}");
    }
    out.push('\n');
}

impl Response {
    /// Formats the response as lines: responder, certificate, validity, and signature.
    pub fn text(&self) -> String {
        let Some(parts) = parts(&self.der) else {
            return "OCSP Response Data:\n    Not shown: a part of it is malformed\n".to_owned();
        };
        let serial = self.serial.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(&self.serial);
        let mut out = format!(
            "OCSP Response Data:\n    OCSP Response Status: successful (0x0)\n    \
             Response Type: Basic OCSP Response\n    Version: 1 (0x0)\n    Responder Id: {}\n    \
             Produced At: {}\n    Responses:\n    Certificate ID:\n      Hash Algorithm: {}\n      \
             Issuer Name Hash: {}\n      Issuer Key Hash: {}\n      Serial Number: {}\n",
            parts.who,
            time_text(parts.produced),
            self.hash_name(),
            hex(&self.issuer_name),
            hex(&self.issuer_key),
            hex(serial),
        );
        let status = match self.status {
            CertificateStatus::Good => "good".to_owned(),
            CertificateStatus::Revoked => {
                let at = self.revoked_at.map_or_else(String::new, time_text);
                format!("revoked\n    Revocation Time: {at}")
            }
            CertificateStatus::Unknown => "unknown".to_owned(),
        };
        let _ = writeln!(out, "    Cert Status: {status}");
        if let Some(code) = parts.reason {
            let _ = writeln!(out, "    Revocation Reason: {} (0x{code:x})", reason_name(code));
        }
        let _ = writeln!(out, "    This Update: {}", time_text(self.this_update));
        if let Some(next) = self.next_update {
            let _ = writeln!(out, "    Next Update: {}", time_text(next));
        }
        let [of_single, of_all] = &parts.extensions;
        put_extensions(&mut out, "Response Single Extensions", 8, of_single);
        out.push_str(" \n");
        put_extensions(&mut out, "Response Extensions", 4, of_all);
        put_signature(&mut out, parts.signature);
        for der in parts.certificates {
            out.push_str(&legacy::certificate_text(der).unwrap_or_default());
            out.push_str(&pem::block("CERTIFICATE", der));
        }
        out
    }
}
