//! The contents of a generated certificate, as DER (RFC 5280, 4.1): version 3, the subject of its
//! authority with the name behind, and the extensions that HAProxy gives it.

use aws_lc_rs::digest;
use base::clock::Date;

use crate::der::{self, Der, put};
use crate::x509::{CertificateFields, key_parts};

/// The longest common name (RFC 5280, appendix A).
const COMMON_NAME_MAX: usize = 64;

const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;

/// 2.5.4.3
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];

/// 2.5.29, behind which the last part tells the extension.
const EXTENSION: [u8; 2] = [0x55, 0x1d];
const SUBJECT_KEY: u8 = 14;
const KEY_USAGE: u8 = 15;
const ALTERNATIVE_NAMES: u8 = 17;
const BASIC_CONSTRAINTS: u8 = 19;
const AUTHORITY_KEY: u8 = 35;

/// Digital signature, non-repudiation, key encipherment.
const USAGES: [u8; 4] = [der::BIT_STRING, 2, 5, 0xe0];

/// What a certificate says of its authority.
#[derive(Debug)]
pub(super) struct Issuer {
    /// Its subject, as DER.
    name: Box<[u8]>,
    /// What stands in that.
    names: Box<[u8]>,
    /// The value of the extension that tells which key of it signed.
    key_identifier: Box<[u8]>,
}

impl Issuer {
    pub(super) fn of(own: &CertificateFields<'_>) -> Option<Self> {
        let name = own.subject();
        let names = Der(name).take(der::SEQUENCE)?.0;
        let mut parts = Vec::new();
        if let Some(identifier) = own.subject_key_identifier() {
            put(&mut parts, 0x80, identifier);
        }
        // An authority by its name as well: [1] of GeneralNames with a directoryName, [4].
        put(&mut parts, 0xa1, &under(0xa4, name));
        put(&mut parts, 0x82, own.serial());
        let key_identifier = under(der::SEQUENCE, &parts);
        Some(Self { name: name.into(), names: names.into(), key_identifier: key_identifier.into() })
    }
}

fn under(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(contents.len() + 6);
    put(&mut out, tag, contents);
    out
}

/// What is signed of a certificate for `name` with `key`, a SubjectPublicKeyInfo; the validity in
/// seconds since 1970.
pub(super) fn to_be_signed(
    issuer: &Issuer,
    name: &str,
    mut serial: [u8; 16],
    (from, until): (i64, i64),
    key: &[u8],
    algorithm: &[u8],
) -> Option<Vec<u8>> {
    // Positive, and as long as can be.
    serial[0] = serial[0] & 0x7f | 0x40;
    let mut contents = Vec::with_capacity(1024);
    put(&mut contents, 0xa0, &under(der::INTEGER, &[2]));
    put(&mut contents, der::INTEGER, &serial);
    contents.extend_from_slice(algorithm);
    contents.extend_from_slice(&issuer.name);
    let validity = [time(from), time(until)].concat();
    put(&mut contents, der::SEQUENCE, &validity);
    let mut subject = issuer.names.to_vec();
    if name.len() <= COMMON_NAME_MAX {
        let pair = [under(der::OID, &COMMON_NAME), under(UTF8_STRING, name.as_bytes())].concat();
        put(&mut subject, SET, &under(der::SEQUENCE, &pair));
    }
    put(&mut contents, der::SEQUENCE, &subject);
    contents.extend_from_slice(key);
    let own = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, key_parts(key)?.1);
    let extensions = [
        extension(BASIC_CONSTRAINTS, &under(der::SEQUENCE, &[])),
        extension(SUBJECT_KEY, &under(der::OCTET_STRING, own.as_ref())),
        extension(AUTHORITY_KEY, &issuer.key_identifier),
        extension(KEY_USAGE, &USAGES),
        // A dNSName is [2].
        extension(ALTERNATIVE_NAMES, &under(der::SEQUENCE, &under(0x82, name.as_bytes()))),
    ];
    put(&mut contents, 0xa3, &under(der::SEQUENCE, &extensions.concat()));
    Some(under(der::SEQUENCE, &contents))
}

/// The certificate of which `text` was signed.
pub(super) fn signed(text: &[u8], algorithm: &[u8], signature: &[u8]) -> Vec<u8> {
    let bits = [&[0][..], signature].concat();
    under(der::SEQUENCE, &[text, algorithm, &under(der::BIT_STRING, &bits)].concat())
}

fn extension(which: u8, value: &[u8]) -> Vec<u8> {
    let [first, second] = EXTENSION;
    let parts = [under(der::OID, &[first, second, which]), under(der::OCTET_STRING, value)].concat();
    under(der::SEQUENCE, &parts)
}

/// A time as certificates have it: with two digits for the year up to 2049 (RFC 5280, 4.1.2.5).
fn time(seconds: i64) -> Vec<u8> {
    let Date { year, month, day, hour, minute, second, .. } = Date::utc(seconds);
    let rest = format!("{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
    if (1950..2050).contains(&year) {
        under(UTC_TIME, format!("{:02}{rest}", year % 100).as_bytes())
    } else {
        under(der::GENERALIZED_TIME, format!("{year:04}{rest}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_four_digits_for_the_year_from_2050_on() {
        assert_eq!(&time(1_795_440_000)[2..], b"261123132000Z");
        assert_eq!(&time(2_524_607_999)[2..], b"491231235959Z");
        assert_eq!(&time(2_524_608_000)[2..], b"20500101000000Z");
    }
}
