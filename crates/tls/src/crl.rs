//! Formats revocation lists (`show ssl crl-file`; management manual, 9.3) and times.

use std::fmt::Write;

use base::clock::Date;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::dn::DistinguishedName;
use crate::x509;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Formats a time as OpenSSL does: `Apr 23 14:36:26 2021 GMT`.
pub fn time_text(seconds: i64) -> String {
    let Date { year, month, day, hour, minute, second, .. } = Date::utc(seconds);
    let month = MONTHS.get((month as usize).wrapping_sub(1)).unwrap_or(&"");
    format!("{month} {day:2} {hour:02}:{minute:02}:{second:02} {year} GMT")
}

/// Formats a revocation list as lines, or `None` if it is invalid.
pub fn describe(der: &[u8]) -> Option<String> {
    let (_, list) = CertificateRevocationList::from_der(der).ok()?;
    let issuer = DistinguishedName::new(list.issuer()).oneline().unwrap_or_default();
    let mut out = format!("Version {}\n", list.version().map_or(1, |version| version.0 + 1));
    let algorithm = x509::algorithm(&list.signature_algorithm.algorithm.to_id_string());
    let _ = writeln!(out, "Signature Algorithm: {}", long(&algorithm));
    let _ = writeln!(out, "Issuer: {}", String::from_utf8_lossy(&issuer));
    let _ = writeln!(out, "Last Update: {}", time_text(list.last_update().timestamp()));
    let next = list.next_update().map_or("NONE".to_owned(), |next| time_text(next.timestamp()));
    let _ = writeln!(out, "Next Update: {next}");
    let mut revoked = list.iter_revoked_certificates().peekable();
    if revoked.peek().is_none() {
        out.push_str("No Revoked Certificates.\n");
        return Some(out);
    }
    out.push_str("Revoked Certificates:\n");
    for one in revoked {
        let raw = one.raw_serial();
        let digits = raw.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(raw);
        let serial: String = digits.iter().map(|byte| format!("{byte:02X}")).collect();
        let _ = writeln!(out, "    Serial Number: {serial}");
        let _ = writeln!(out, "        Revocation Date: {}", time_text(one.revocation_date.timestamp()));
    }
    Some(out)
}

/// Returns OpenSSL's long name of an algorithm, given its short one.
pub(crate) fn long(short: &str) -> String {
    match short.strip_prefix("RSA-SHA") {
        Some(bits) => format!("sha{bits}WithRSAEncryption"),
        None => short.to_owned(),
    }
}
