//! `normalize-uri` (configuration manual, 4.4): normalization of URIs (RFC 3986, section 6).

use http::uri;

use crate::action::Normalizer;

/// Normalizes the target. Returns `None` if it is already normalized, and an error if it is malformed and the normalizer is strict.
pub(crate) fn normalize(target: &[u8], normalizer: Normalizer) -> Result<Option<Vec<u8>>, ()> {
    let parts = uri::split(target);
    let Some(pathq) = parts.pathq() else { return Ok(None) };
    let before = &target[..target.len() - pathq.len()];
    let cut = pathq.iter().position(|&byte| byte == b'?').unwrap_or(pathq.len());
    let (path, query) = pathq.split_at(cut);
    let changed = match normalizer {
        Normalizer::FragmentEncode => encode_fragment(pathq),
        Normalizer::FragmentStrip => strip_fragment(pathq),
        Normalizer::PathMergeSlashes => [&merge_slashes(path), query].concat(),
        Normalizer::PathStripDot => [&strip_dots(path), query].concat(),
        Normalizer::PathStripDotDot { full } => [&strip_dotdots(path, full), query].concat(),
        Normalizer::PercentDecodeUnreserved { strict } => percent(pathq, strict, true)?,
        Normalizer::PercentToUppercase { strict } => percent(pathq, strict, false)?,
        Normalizer::QuerySortByName => [path, &sort_query(query)].concat(),
    };
    Ok((changed != pathq).then(|| [before, &changed].concat()))
}

fn encode_fragment(pathq: &[u8]) -> Vec<u8> {
    pathq
        .iter()
        .flat_map(|byte| if *byte == b'#' { b"%23" } else { std::slice::from_ref(byte) })
        .copied()
        .collect()
}

fn strip_fragment(pathq: &[u8]) -> Vec<u8> {
    let end = pathq.iter().position(|&byte| byte == b'#').unwrap_or(pathq.len());
    pathq[..end].to_vec()
}

fn merge_slashes(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for &byte in path {
        if byte != b'/' || out.last() != Some(&b'/') {
            out.push(byte);
        }
    }
    out
}

fn strip_dots(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut segments = path.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        if segment != b"." {
            out.extend_from_slice(segment);
            if !last {
                out.push(b'/');
            }
        }
    }
    out
}

/// Removes each `..` together with the preceding segment. Those that would leave the root are kept unless `full` is set.
fn strip_dotdots(path: &[u8], full: bool) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        let can_pop = kept.len() > 1 && kept.last() != Some(&&b".."[..]);
        if segment != b".." {
            kept.push(segment);
        } else if can_pop {
            kept.pop();
            if last {
                kept.push(b"");
            }
        } else if !full {
            kept.push(segment);
        } else if last {
            kept.push(b"");
        }
    }
    kept.join(&b'/')
}

fn hex(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

/// Rewrites percent-encodings: decodes unreserved characters, or converts the digits to upper case.
fn percent(text: &[u8], strict: bool, decode: bool) -> Result<Vec<u8>, ()> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'%' {
            out.push(text[at]);
            at += 1;
            continue;
        }
        let digits = text.get(at + 1..at + 3).and_then(|pair| Some((hex(pair[0])?, hex(pair[1])?)));
        match digits {
            Some((high, low)) => {
                let byte = high << 4 | low;
                let unreserved = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
                if decode && unreserved {
                    out.push(byte);
                } else if decode {
                    out.extend_from_slice(&text[at..at + 3]);
                } else {
                    out.extend(text[at..at + 3].iter().map(u8::to_ascii_uppercase));
                }
                at += 3;
            }
            None if strict => return Err(()),
            None => {
                out.push(b'%');
                at += 1;
            }
        }
    }
    Ok(out)
}

fn sort_query(query: &[u8]) -> Vec<u8> {
    let Some(pairs) = query.strip_prefix(b"?") else { return query.to_vec() };
    // A trailing `&` terminates the last parameter.
    let pairs = pairs.strip_suffix(b"&").unwrap_or(pairs);
    let mut pairs: Vec<&[u8]> = pairs.split(|&byte| byte == b'&').collect();
    let name = |pair: &&[u8]| pair.split(|&byte| byte == b'=').next().unwrap_or_default().to_vec();
    pairs.sort_by_key(name);
    [b"?", pairs.join(&b'&').as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_normalizer_does_what_the_manual_shows() {
        use Normalizer::*;
        let cases: &[(Normalizer, &str, &str)] = &[
            (FragmentStrip, "/foo#bar", "/foo"),
            (FragmentEncode, "/foo#bar", "/foo%23bar"),
            (PathMergeSlashes, "//foo///bar", "/foo/bar"),
            (PathStripDot, "/./foo/./bar", "/foo/bar"),
            (PathStripDot, "/foo/.", "/foo/"),
            (PathStripDotDot { full: false }, "/foo/../bar", "/bar"),
            (PathStripDotDot { full: false }, "/foo/../", "/"),
            (PathStripDotDot { full: false }, "/foo/..", "/"),
            (PathStripDotDot { full: false }, "/../foo/../bar", "/../bar"),
            (PathStripDotDot { full: true }, "/../foo/../bar", "/bar"),
            (PercentDecodeUnreserved { strict: false }, "/%61dmin%2Fx%zz", "/admin%2Fx%zz"),
            (PercentToUppercase { strict: false }, "/%6f?a=%c3", "/%6F?a=%C3"),
            (QuerySortByName, "/?c=3&a=5&b&a=1", "/?a=5&a=1&b&c=3"),
            (QuerySortByName, "/?b&&a", "/?&a&b"),
            (QuerySortByName, "/?b&a&", "/?a&b"),
            (QuerySortByName, "/?a&b&&", "/?&a&b"),
            (QuerySortByName, "/?&", "/?"),
            (QuerySortByName, "/?&&", "/?&"),
            (QuerySortByName, "/?", "/?"),
            (PathMergeSlashes, "http://h//a?x=//", "http://h/a?x=//"),
        ];
        for (normalizer, from, to) in cases {
            let changed = normalize(from.as_bytes(), *normalizer).unwrap();
            let got = changed.unwrap_or_else(|| from.as_bytes().to_vec());
            assert_eq!(String::from_utf8_lossy(&got), *to, "{normalizer:?} {from}");
        }
        let strict = PercentToUppercase { strict: true };
        assert_eq!(normalize(b"/%zz", strict), Err(()));
    }
}
