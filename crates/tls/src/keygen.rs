//! Generates keys, certificate requests and certificates for an ACME client (configuration manual, 12.8).
//!
//! Generating an RSA key can take seconds, so callers use a separate thread.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use base::clock::{Date, WallTime};
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_RSA_SHA256, RsaKeySize,
    SanType, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::PrivatePkcs8KeyDer;

use crate::engine::key::PrivateKey;
use crate::load_error::LoadError;
use crate::store::Certificate;
use crate::x509::CertificateFields;

/// A kind of key to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NewKey {
    /// RSA of 2048, 3072 or 4096 bits.
    Rsa(u16),
    /// ECDSA on a curve.
    Ecdsa(Curve),
}

/// A curve for ECDSA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Curve {
    /// P-256.
    P256,
    /// P-384.
    #[default]
    P384,
    /// P-521.
    P521,
}

/// Generates a key.
///
/// # Errors
/// Key generation failed, or the RSA key size is not supported.
pub fn key(kind: NewKey) -> Result<PrivateKey, String> {
    let made = match kind {
        NewKey::Rsa(bits) => {
            let size = match bits {
                2048 => RsaKeySize::_2048,
                3072 => RsaKeySize::_3072,
                4096 => RsaKeySize::_4096,
                _ => return Err(format!("RSA keys of {bits} bits are not supported")),
            };
            KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size)
        }
        NewKey::Ecdsa(curve) => KeyPair::generate_for(match curve {
            Curve::P256 => &PKCS_ECDSA_P256_SHA256,
            Curve::P384 => &PKCS_ECDSA_P384_SHA384,
            Curve::P521 => &PKCS_ECDSA_P521_SHA512,
        }),
    };
    let made = made.map_err(|error| error.to_string())?;
    PrivateKey::from_der(made.serialized_der()).map_err(str::to_owned)
}

/// Whether RSA keys of this size are supported.
pub fn makes_rsa(bits: u16) -> bool {
    matches!(bits, 2048 | 3072 | 4096)
}

/// Returns a signer for a generated or loaded key.
fn signer(key: &PrivateKey) -> Result<KeyPair, String> {
    let der = PrivatePkcs8KeyDer::from(key.pkcs8());
    let kinds: [&'static SignatureAlgorithm; 4] =
        [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ECDSA_P521_SHA512, &PKCS_RSA_SHA256];
    let mut signers = kinds.iter().filter_map(|kind| KeyPair::from_pkcs8_der_and_sign_algo(&der, kind).ok());
    signers.next().ok_or_else(|| "this kind of key cannot be used for certificate requests".to_owned())
}

fn named(names: &[Box<str>], addresses: &[IpAddr]) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::new(Vec::new()).map_err(|error| error.to_string())?;
    for name in names {
        let name = name.to_string().try_into().map_err(|_| format!("`{name}` is not a host name"))?;
        params.subject_alt_names.push(SanType::DnsName(name));
    }
    params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

/// The maximum length of a common name in certificates (RFC 5280, appendix A).
const COMMON_NAME_MAX: usize = 64;

/// Creates a certificate request (PKCS #10) as DER. The first name is the common name.
///
/// # Errors
/// A name is invalid, or signing with this key is not supported.
pub fn request(key: &PrivateKey, names: &[Box<str>], addresses: &[IpAddr]) -> Result<Vec<u8>, String> {
    let mut params = named(names, addresses)?;
    if let Some(first) = names.first().filter(|name| name.len() <= COMMON_NAME_MAX) {
        params.distinguished_name.push(DnType::CommonName, &**first);
    }
    let made = params.serialize_request(&signer(key)?).map_err(|error| error.to_string())?;
    Ok(made.der().to_vec())
}

/// The common name of temporary certificates.
const EXPIRED: &str = "expired";

/// Creates a placeholder certificate until the real one is available. It has already expired, so clients reject it.
///
/// # Errors
/// Creating it failed.
pub fn temporary(name: &str) -> Result<Certificate, LoadError> {
    signed_by_itself(name, NewKey::Ecdsa(Curve::P256), (EXPIRED, &[]), -2..-1)
}

/// The addresses of this host.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The certificates that [`self_signed`] has created.
static KEPT: Mutex<BTreeMap<(Box<str>, NewKey), Certificate>> = Mutex::new(BTreeMap::new());

/// Returns a certificate for tests, for the name and the addresses of the local host. It is valid for a year. The process creates one
/// of each `name` and kind of key, so that a configuration that is read again has the same certificates.
///
/// # Errors
/// Creating it failed.
pub fn self_signed(name: &str, kind: NewKey) -> Result<Certificate, LoadError> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    match kept.entry((name.into(), kind)) {
        Entry::Occupied(known) => Ok(known.get().clone()),
        Entry::Vacant(place) => {
            let made = signed_by_itself(name, kind, ("localhost", &LOOPBACK), -1..365)?;
            Ok(place.insert(made).clone())
        }
    }
}

/// Creates a certificate with its key. `subject` is its common name and its addresses; the name is also an alternative name if there
/// are any. `days` are counted from today.
fn signed_by_itself(
    name: &str,
    kind: NewKey,
    (common_name, addresses): (&str, &[IpAddr]),
    days: Range<i64>,
) -> Result<Certificate, LoadError> {
    let make = || {
        let key = key(kind)?;
        let names = if addresses.is_empty() { &[][..] } else { &[common_name.into()] };
        let mut params = named(names, addresses)?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        let now = WallTime::now().seconds;
        let day = |from_now: i64| {
            let date = Date::utc(now + from_now * 86_400);
            date_time_ymd(date.year, date.month, date.day)
        };
        (params.not_before, params.not_after) = (day(days.start), day(days.end));
        let made = params.self_signed(&signer(&key)?).map_err(|error| error.to_string())?;
        Ok((Arc::from(made.der().as_ref()), key))
    };
    let failed = |error: String| LoadError::new(name, format!("cannot create a certificate: {error}"));
    let (certificate, key) = make().map_err(failed)?;
    Certificate::new(name, vec![certificate], key)
}

/// Whether a certificate was created by [`temporary`].
pub fn is_temporary(certificate: &Certificate) -> bool {
    let facts = certificate.chain.first().and_then(|der| CertificateFields::parse(der).ok());
    facts.is_some_and(|facts| {
        let name = facts.subject();
        facts.is_self_issued() && name.windows(EXPIRED.len()).any(|part| part == EXPIRED.as_bytes())
    })
}

/// Creates the certificate for a TLS challenge (RFC 8737, 3) for a name or an address. It contains the digest of the key
/// authorization.
///
/// # Errors
/// Creating it failed.
pub fn validation(name: &str, address: Option<IpAddr>, digest: &[u8]) -> Result<Certificate, String> {
    let key = key(NewKey::Ecdsa(Curve::P256))?;
    let mut params = match address {
        Some(address) => named(&[], &[address])?,
        None => named(&[name.into()], &[])?,
    };
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let made = params.self_signed(&signer(&key)?).map_err(|error| error.to_string())?;
    Certificate::new(name, vec![made.der().as_ref().into()], key).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    use super::*;

    #[test]
    fn requests_contain_the_given_names() {
        for kind in [
            NewKey::Ecdsa(Curve::P256),
            NewKey::Ecdsa(Curve::P384),
            NewKey::Ecdsa(Curve::P521),
            NewKey::Rsa(2048),
        ] {
            let own = key(kind).unwrap();
            let address = "192.0.2.1".parse().unwrap();
            let der = request(&own, &["a.test".into(), "*.b.test".into()], &[address]).unwrap();
            let (rest, read) = X509CertificationRequest::from_der(&der).unwrap();
            assert!(rest.is_empty(), "{kind:?}");
            let subject = read.certification_request_info.subject.to_string();
            assert_eq!(subject, "CN=a.test");
            let text = format!("{:?}", read.requested_extensions().unwrap().collect::<Vec<_>>());
            assert!(text.contains("*.b.test") && text.contains("192, 0, 2, 1"), "{text}");
        }
        assert!(key(NewKey::Rsa(1024)).is_err());
    }

    #[test]
    fn a_temporary_certificate_has_expired() {
        let made = temporary("a.pem").unwrap();
        let facts = CertificateFields::parse(&made.chain[0]).unwrap();
        let (from, until) = facts.validity();
        assert!(from < until && until < WallTime::now().seconds);
        assert_eq!(made.key.belongs_to(&made.chain[0]), Some(true));
        assert!(is_temporary(&made));
    }

    #[test]
    fn a_self_signed_certificate_is_valid_for_the_local_host() {
        for kind in [NewKey::Ecdsa(Curve::P256), NewKey::Ecdsa(Curve::P384), NewKey::Rsa(2048)] {
            let made = self_signed("a.pem", kind).unwrap();
            let facts = CertificateFields::parse(&made.chain[0]).unwrap();
            let (from, until) = facts.validity();
            assert!((from..until).contains(&WallTime::now().seconds));
            assert_eq!(made.key.belongs_to(&made.chain[0]), Some(true));
            let again = self_signed("a.pem", kind).unwrap();
            assert!(again.chain == made.chain && self_signed("b.pem", kind).unwrap().chain != made.chain);
            assert!(!is_temporary(&made) && made.names.contains(&"localhost".into()), "{kind:?}");
        }
    }
}
