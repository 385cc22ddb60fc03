//! Finds the links in a response's `Link` fields that are worth sending before the response: those that a client may fetch, or
//! connect to, in advance (RFC 8297, RFC 8288; manual, `early-hints`).

use http::{Head, KnownName, is_token, list_values};

/// The relations of links that are sent as hints.
const RELATIONS: &[&[u8]] = &[b"preload", b"preconnect", b"dns-prefetch", b"modulepreload", b"prefetch"];

/// Returns the values of the `Link` fields of `head`, without links that are not hints.
pub fn hints(head: &Head) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    if head.get_known(KnownName::Link).is_none() {
        return found;
    }
    for line in head.get_all(&KnownName::Link.into()) {
        let mut kept: Vec<u8> = Vec::new();
        for link in list_values(line).filter(|link| is_hint(link)) {
            if !kept.is_empty() {
                kept.extend_from_slice(b", ");
            }
            kept.extend_from_slice(link);
        }
        if !kept.is_empty() {
            found.push(kept);
        }
    }
    found
}

/// Whether a link is a hint. If it has several relations, the first one applies (RFC 8288, 3.3).
fn is_hint(link: &[u8]) -> bool {
    let Some(end) = link.strip_prefix(b"<").and_then(|rest| rest.iter().position(|byte| *byte == b'>'))
    else {
        return false;
    };
    let mut rest = &link[end + 2..];
    while let Some((name, value, behind)) = parameter(rest) {
        if name.eq_ignore_ascii_case(b"rel") {
            let is_known = |word: &[u8]| RELATIONS.iter().any(|known| known.eq_ignore_ascii_case(word));
            return value.split(|byte| matches!(byte, b' ' | b'\t')).any(is_known);
        }
        rest = behind;
    }
    false
}

/// Returns the next parameter, its value without quotes (empty if it has none), and the rest; `None` if there is no parameter, or
/// it is malformed.
fn parameter(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let text = text.trim_ascii_start().strip_prefix(b";")?.trim_ascii_start();
    let end = text.iter().position(|byte| matches!(byte, b'=' | b';')).unwrap_or(text.len());
    let name = text[..end].trim_ascii_end();
    if !is_token(name) {
        return None;
    }
    let Some(value) = text[end..].strip_prefix(b"=") else { return Some((name, b"", &text[end..])) };
    let value = value.trim_ascii_start();
    if let Some(quoted) = value.strip_prefix(b"\"") {
        let mut at = 0;
        loop {
            match quoted.get(at)? {
                b'"' => return Some((name, &quoted[..at], &quoted[at + 1..])),
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
    }
    let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    let plain = value[..end].trim_ascii_end();
    is_token(plain).then_some((name, plain, &value[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_links_worth_fetching_early() {
        let cases: &[(&str, Option<&str>)] = &[
            ("<a>; rel=preload; as=style", Some("<a>; rel=preload; as=style")),
            ("<a>;REL=\"x PreLoad\"", Some("<a>;REL=\"x PreLoad\"")),
            ("<a>; crossorigin; rel=prefetch", Some("<a>; crossorigin; rel=prefetch")),
            ("<a>; rel = preconnect", Some("<a>; rel = preconnect")),
            ("<a>; rel=next, , <b>; rel=preload", Some("<b>; rel=preload")),
            ("<a>; rel=preload, <b>; rel=prefetch", Some("<a>; rel=preload, <b>; rel=prefetch")),
            ("<a>; rel=preload prefetch", None),
            ("<a>; rel=stylesheet; rel=preload", None),
            ("<a>; title=\"\\\"; rel=preload; \\\"\"", None),
            ("<a>; title=\"a\\\"\"; rel=preload", Some("<a>; title=\"a\\\"\"; rel=preload")),
            ("</a,b>; rel=preload", None),
            ("<a; rel=preload", None),
            ("<a>", None),
            ("<a>; title=\"x; rel=preload", None),
        ];
        for (line, wanted) in cases {
            let mut head = Head::new();
            head.start_response(200, None);
            head.append(b"Link", line.as_bytes());
            let wanted: Vec<Vec<u8>> = wanted.iter().map(|text| text.as_bytes().to_vec()).collect();
            assert_eq!(hints(&head), wanted, "{line}");
        }
    }
}
