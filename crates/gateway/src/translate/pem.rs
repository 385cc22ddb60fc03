//! Certificates and private keys in PEM.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates in canonical PEM.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) pem: Vec<u8>,
    /// The time at which the first one expires, in seconds since 1970.
    pub(crate) not_after: u64,
}

/// Checks the certificates of a text, and writes them without anything else.
///
/// # Errors
/// The text has no certificate, or a malformed one.
pub(crate) fn certificates(text: &[u8]) -> Result<Certificates, String> {
    let mut found = Certificates { pem: Vec::new(), not_after: 0 };
    for (label, der) in blocks(text)? {
        if label != "CERTIFICATE" {
            continue;
        }
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| "a certificate is malformed")?;
        if found.pem.is_empty() {
            found.not_after = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or_default();
        }
        push(&mut found.pem, &label, &der);
    }
    if found.pem.is_empty() {
        return Err("there is no certificate in PEM".into());
    }
    Ok(found)
}

/// Finds the private key of a text, and writes it without anything else.
///
/// # Errors
/// The text has no key.
pub(crate) fn private_key(text: &[u8]) -> Result<Vec<u8>, String> {
    let is_key = |label: &str| matches!(label, "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY");
    let key = blocks(text)?.into_iter().find(|(label, _)| is_key(label));
    let (label, der) = key.ok_or("there is no private key in PEM")?;
    let mut pem = Vec::new();
    push(&mut pem, &label, &der);
    Ok(pem)
}

/// The labels and contents of the blocks of a text.
fn blocks(text: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let text = str::from_utf8(text).map_err(|_| "it is not text")?;
    let mut found = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in text.lines().map(str::trim) {
        if let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) {
            open = Some((label, String::new()));
        } else if line.starts_with("-----END ") {
            let (label, content) = open.take().ok_or("a PEM block has no begin")?;
            let der =
                STANDARD.decode(content).map_err(|_| format!("the PEM block `{label}` is malformed"))?;
            found.push((label.into(), der));
        } else if let Some((_, content)) = &mut open {
            content.push_str(line);
        }
    }
    Ok(found)
}

fn push(pem: &mut Vec<u8>, label: &str, der: &[u8]) {
    let text = STANDARD.encode(der);
    pem.extend_from_slice(format!("-----BEGIN {label}-----\n").as_bytes());
    for line in text.as_bytes().chunks(64) {
        pem.extend_from_slice(line);
        pem.push(b'\n');
    }
    pem.extend_from_slice(format!("-----END {label}-----\n").as_bytes());
}
