//! The subset of DER that keys and certificates need (X.690; RFC 5280, 4.1; RFC 5958; RFC 8017, A.1): iteration over elements, and
//! the wrapping that the cryptographic library requires around a key.

use super::{Curve, PrivateKey, PublicKey, curve_key, rsa};

const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// Object identifiers of algorithms and curves, in DER.
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const CURVES: &[(&[u8], Curve)] = &[
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07], Curve::P256),
    (&[0x2b, 0x81, 0x04, 0x00, 0x22], Curve::P384),
    (&[0x2b, 0x81, 0x04, 0x00, 0x23], Curve::P521),
];

/// The first element: its tag and contents, and the rest of the input.
pub(super) fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        ..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((*tag, contents, rest))
}

/// The contents of the first element, which must have the tag `wanted`, and the rest of the input.
pub(super) fn take(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    element(der).filter(|(tag, ..)| *tag == wanted).map(|(_, contents, rest)| (contents, rest))
}

/// The key of a `SubjectPublicKeyInfo`: a bit string, which begins with the number of unused bits.
pub(super) fn public_key(der: &[u8]) -> Option<PublicKey> {
    let (info, _) = take(der, SEQUENCE)?;
    let (_algorithm, rest) = take(info, SEQUENCE)?;
    let (bits, _) = take(rest, BITS)?;
    Some(PublicKey(bits.get(1..)?.into()))
}

/// The type and size of a `SubjectPublicKeyInfo`'s key: `RSA2048`, `EC256`.
pub(super) fn key_kind(der: &[u8]) -> Option<String> {
    let (info, _) = take(der, SEQUENCE)?;
    let (algorithm, _) = take(info, SEQUENCE)?;
    match take(algorithm, OBJECT)? {
        (RSA_ENCRYPTION, _) => {
            let key = public_key(der)?;
            let (numbers, _) = take(&key.0, SEQUENCE)?;
            let modulus = take(numbers, INTEGER)?.0;
            let modulus = &modulus[modulus.iter().take_while(|byte| **byte == 0).count()..];
            let unused = modulus.first()?.leading_zeros() as usize;
            Some(format!("RSA{}", modulus.len() * 8 - unused))
        }
        (EC_PUBLIC_KEY, parameters) => {
            let bits = match curve(take(parameters, OBJECT)?.0)? {
                Curve::P256 => 256,
                Curve::P384 => 384,
                Curve::P521 => 521,
            };
            Some(format!("EC{bits}"))
        }
        _ => None,
    }
}

/// The public key of a certificate, which follows version, serial number, signature algorithm, issuer, validity and subject.
pub(super) fn certificate_key(der: &[u8]) -> Option<PublicKey> {
    let (certificate, _) = take(der, SEQUENCE)?;
    let (mut rest, _) = take(certificate, SEQUENCE)?;
    if rest.first() == Some(&0xa0) {
        rest = element(rest)?.2;
    }
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE] {
        rest = take(rest, tag)?.1;
    }
    public_key(rest)
}

fn curve(object: &[u8]) -> Option<Curve> {
    CURVES.iter().find(|(name, _)| *name == object).map(|(_, curve)| *curve)
}

/// A key in PKCS #8: a version, the algorithm, the key.
pub(super) fn private_key(der: &[u8]) -> Option<PrivateKey> {
    let (info, _) = take(der, SEQUENCE)?;
    let (_version, rest) = take(info, INTEGER)?;
    let (algorithm, _) = take(rest, SEQUENCE)?;
    let (name, parameters) = take(algorithm, OBJECT)?;
    match name {
        RSA_ENCRYPTION => rsa(der),
        EC_PUBLIC_KEY => curve_key(curve(take(parameters, OBJECT)?.0)?, der),
        _ => None,
    }
}

/// The curve of a SEC 1 key: a version, the secret, the curve under tag 0.
pub(super) fn curve_of_sec1(der: &[u8]) -> Option<Curve> {
    let (key, _) = take(der, SEQUENCE)?;
    let (_version, rest) = take(key, INTEGER)?;
    let (_secret, rest) = take(rest, OCTETS)?;
    let (parameters, _) = take(rest, 0xa0)?;
    curve(take(parameters, OBJECT)?.0)
}

fn write(tag: u8, contents: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    match contents.len() {
        length @ ..=0x7f => out.push(length as u8),
        length @ 0x80..=0xff => out.extend_from_slice(&[0x81, length as u8]),
        length => {
            out.push(0x82);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(contents);
}

/// Writes an integer without leading zeros, except for one that keeps it non-negative.
fn write_integer(number: &[u8], out: &mut Vec<u8>) {
    let zeros = number.iter().take_while(|byte| **byte == 0).count().min(number.len().saturating_sub(1));
    let mut bytes = number[zeros..].to_vec();
    if bytes.first().is_none_or(|byte| *byte >= 0x80) {
        bytes.insert(0, 0);
    }
    write(INTEGER, &bytes, out);
}

/// A PKCS #1 RSA key from its numbers: modulus, public and private exponent, both primes, both exponents, coefficient.
pub(super) fn rsa_key(numbers: [&[u8]; 8]) -> Vec<u8> {
    let mut contents = Vec::new();
    write_integer(&[0], &mut contents);
    numbers.iter().for_each(|number| write_integer(number, &mut contents));
    let mut key = Vec::new();
    write(SEQUENCE, &contents, &mut key);
    key
}

/// Wraps an RSA key in PKCS #8.
pub(super) fn wrap_rsa(key: &[u8]) -> Vec<u8> {
    let mut algorithm = Vec::new();
    write(OBJECT, RSA_ENCRYPTION, &mut algorithm);
    write(0x05, &[], &mut algorithm);
    let mut contents = Vec::new();
    write_integer(&[0], &mut contents);
    write(SEQUENCE, &algorithm, &mut contents);
    write(OCTETS, key, &mut contents);
    let mut info = Vec::new();
    write(SEQUENCE, &contents, &mut info);
    info
}
