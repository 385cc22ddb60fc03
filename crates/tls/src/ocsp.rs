//! OCSP responses (RFC 6960), as needed for stapling: their certificate, status and validity; and the requests for them.
//!
//! Signatures are only verified for responses from the network ([`Response::verify`]). Responses that an operator provides are not
//! verified, because clients verify them anyway.

use std::sync::Arc;

use aws_lc_rs::digest;

use crate::der::{self, Der, put};
use crate::x509;

/// Maximum clock skew, in seconds.
const SKEW: i64 = 300;

/// 1.3.6.1.5.5.7.48.1.1
const BASIC: [u8; 9] = [0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
const SHA1: [u8; 5] = [0x2b, 0x0e, 3, 2, 0x1a];
const SHA256: [u8; 9] = [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];

/// A certificate's status in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateStatus {
    /// The certificate was not revoked.
    Good,
    /// The certificate was revoked.
    Revoked,
    /// The responder has no information about the certificate.
    Unknown,
}

/// A response about one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The whole response, as stapled.
    pub der: Arc<[u8]>,
    /// The certificate's status.
    pub status: CertificateStatus,
    /// Start of the validity, in seconds since 1970.
    pub this_update: i64,
    /// End of the validity.
    pub next_update: Option<i64>,
    /// The serial number of the certificate.
    pub serial: Box<[u8]>,
    /// When the certificate was revoked.
    pub revoked_at: Option<i64>,
    hash: Box<[u8]>,
    pub(crate) issuer_name: Box<[u8]>,
    pub(crate) issuer_key: Box<[u8]>,
}

impl Response {
    /// Parses a response.
    ///
    /// # Errors
    /// The response is invalid, reports a failure of the responder, or is about several certificates. The text has HAProxy's
    /// wording.
    pub fn parse(der: &[u8]) -> Result<Self, &'static str> {
        let unreadable = "Unable to parse OCSP response";
        let mut all = Der(der);
        let mut body = all.take(der::SEQUENCE).filter(|_| all.is_empty()).ok_or(unreadable)?;
        let status = body.take(der::ENUMERATED).ok_or(unreadable)?;
        if status.0 != [0] {
            return Err("OCSP response status not successful");
        }
        let basic = basic(body).ok_or(unreadable)?;
        let mut singles = singles(basic).ok_or(unreadable)?;
        let single = singles.take(der::SEQUENCE).ok_or(unreadable)?;
        if !singles.is_empty() {
            return Err("OCSP response ignored because contains multiple single responses");
        }
        Self::single(der, single).ok_or(unreadable)
    }

    fn single(all: &[u8], mut single: Der<'_>) -> Option<Self> {
        let mut id = single.take(der::SEQUENCE)?;
        let hash = id.take(der::SEQUENCE)?.take(der::OID)?.0;
        let issuer_name = id.take(der::OCTET_STRING)?.0;
        let issuer_key = id.take(der::OCTET_STRING)?.0;
        let serial = id.take(der::INTEGER)?.0;
        let (tag, mut fields) = single.any()?;
        let (status, revoked_at) = match tag & 0x1f {
            0 => (CertificateStatus::Good, None),
            1 => (
                CertificateStatus::Revoked,
                fields.take(der::GENERALIZED_TIME).and_then(|time| der::time(time.0)),
            ),
            _ => (CertificateStatus::Unknown, None),
        };
        let this_update = der::time(single.take(der::GENERALIZED_TIME)?.0)?;
        let next_update = match single.option(0xa0)? {
            Some(mut next) => Some(der::time(next.take(der::GENERALIZED_TIME)?.0)?),
            None => None,
        };
        Some(Self {
            der: all.into(),
            status,
            revoked_at,
            this_update,
            next_update,
            serial: serial.into(),
            hash: hash.into(),
            issuer_name: issuer_name.into(),
            issuer_key: issuer_key.into(),
        })
    }

    /// Checks that the response may be stapled to `certificate` from `issuer`, both as DER, at `now`.
    ///
    /// # Errors
    /// The reason, with HAProxy's wording.
    pub fn check(&self, certificate: &[u8], issuer: &[u8], now: i64) -> Result<(), &'static str> {
        match self.status {
            // HAProxy also staples the status "revoked", so that clients learn about it.
            CertificateStatus::Good | CertificateStatus::Revoked => {}
            CertificateStatus::Unknown => return Err("OCSP single response: certificate status is unknown"),
        }
        let next = self.next_update.ok_or("OCSP single response: missing nextupdate")?;
        if now + SKEW < self.this_update || next + SKEW < now {
            return Err("OCSP single response: no longer valid.");
        }
        let other = "OCSP single response: Certificate ID does not match certificate and issuer";
        if self.is_about(certificate, issuer) { Ok(()) } else { Err(other) }
    }

    /// Whether the response is about `certificate` from `issuer`, both as DER.
    pub fn is_about(&self, certificate: &[u8], issuer: &[u8]) -> bool {
        let (Ok(own), Ok(issuer)) =
            (x509::CertificateFields::parse(certificate), x509::CertificateFields::parse(issuer))
        else {
            return false;
        };
        let algorithm = match &*self.hash {
            hash if *hash == SHA1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            hash if *hash == SHA256 => &digest::SHA256,
            _ => return false,
        };
        let is_of = |hash: &[u8], bytes: &[u8]| digest::digest(algorithm, bytes).as_ref() == hash;
        *self.serial == *own.serial()
            && is_of(&self.issuer_name, issuer.subject())
            && is_of(&self.issuer_key, issuer.key_bits())
    }

    /// Returns the hash algorithm of the certificate's identifier.
    pub(crate) fn hash_name(&self) -> &'static str {
        if *self.hash == SHA256 { "sha256" } else { "sha1" }
    }

    /// Whether the response is still valid at `now`.
    pub fn is_current(&self, now: i64) -> bool {
        self.next_update.is_some_and(|next| now <= next)
    }
}

/// Returns a certificate's identifier in OCSP messages (RFC 6960, 4.1.1: `CertID`, with SHA-1). The result and both arguments are
/// DER.
pub(crate) fn certificate_id(certificate: &[u8], issuer: &[u8]) -> Option<Vec<u8>> {
    let [name, key] = issuer_hashes(issuer)?;
    let mut algorithm = Vec::new();
    put(&mut algorithm, der::OID, &SHA1);
    put(&mut algorithm, der::NULL, &[]);
    let mut contents = Vec::new();
    put(&mut contents, der::SEQUENCE, &algorithm);
    put(&mut contents, der::OCTET_STRING, &name);
    put(&mut contents, der::OCTET_STRING, &key);
    put(&mut contents, der::INTEGER, x509::CertificateFields::parse(certificate).ok()?.serial());
    let mut id = Vec::new();
    put(&mut id, der::SEQUENCE, &contents);
    Some(id)
}

/// Returns the request for a certificate's status (RFC 6960, 4.1.1). The result and both arguments are DER. The request has no
/// nonce, because responders usually send pre-signed responses.
pub fn request(certificate: &[u8], issuer: &[u8]) -> Option<Vec<u8>> {
    let mut question = certificate_id(certificate, issuer)?;
    // Four levels: the request, the list of requests, the data to be signed, the message.
    for _ in 0..4 {
        let mut outer = Vec::with_capacity(question.len() + 4);
        put(&mut outer, der::SEQUENCE, &question);
        question = outer;
    }
    Some(question)
}

/// Returns the SHA-1 hashes of an issuer's name and key.
pub(crate) fn issuer_hashes(issuer: &[u8]) -> Option<[Vec<u8>; 2]> {
    let issuer = x509::CertificateFields::parse(issuer).ok()?;
    let sha1 = |bytes: &[u8]| digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec();
    Some([sha1(issuer.subject()), sha1(issuer.key_bits())])
}

/// Returns a certificate's serial number without leading zeros.
pub(crate) fn serial(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(x509::CertificateFields::parse(certificate).ok()?.serial_number().to_vec())
}

/// Returns the basic response inside the envelope.
pub(crate) fn basic(mut body: Der<'_>) -> Option<Der<'_>> {
    let mut bytes = body.take(0xa0)?.take(der::SEQUENCE)?;
    if bytes.take(der::OID)?.0 != BASIC {
        return None;
    }
    bytes.take(der::OCTET_STRING)?.take(der::SEQUENCE)
}

/// Returns the single responses in a basic response.
fn singles(mut basic: Der<'_>) -> Option<Der<'_>> {
    let mut data = basic.take(der::SEQUENCE)?;
    data.option(0xa0)?;
    // The responder's identity: a name or a key.
    let (who, _) = data.any()?;
    if !matches!(who, 0xa1 | 0xa2) {
        return None;
    }
    data.take(der::GENERALIZED_TIME)?;
    data.take(der::SEQUENCE)
}
