//! Verifies that an OCSP response was signed by the certificate's issuer, or by a responder that the issuer has authorized (RFC
//! 6960, 3.2 and 4.2.2.2).

use aws_lc_rs::digest;

use crate::der::{self, Der};
use crate::engine::verify::check;
use crate::ocsp::{Response, basic};
use crate::verify::Signed;
use crate::x509::{self, CertificateFields};

/// The maximum number of accompanying certificates that are considered.
const BESIDE_MAX: usize = 8;

const UNREADABLE: &str = "OCSP response: the signature cannot be parsed";

/// A signature, its algorithm, and the signed message.
struct Signature<'a> {
    message: &'a [u8],
    algorithm: &'a [u8],
    bits: &'a [u8],
    /// The claimed signer.
    responder: Responder<'a>,
    /// Accompanying certificates, as DER.
    beside: Vec<&'a [u8]>,
}

enum Responder<'a> {
    Name(&'a [u8]),
    /// The SHA-1 hash of the key.
    Key(&'a [u8]),
}

impl Responder<'_> {
    fn is(&self, facts: &CertificateFields<'_>) -> bool {
        match self {
            Self::Name(name) => *name == facts.subject(),
            Self::Key(hash) => {
                let own = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, facts.key_bits());
                own.as_ref() == *hash
            }
        }
    }
}

fn signature(der: &[u8]) -> Option<Signature<'_>> {
    let mut body = Der(der).take(der::SEQUENCE)?;
    body.take(der::ENUMERATED)?;
    let mut basic = basic(body)?;
    let message = basic.take_whole(der::SEQUENCE)?;
    let algorithm = basic.take(der::SEQUENCE)?.0;
    let bits = basic.take(der::BIT_STRING)?.0.strip_prefix(&[0])?;
    let mut beside = Vec::new();
    if let Some(mut list) = basic.option(0xa0)? {
        let mut list = list.take(der::SEQUENCE)?;
        while !list.is_empty() && beside.len() < BESIDE_MAX {
            beside.push(list.take_whole(der::SEQUENCE)?);
        }
    }
    let mut data = Der(message).take(der::SEQUENCE)?;
    data.option(0xa0)?;
    let (tag, mut who) = data.any()?;
    let responder = match tag {
        0xa1 => Responder::Name(who.take_whole(der::SEQUENCE)?),
        0xa2 => Responder::Key(who.take(der::OCTET_STRING)?.0),
        _ => return None,
    };
    Some(Signature { message, algorithm, bits, responder, beside })
}

/// Whether a signature was made with the key of `signer`.
fn is_by(signer: &CertificateFields<'_>, message: &[u8], algorithm: &[u8], signature: &[u8]) -> bool {
    let Some((key_algorithm, key)) = x509::key_parts(signer.key_info()) else { return false };
    check(&Signed { algorithm, key_algorithm, key, message, signature })
}

/// Whether a certificate, as DER, was signed by `issuer`.
fn issued(issuer: &CertificateFields<'_>, der: &[u8]) -> bool {
    let parts = || {
        let mut parts = Der(der).take(der::SEQUENCE)?;
        let message = parts.take_whole(der::SEQUENCE)?;
        let algorithm = parts.take(der::SEQUENCE)?.0;
        Some((message, algorithm, parts.take(der::BIT_STRING)?.0.strip_prefix(&[0])?))
    };
    parts().is_some_and(|(message, algorithm, bits)| is_by(issuer, message, algorithm, bits))
}

impl Response {
    /// Verifies that the response was signed by the certificate's issuer, given as DER, or by an authorized responder, at `now` in
    /// seconds since 1970.
    ///
    /// # Errors
    /// The reason not to trust the response.
    pub fn verify(&self, issuer: &[u8], now: i64) -> Result<(), &'static str> {
        let signature = signature(&self.der).ok_or(UNREADABLE)?;
        let issuer = CertificateFields::parse(issuer)?;
        let Signature { message, algorithm, bits, responder, beside } = signature;
        if responder.is(&issuer) {
            let signed = is_by(&issuer, message, algorithm, bits);
            return if signed { Ok(()) } else { Err("OCSP response: the issuer's signature is invalid") };
        }
        let mut why = "OCSP response: the signer is neither the issuer nor has a certificate from it";
        for der in beside {
            let Ok(facts) = CertificateFields::parse(der) else { continue };
            if !responder.is(&facts) {
                continue;
            }
            let (begin, end) = facts.validity();
            why = if facts.issuer() != issuer.subject() || !issued(&issuer, der) {
                "OCSP response: the signer's certificate was not issued by the issuer"
            } else if !facts.signs_ocsp() {
                "OCSP response: the signer is not authorized to sign OCSP responses"
            } else if now < begin || end < now {
                "OCSP response: the signer's certificate is not currently valid"
            } else if !is_by(&facts, message, algorithm, bits) {
                "OCSP response: the signer's signature is invalid"
            } else {
                return Ok(());
            };
        }
        Err(why)
    }
}
