//! A certificate as used by verification.

use std::rc::Rc;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ExtendedKeyUsage, KeyUsage, NSCertType, NameConstraints, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Extension};

use super::{Check, Purpose, Signed};
use crate::der::{self, Der};
use crate::x509;

/// A parsed certificate, cheap to clone.
#[derive(Clone)]
pub(super) struct Parsed<'a> {
    der: &'a [u8],
    certificate: Rc<X509Certificate<'a>>,
}

/// The kind of a CA certificate (X509_check_ca(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authority {
    None,
    /// A CA according to the basic constraints.
    Proper,
    /// A version 1 root, or a CA that is only declared by Netscape's extension or the key usage.
    Old,
}

impl Authority {
    pub(super) fn is_proper(self) -> bool {
        self == Self::Proper
    }

    pub(super) fn is_any(self) -> bool {
        self != Self::None
    }
}

impl<'a> Parsed<'a> {
    pub(super) fn new(der: &'a [u8]) -> Option<Self> {
        match X509Certificate::from_der(der) {
            Ok(([], certificate)) => Some(Self { der, certificate: Rc::new(certificate) }),
            _ => None,
        }
    }

    pub(super) fn der(&self) -> &'a [u8] {
        self.der
    }

    pub(super) fn subject(&self) -> &[u8] {
        self.certificate.subject().as_raw()
    }

    pub(super) fn issuer(&self) -> &[u8] {
        self.certificate.issuer().as_raw()
    }

    pub(super) fn certificate(&self) -> &X509Certificate<'a> {
        &self.certificate
    }

    /// Returns the start and end of the validity, in seconds since 1970.
    pub(super) fn validity(&self) -> (i64, i64) {
        let validity = self.certificate.validity();
        (validity.not_before.timestamp(), validity.not_after.timestamp())
    }

    pub(super) fn is_valid_at(&self, now: i64) -> bool {
        let (begin, end) = self.validity();
        (begin..=end).contains(&now)
    }

    fn extension<T>(&self, pick: impl Fn(&'_ ParsedExtension<'a>) -> Option<T>) -> Option<T> {
        self.certificate.extensions().iter().find_map(|one| pick(one.parsed_extension()))
    }

    fn key_usage(&self) -> Option<KeyUsage> {
        self.extension(|one| if let ParsedExtension::KeyUsage(usage) = one { Some(*usage) } else { None })
    }

    fn extended_usage(&self) -> Option<ExtendedKeyUsage<'a>> {
        self.extension(|one| {
            if let ParsedExtension::ExtendedKeyUsage(usage) = one { Some(usage.clone()) } else { None }
        })
    }

    fn netscape_type(&self) -> Option<u8> {
        fn bits(kind: &NSCertType) -> u8 {
            u8::from(kind.ssl_client()) | u8::from(kind.ssl_server()) << 1 | u8::from(kind.ssl_ca()) << 2
        }
        self.extension(
            |one| if let ParsedExtension::NSCertType(kind) = one { Some(bits(kind)) } else { None },
        )
    }

    /// Returns whether the certificate may be a CA, and the path length limit.
    fn basic(&self) -> Option<(bool, Option<u32>)> {
        self.extension(|one| match one {
            ParsedExtension::BasicConstraints(basic) => Some((basic.ca, basic.path_len_constraint)),
            _ => None,
        })
    }

    pub(super) fn name_constraints(&self) -> Option<NameConstraints<'a>> {
        self.extension(
            |one| if let ParsedExtension::NameConstraints(all) = one { Some(all.clone()) } else { None },
        )
    }

    /// Returns how many CA certificates may be between this one and the peer's certificate.
    pub(super) fn path_length(&self) -> Option<u32> {
        self.basic()?.1
    }

    fn subject_key(&self) -> Option<&'a [u8]> {
        self.extension(
            |one| if let ParsedExtension::SubjectKeyIdentifier(id) = one { Some(id.0) } else { None },
        )
    }

    /// Whether the authority key identifier matches `issuer`.
    fn points_to(&self, issuer: &Self) -> bool {
        let pointed = self.extension(|one| match one {
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                Some((id.key_identifier.as_ref().map(|id| id.0), id.authority_cert_serial))
            }
            _ => None,
        });
        let Some((key, serial)) = pointed else { return true };
        let same = |expected: Option<&[u8]>, is: Option<&[u8]>| {
            expected.zip(is).is_none_or(|(expected, is)| expected == is)
        };
        same(key, issuer.subject_key()) && same(serial, Some(issuer.certificate.raw_serial()))
    }

    /// Whether this certificate may have issued `other`, by names and identifiers. The key usage is checked later.
    pub(super) fn issued(&self, other: &Self) -> bool {
        self.subject() == other.issuer() && other.points_to(self)
    }

    /// Whether the key may sign certificates.
    pub(super) fn may_sign(&self) -> bool {
        self.key_usage().is_none_or(|usage| usage.key_cert_sign())
    }

    pub(super) fn is_self_issued(&self) -> bool {
        self.subject() == self.issuer()
    }

    /// Whether the certificate claims to be self-signed.
    pub(super) fn is_self_signed(&self) -> bool {
        self.is_self_issued() && self.points_to(self)
    }

    pub(super) fn authority(&self) -> Authority {
        let usage = self.key_usage();
        if usage.as_ref().is_some_and(|usage| !usage.key_cert_sign()) {
            return Authority::None;
        }
        match self.basic() {
            Some((true, _)) => Authority::Proper,
            Some((false, _)) => Authority::None,
            None => {
                let is_old_root = self.certificate.version().0 == 0 && self.is_self_signed();
                let is_netscapes = self.netscape_type().is_some_and(|kind| kind & 4 != 0);
                if is_old_root || usage.is_some() || is_netscapes { Authority::Old } else { Authority::None }
            }
        }
    }

    /// Whether the certificate may be used for `purpose`, as a CA or as the peer's own (X509_check_purpose(3)).
    pub(super) fn serves(&self, purpose: Purpose, as_authority: bool) -> bool {
        let is_client = purpose == Purpose::Client;
        if let Some(usage) = self.extended_usage()
            && !(if is_client { usage.client_auth } else { usage.server_auth || is_gated(&usage) })
        {
            return false;
        }
        let netscape = self.netscape_type();
        if as_authority {
            let authority = self.authority();
            // If no other extension allows the purpose, Netscape's own bit is required.
            return authority.is_any() && netscape.is_none_or(|kind| authority.is_proper() || kind & 4 != 0);
        }
        let allowed = self.key_usage().is_none_or(|usage| {
            usage.digital_signature() || usage.key_agreement() || (!is_client && usage.key_encipherment())
        });
        allowed && netscape.is_none_or(|kind| kind & if is_client { 1 } else { 2 } != 0)
    }

    pub(super) fn has_unknown_critical(&self) -> bool {
        self.certificate.extensions().iter().any(is_unknown_critical)
    }

    /// Whether the key has less than 112 bits of security.
    pub(super) fn has_weak_key(&self) -> bool {
        use x509_parser::public_key::PublicKey;
        match self.certificate.public_key().parsed() {
            Ok(PublicKey::RSA(key)) => key.key_size() < 2048,
            Ok(PublicKey::EC(key)) => key.key_size() < 224,
            Ok(PublicKey::DSA(_)) => true,
            _ => false,
        }
    }

    /// Whether the digest of the signature has less than 112 bits of security.
    pub(super) fn has_weak_digest(&self) -> bool {
        matches!(
            &*self.certificate.signature_algorithm.algorithm.to_id_string(),
            "1.2.840.113549.1.1.4" | "1.2.840.113549.1.1.5" | "1.2.840.10045.4.1" | "1.2.840.10040.4.3"
        )
    }

    /// Returns the key: algorithm and bits, as contents of their DER.
    pub(super) fn key(&self) -> Option<(&[u8], &[u8])> {
        x509::key_parts(self.certificate.public_key().raw)
    }

    /// Whether the certificate was signed with the key of `issuer`.
    pub(super) fn is_signed_by(&self, issuer: &Self, check: Check) -> bool {
        is_signed(self.der, issuer, check)
    }

    /// Whether the key may sign revocation lists.
    pub(super) fn may_sign_lists(&self) -> bool {
        self.key_usage().is_none_or(|usage| usage.crl_sign())
    }
}

/// Whether a certificate or a revocation list was signed with the key of `issuer`.
pub(super) fn is_signed(der: &[u8], issuer: &Parsed<'_>, check: impl Fn(&Signed<'_>) -> bool) -> bool {
    let checked = || {
        let mut outer = Der(der).take(der::SEQUENCE)?;
        let message = outer.take_whole(der::SEQUENCE)?;
        let algorithm = outer.take(der::SEQUENCE)?.0;
        let signature = outer.take(der::BIT_STRING)?.0.strip_prefix(&[0])?;
        let (key_algorithm, key) = issuer.key()?;
        let signed = Signed { algorithm, key_algorithm, key, message, signature };
        Some(inner_algorithm(message)? == algorithm && check(&signed))
    };
    checked().unwrap_or(false)
}

/// Returns the algorithm in the signed part, which is the first sequence.
fn inner_algorithm(message: &[u8]) -> Option<&[u8]> {
    let mut fields = Der(message).take(der::SEQUENCE)?;
    loop {
        let (tag, value) = fields.any()?;
        if tag == der::SEQUENCE {
            return Some(value.0);
        }
    }
}

/// Whether the usage is step-up, which implies server authentication.
fn is_gated(usage: &ExtendedKeyUsage<'_>) -> bool {
    let gated = ["1.3.6.1.4.1.311.10.3.3", "2.16.840.1.113730.4.1"];
    usage.other.iter().any(|oid| gated.contains(&&*oid.to_id_string()))
}

/// Whether the extension is critical and not supported.
pub(super) fn is_unknown_critical(extension: &X509Extension<'_>) -> bool {
    extension.critical
        && !matches!(
            extension.parsed_extension(),
            ParsedExtension::KeyUsage(_)
                | ParsedExtension::SubjectAlternativeName(_)
                | ParsedExtension::BasicConstraints(_)
                | ParsedExtension::CertificatePolicies(_)
                | ParsedExtension::CRLDistributionPoints(_)
                | ParsedExtension::ExtendedKeyUsage(_)
                | ParsedExtension::PolicyConstraints(_)
                | ParsedExtension::NameConstraints(_)
                | ParsedExtension::PolicyMappings(_)
                | ParsedExtension::InhibitAnyPolicy(_)
                | ParsedExtension::NSCertType(_)
        )
}
