//! PEM (RFC 7468): base64 blocks between markers. Other text is ignored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemBlock<'a> {
    /// The label in the markers: `CERTIFICATE`, `PRIVATE KEY`.
    pub label: &'a str,
    /// The encryption header (`DEK-Info`) of old key formats; empty if another header declares the key as encrypted without
    /// details.
    pub encryption: Option<&'a str>,
    /// The data.
    pub data: Vec<u8>,
    /// The line of the first marker, from 1.
    pub line: usize,
}

/// An error in a PEM file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The line, from 1.
    pub line: usize,
    /// A short description.
    pub what: &'static str,
}

/// Returns all blocks of a text, in order.
///
/// # Errors
/// A block has no end, or is not valid base64.
pub fn blocks(text: &[u8]) -> Result<Vec<PemBlock<'_>>, Malformed> {
    let mut found = Vec::new();
    let mut open: Option<(PemBlock<'_>, Vec<u8>)> = None;
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        let number = index + 1;
        match &mut open {
            None => {
                if let Some(label) = mark(line, "-----BEGIN ") {
                    let block = PemBlock { label, encryption: None, data: Vec::new(), line: number };
                    open = Some((block, Vec::new()));
                }
            }
            Some((block, coded)) => {
                if let Some(label) = mark(line, "-----END ") {
                    if label != block.label {
                        return Err(Malformed { line: number, what: "END line of another PEM block" });
                    }
                    let decoded = STANDARD.decode(coded);
                    let Ok(data) = decoded else {
                        return Err(Malformed { line: block.line, what: "PEM block with invalid base64" });
                    };
                    if let Some((mut block, _)) = open.take() {
                        block.data = data;
                        found.push(block);
                    }
                } else if line.contains(&b':') {
                    // A header according to RFC 1421, used by old encrypted keys.
                    if let Some(how) = line.strip_prefix(b"DEK-Info:") {
                        block.encryption = Some(str::from_utf8(how).unwrap_or_default().trim());
                    } else if line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED") {
                        block.encryption = block.encryption.or(Some(""));
                    }
                } else if line.starts_with(b"-----") {
                    return Err(Malformed { line: block.line, what: "PEM block without END line" });
                } else {
                    coded.extend_from_slice(line);
                }
            }
        }
    }
    match open {
        Some((block, _)) => Err(Malformed { line: block.line, what: "PEM block without END line" }),
        None => Ok(found),
    }
}

/// Formats a block.
pub fn block(label: &str, der: &[u8]) -> String {
    block_with(label, "", der)
}

/// Formats a block, with `headers` (whole lines and an empty line) before the data.
pub(crate) fn block_with(label: &str, headers: &str, der: &[u8]) -> String {
    let mut out = format!("-----BEGIN {label}-----\n{headers}");
    let encoded = STANDARD.encode(der);
    let mut rest = &*encoded;
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = behind;
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// Returns the label if `line` is a marker.
fn mark<'a>(line: &'a [u8], begin: &str) -> Option<&'a str> {
    let label = line.strip_prefix(begin.as_bytes())?.strip_suffix(b"-----")?;
    str::from_utf8(label).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_among_other_text_and_errors_have_a_line() {
        let text = b"Bag Attributes\n-----BEGIN A-----\r\nAQID\r\n-----END A-----\nx\n-----BEGIN B-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAQ==\n-----END B-----\n-----BEGIN C-----\nProc-Type: 4,ENCRYPTED\n\nAQ==\n-----END C-----";
        let found = blocks(text).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].label, &*found[0].data, found[0].line), ("A", &[1, 2, 3][..], 2));
        let encryption: Vec<_> = found.iter().map(|block| block.encryption).collect();
        assert_eq!(encryption, [None, Some("AES-128-CBC,00"), Some("")]);
        for (text, line) in [
            ("\n-----BEGIN A-----\nAQID\n", 2),
            ("-----BEGIN A-----\n*\n-----END A-----\n", 1),
            ("-----BEGIN A-----\n-----BEGIN A-----\n", 1),
            ("-----BEGIN A-----\n-----END B-----\n", 2),
        ] {
            assert_eq!(blocks(text.as_bytes()).unwrap_err().line, line, "{text}");
        }
    }
}
