//! Distinguished names as OpenSSL and HAProxy show them (`ssl_c_s_dn`, `ssl_f_i_dn` …).

use x509_parser::x509::X509Name;

/// Object identifiers of attributes, and OpenSSL's short names.
const SHORT: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.16", "postalAddress"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.18", "postOfficeBox"),
    ("2.5.4.20", "telephoneNumber"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.45", "x500UniqueIdentifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.72", "role"),
    ("2.5.4.97", "organizationIdentifier"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("1.2.840.113549.1.9.2", "unstructuredName"),
    ("1.2.840.113549.1.9.8", "unstructuredAddress"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.3", "mail"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.3.6.1.4.1.311.60.2.1.1", "jurisdictionL"),
    ("1.3.6.1.4.1.311.60.2.1.2", "jurisdictionST"),
    ("1.3.6.1.4.1.311.60.2.1.3", "jurisdictionC"),
];

/// An attribute.
#[derive(Debug)]
struct Attribute<'a> {
    /// The object identifier of the attribute.
    oid: String,
    /// The value of the attribute, as bytes.
    value: &'a [u8],
    /// Whether the attribute is in the same set as the preceding one.
    joins: bool,
}

/// A parsed name, as a list of attributes in encoding order.
#[derive(Debug)]
pub struct DistinguishedName<'a>(Vec<Attribute<'a>>);

impl<'a> DistinguishedName<'a> {
    pub(crate) fn new(name: &'a X509Name<'a>) -> Self {
        let mut attributes = Vec::new();
        for set in name.iter_rdn() {
            for (place, one) in set.iter().enumerate() {
                let (oid, value) = (one.attr_type().to_id_string(), one.as_slice());
                attributes.push(Attribute { oid, value, joins: place > 0 });
            }
        }
        Self(attributes)
    }

    /// Formats the name as `/C=FR/CN=client`. Returns `None` if a value contains a NUL, because such names are meant to deceive.
    pub fn oneline(&self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        for Attribute { oid, value, .. } in &self.0 {
            text.push(b'/');
            text.extend_from_slice(short(oid).as_bytes());
            text.push(b'=');
            text.extend_from_slice(honest(value)?);
        }
        Some(text)
    }

    /// Formats the name as in LDAP (RFC 2253): `CN=client,C=FR`.
    pub fn rfc2253(&self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut joined = false;
        for Attribute { oid, value, joins } in self.0.iter().rev() {
            if !text.is_empty() {
                text.push(if joined { b'+' } else { b',' });
            }
            joined = *joins;
            text.extend_from_slice(short(oid).as_bytes());
            text.push(b'=');
            escape(honest(value)?, &mut text);
        }
        Some(text)
    }

    /// Formats the name as in OpenSSL's text output: `C = FR, CN = client`. Returns `None` if a value contains a NUL.
    pub(crate) fn spaced(&self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        for Attribute { oid, value, joins } in &self.0 {
            if !text.is_empty() {
                text.extend_from_slice(if *joins { b" + " } else { b", " });
            }
            text.extend_from_slice(short(oid).as_bytes());
            text.extend_from_slice(b" = ");
            quote(honest(value)?, &mut text);
        }
        Some(text)
    }

    /// Returns the value of an attribute by its short name, which is not case-sensitive. `occurrence` counts from the beginning, or
    /// from the end if negative; 0 means the first.
    pub fn entry(&self, name: &str, occurrence: i64) -> Option<&'a [u8]> {
        let mut values =
            self.0.iter().filter(|one| short(&one.oid).eq_ignore_ascii_case(name)).map(|one| one.value);
        let skip = |n: i64| usize::try_from(n).ok()?.checked_sub(1);
        let value = match occurrence {
            0 => values.next(),
            1.. => values.nth(skip(occurrence)?),
            _ => values.rev().nth(skip(occurrence.checked_neg()?)?),
        };
        honest(value?)
    }
}

pub(crate) fn short(oid: &str) -> &str {
    SHORT.iter().find(|row| row.0 == oid).map_or(oid, |row| row.1)
}

fn honest(value: &[u8]) -> Option<&[u8]> {
    if value.contains(&0) { None } else { Some(value) }
}

/// Appends a value. Special characters of RFC 2253 are escaped by a backslash, and unprintable bytes as numbers.
fn escape(value: &[u8], text: &mut Vec<u8>) {
    for (place, byte) in value.iter().enumerate() {
        let at_end = place == 0 || place + 1 == value.len();
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => text.extend([b'\\', *byte]),
            b'#' if place == 0 => text.extend(b"\\#"),
            b' ' if at_end => text.extend(b"\\ "),
            0x20..=0x7e => text.push(*byte),
            _ => text.extend(format!("\\{byte:02X}").bytes()),
        }
    }
}

/// Appends a value, in quotes if it contains RFC 2253 special characters.
fn quote(value: &[u8], text: &mut Vec<u8>) {
    let special = |byte: &u8| b",+\"\\<>;".contains(byte);
    let at_ends = value.first().is_some_and(|byte| b"# ".contains(byte)) || value.last() == Some(&b' ');
    let quotes = at_ends || value.iter().any(special);
    text.extend(quotes.then_some(b'"'));
    for byte in value {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', *byte]),
            0x20..=0x7e => text.push(*byte),
            _ => text.extend(format!("\\{byte:02X}").bytes()),
        }
    }
    text.extend(quotes.then_some(b'"'));
}
