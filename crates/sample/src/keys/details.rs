//! Certificate details for `show ssl cert` (management manual, 9.3), read from the DER (RFC 5280, 4.1).

use std::fmt::Write;

use sha1::{Digest, Sha1};

use super::der::{self, element, take};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;

/// A certificate's fields as text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The serial number in hexadecimal.
    pub serial: String,
    /// `Sep 13 21:20:24 2019 GMT`.
    pub not_before: String,
    /// The end of the validity period, in the same format.
    pub not_after: String,
    /// `/C=US/O=…/CN=…`.
    pub issuer: String,
    /// The subject, in the same format.
    pub subject: String,
    /// `DNS:…`, separated by commas.
    pub alternatives: String,
    /// The key's type and size: `RSA2048`, `EC256`; empty for other types.
    pub algorithm: String,
    /// SHA-1 of the certificate, in hexadecimal.
    pub fingerprint: String,
    /// Subject and issuer of each further certificate in the chain.
    pub chain: Vec<(String, String)>,
}

impl Details {
    /// The details of the first certificate in a chain, or `None` if it cannot be parsed.
    pub fn of(chain: &[impl AsRef<[u8]>]) -> Option<Self> {
        let (first, rest) = chain.split_first()?;
        let first = first.as_ref();
        let parts = CertificateParts::of(first)?;
        let (before, after) = take(parts.validity, SEQUENCE)?.0.split_at_checked(length(parts.validity)?)?;
        Some(Self {
            // Drops the leading zero byte that only keeps the number non-negative.
            serial: hex(parts
                .serial
                .strip_prefix(&[0])
                .filter(|rest| !rest.is_empty())
                .unwrap_or(parts.serial)),
            not_before: time(before)?,
            not_after: time(after)?,
            issuer: name(parts.issuer),
            subject: name(parts.subject),
            alternatives: alternatives(parts.rest).join(", "),
            algorithm: der::key_kind(parts.key).unwrap_or_default(),
            fingerprint: hex(&Sha1::digest(first)),
            chain: rest
                .iter()
                .filter_map(|der| CertificateParts::of(der.as_ref()))
                .map(|parts| (name(parts.subject), name(parts.issuer)))
                .collect(),
        })
    }
}

/// The length in bytes of the first element within a sequence.
fn length(sequence: &[u8]) -> Option<usize> {
    let (contents, _) = take(sequence, SEQUENCE)?;
    let (_, _, rest) = element(contents)?;
    Some(contents.len() - rest.len())
}

/// The parts of a certificate, each including the bytes that follow it.
struct CertificateParts<'a> {
    serial: &'a [u8],
    issuer: &'a [u8],
    validity: &'a [u8],
    subject: &'a [u8],
    key: &'a [u8],
    /// Everything after the key.
    rest: &'a [u8],
}

impl<'a> CertificateParts<'a> {
    fn of(der: &'a [u8]) -> Option<Self> {
        let (certificate, _) = take(der, SEQUENCE)?;
        let (mut rest, _) = take(certificate, SEQUENCE)?;
        if rest.first() == Some(&0xa0) {
            rest = element(rest)?.2;
        }
        let (serial, rest) = take(rest, INTEGER)?;
        let issuer = take(rest, SEQUENCE)?.1;
        let validity = take(issuer, SEQUENCE)?.1;
        let subject = take(validity, SEQUENCE)?.1;
        let key = take(subject, SEQUENCE)?.1;
        let rest = take(key, SEQUENCE)?.1;
        Some(Self { serial, issuer, validity, subject, key, rest })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02X}");
        out
    })
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Parses `YYMMDDHHMMSSZ`, with years from 50 on in the last century, or `YYYYMMDDHHMMSSZ`.
fn time(der: &[u8]) -> Option<String> {
    let (tag, digits, _) = element(der)?;
    let digits = std::str::from_utf8(digits).ok()?;
    let at = if tag == 0x17 { 2 } else { 4 };
    let number = |from: usize, to: usize| digits.get(from..to)?.parse::<usize>().ok();
    let year = match (number(0, at)?, at) {
        (year @ 50.., 2) => 1900 + year,
        (year, 2) => 2000 + year,
        (year, _) => year,
    };
    let month = MONTHS.get(number(at, at + 2)?.checked_sub(1)?)?;
    let [day, hour, minute, second] =
        [number(at + 2, at + 4)?, number(at + 4, at + 6)?, number(at + 6, at + 8)?, number(at + 8, at + 10)?];
    Some(format!("{month} {day:2} {hour:02}:{minute:02}:{second:02} {year} GMT"))
}

/// Attributes with short names, from RFC 4519 or otherwise from OpenSSL.
#[rustfmt::skip]
const ATTRIBUTES: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3],  "CN"),
    (&[0x55, 4, 4],  "SN"),
    (&[0x55, 4, 5],  "serialNumber"),
    (&[0x55, 4, 6],  "C"),
    (&[0x55, 4, 7],  "L"),
    (&[0x55, 4, 8],  "ST"),
    (&[0x55, 4, 9],  "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 42], "GN"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];

/// A distinguished name on one line.
fn name(der: &[u8]) -> String {
    let mut out = String::new();
    let Some((mut sets, _)) = take(der, SEQUENCE) else { return out };
    while let Some((mut attributes, rest)) = take(sets, SET) {
        sets = rest;
        while let Some((attribute, rest)) = take(attributes, SEQUENCE) {
            attributes = rest;
            let parsed =
                take(attribute, OBJECT).and_then(|(object, value)| Some((object, element(value)?.1)));
            let Some((object, value)) = parsed else { continue };
            let known = ATTRIBUTES.iter().find(|(name, _)| *name == object);
            let _ = match known {
                Some((_, name)) => write!(out, "/{name}="),
                None => write!(out, "/{}=", dotted(object)),
            };
            out.push_str(&String::from_utf8_lossy(value));
        }
    }
    out
}

/// The dotted form of an object identifier. The first byte holds two numbers, the other bytes seven bits each.
fn dotted(object: &[u8]) -> String {
    let Some((first, rest)) = object.split_first() else { return String::new() };
    let top = (first / 40).min(2);
    let mut out = format!("{top}.{}", first - top * 40);
    let mut number = 0u64;
    for byte in rest {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            let _ = write!(out, ".{number}");
            number = 0;
        }
    }
    out
}

/// The host names of the `subjectAltName` extension, which is in the part after the key.
fn alternatives(mut rest: &[u8]) -> Vec<String> {
    const EXTENSIONS: u8 = 0xa3;
    const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
    const HOST: u8 = 0x82;
    let mut names = Vec::new();
    while let Some((tag, contents, behind)) = element(rest) {
        rest = behind;
        let Some((mut extensions, _)) = take(contents, SEQUENCE).filter(|_| tag == EXTENSIONS) else {
            continue;
        };
        while let Some((extension, behind)) = take(extensions, SEQUENCE) {
            extensions = behind;
            let Some((ALTERNATIVE_NAMES, mut value)) = take(extension, OBJECT) else { continue };
            // An optional critical flag precedes the value.
            if value.first() == Some(&0x01) {
                value = element(value).map_or(&[][..], |(.., behind)| behind);
            }
            let held = take(value, OCTETS).and_then(|(octets, _)| take(octets, SEQUENCE));
            let Some((mut general, _)) = held else { continue };
            while let Some((tag, value, behind)) = element(general) {
                general = behind;
                if tag == HOST {
                    names.push(format!("DNS:{}", String::from_utf8_lossy(value)));
                }
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::blocks;
    use super::*;

    /// Made with `openssl req -x509 -newkey ec:<(openssl ecparam -name prime256v1)`, with two names.
    const PEM: &str = include_str!("testdata/two_names.pem");

    #[test]
    fn certificate_details_match_openssl() {
        let chain: Vec<_> = blocks(PEM).map(|(_, der)| der).collect();
        let details = Details::of(&chain).unwrap();
        let name = "/C=DE/O=Weir Test/OU=it's/CN=one.example/emailAddress=a@b.example";
        assert_eq!(
            details,
            Details {
                serial: "3F5F32C8925B8E964D2AFC51E7D6F567A2A0153E".into(),
                not_before: "Nov 22 09:54:05 2026 GMT".into(),
                not_after: "Oct 29 09:54:05 2126 GMT".into(),
                issuer: name.into(),
                subject: name.into(),
                alternatives: "DNS:one.example, DNS:two.example".into(),
                algorithm: "EC256".into(),
                fingerprint: "C460AF922A78820ED83A042A5F2C325619C48E07".into(),
                chain: vec![],
            }
        );
    }

    #[test]
    fn truncated_certificates_have_no_details() {
        let der = blocks(PEM).next().unwrap().1;
        for length in 0..der.len() {
            let cut = Details::of(&[der[..length].to_vec()]);
            assert!(cut.is_none(), "{length}");
        }
        for at in 0..der.len() {
            let mut other = der.clone();
            other[at] ^= 0x55;
            let _ = Details::of(&[other]);
        }
    }

    #[test]
    fn unnamed_object_identifiers_are_shown_as_numbers() {
        assert_eq!(dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]), "1.2.840.113549");
        assert_eq!(dotted(&[0x88, 0x37]), "2.56.55");
        assert_eq!(dotted(&[]), "");
    }
}
