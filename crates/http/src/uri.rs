//! Request targets and URLs split into parts; percent-decoding; query parameters.
//!
//! The functions work on bytes and never fail: missing parts are `None`. They do not normalise (`http-request normalize-uri`).

use crate::scan::is_token_byte;

/// The form of a request target (RFC 9112 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    Origin,
    /// `scheme://authority/path?query`
    Absolute,
    /// Any other non-empty target, such as `host:port` for CONNECT.
    Authority,
    /// `*`
    Asterisk,
}

/// A target and the positions of its parts.
#[derive(Debug, Clone, Copy)]
pub struct Split<'a> {
    target: &'a [u8],
    /// The form.
    pub form: TargetForm,
    scheme_len: usize,
    authority_start: usize,
    authority_end: usize,
    query: Option<usize>,
}

/// Splits a target or URL.
#[must_use]
pub fn split(target: &[u8]) -> Split<'_> {
    let mut split = Split {
        target,
        form: TargetForm::Origin,
        scheme_len: 0,
        authority_start: 0,
        authority_end: 0,
        query: None,
    };
    if target.first() != Some(&b'/') {
        if target == b"*" {
            split.form = TargetForm::Asterisk;
            return split;
        }
        let Some(scheme_len) = scheme_len(target) else {
            split.form = TargetForm::Authority;
            split.authority_end = target.len();
            return split;
        };
        split.form = TargetForm::Absolute;
        split.scheme_len = scheme_len;
        split.authority_start = scheme_len + 3;
        let rest = &target[split.authority_start..];
        split.authority_end =
            split.authority_start + memchr::memchr3(b'/', b'?', b'#', rest).unwrap_or(rest.len());
    }
    let from = split.authority_end;
    split.query = memchr::memchr(b'?', &target[from..]).map(|i| from + i);
    split
}

/// Length of the scheme if `://` follows it (RFC 3986 section 3.1).
fn scheme_len(target: &[u8]) -> Option<usize> {
    let len = target.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.')))?;
    (target[0].is_ascii_alphabetic() && target[len..].starts_with(b"://")).then_some(len)
}

impl<'a> Split<'a> {
    /// The scheme, without `://`; empty if there is none.
    #[must_use]
    pub fn scheme(&self) -> &'a [u8] {
        &self.target[..self.scheme_len]
    }

    /// The authority with user information, if any.
    #[must_use]
    pub fn authority(&self) -> &'a [u8] {
        &self.target[self.authority_start..self.authority_end]
    }

    /// Authority without user information.
    #[must_use]
    pub fn host_port(&self) -> &'a [u8] {
        let authority = self.authority();
        memchr::memrchr(b'@', authority).map_or(authority, |at| &authority[at + 1..])
    }

    /// The host, including the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &'a [u8] {
        split_port(self.host_port()).0
    }

    /// The digits of the port, possibly none after a colon.
    #[must_use]
    pub fn port(&self) -> Option<&'a [u8]> {
        split_port(self.host_port()).1
    }

    /// The index where the authority ends and the path may start.
    #[must_use]
    pub fn authority_end(&self) -> usize {
        self.authority_end
    }

    /// The index where the path starts, even if it is empty.
    #[must_use]
    pub fn path_start(&self) -> usize {
        self.authority_end
    }

    /// Index of the question mark.
    #[must_use]
    pub fn query_start(&self) -> Option<usize> {
        self.query
    }

    /// The path up to the question mark (sample `path`); `None` if the path is missing or empty.
    #[must_use]
    pub fn path(&self) -> Option<&'a [u8]> {
        let end = self.query.unwrap_or(self.target.len());
        self.has_path().then(|| &self.target[self.authority_end..end]).filter(|path| !path.is_empty())
    }

    /// Path and query (sample `pathq`).
    #[must_use]
    pub fn pathq(&self) -> Option<&'a [u8]> {
        self.has_path().then(|| &self.target[self.authority_end..]).filter(|path| !path.is_empty())
    }

    /// The part after the question mark (sample `query`); `None` without a question mark.
    #[must_use]
    pub fn query(&self) -> Option<&'a [u8]> {
        self.query.map(|at| &self.target[at + 1..])
    }

    fn has_path(&self) -> bool {
        matches!(self.form, TargetForm::Origin | TargetForm::Absolute)
    }
}

/// Splits `host:port` at the last colon if only digits, possibly none, follow it. Brackets belong to the host.
#[must_use]
pub fn split_port(authority: &[u8]) -> (&[u8], Option<&[u8]>) {
    let digits = authority.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let at = authority.len() - digits;
    match at.checked_sub(1) {
        Some(colon) if authority[colon] == b':' => (&authority[..colon], Some(&authority[at..])),
        _ => (authority, None),
    }
}

/// The default port, as digits, of a scheme that is normalised.
#[must_use]
pub fn default_port(scheme: &[u8]) -> Option<&'static [u8]> {
    if scheme.eq_ignore_ascii_case(b"http") {
        Some(b"80")
    } else if scheme.eq_ignore_ascii_case(b"https") {
        Some(b"443")
    } else {
        None
    }
}

fn hex(b: u8) -> Option<u8> {
    char::from(b).to_digit(16).map(|d| d as u8)
}

/// Percent-decodes `text` and appends the result to `out` (converter `url_dec`). `+` becomes a space if `in_form` is set, otherwise
/// only after a question mark. If an escape is incomplete or not hexadecimal, returns `false` and leaves `out` unchanged.
#[must_use]
pub fn url_decode(text: &[u8], in_form: bool, out: &mut Vec<u8>) -> bool {
    let before = out.len();
    let mut in_form = in_form;
    let mut at = 0;
    while let Some(&b) = text.get(at) {
        at += 1;
        match b {
            b'+' if in_form => out.push(b' '),
            b'%' => {
                let digits = (text.get(at).copied().and_then(hex), text.get(at + 1).copied().and_then(hex));
                let (Some(high), Some(low)) = digits else {
                    out.truncate(before);
                    return false;
                };
                out.push(high << 4 | low);
                at += 2;
            }
            _ => {
                in_form |= b == b'?';
                out.push(b);
            }
        }
    }
    true
}

/// Percent-encodes all characters of `text` that are not unreserved, for use in a query, and appends the result to `out` (converter
/// `url_enc`).
pub fn url_encode(text: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &b in text {
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') {
            out.push(b);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[(b >> 4) as usize], DIGITS[(b & 15) as usize]]);
        }
    }
}

/// The parameters of a query string or form body: `name=value` between delimiters, with undecoded values. A parameter without `=`
/// has no value.
#[derive(Debug, Clone)]
pub struct Params<'a> {
    rest: Option<&'a [u8]>,
    delimiters: [u8; 3],
}

/// The parameters of `text`, separated by `&`. If `url` is set, `;` and `extra` (`?` by default) are separators too (fetch
/// `url_param`).
#[must_use]
pub fn params(text: &[u8], url: bool, extra: Option<u8>) -> Params<'_> {
    let delimiters = if url { [b'&', b';', extra.unwrap_or(b'?')] } else { [extra.unwrap_or(b'&'); 3] };
    Params { rest: Some(text), delimiters }
}

impl<'a> Iterator for Params<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest?;
        let end = text.iter().position(|b| self.delimiters.contains(b)).unwrap_or(text.len());
        self.rest = text.get(end + 1..);
        let pair = &text[..end];
        Some(match memchr::memchr(b'=', pair) {
            Some(eq) => (&pair[..eq], Some(&pair[eq + 1..])),
            None => (pair, None),
        })
    }
}

/// The part of a target examined by `url_param`: everything after the first `?`, or after the first `delimiter` if given.
#[must_use]
pub fn param_text(target: &[u8], delimiter: Option<u8>) -> Option<&[u8]> {
    let delimiter = delimiter.unwrap_or(b'?');
    memchr::memchr(delimiter, target).map(|at| &target[at + 1..])
}

/// The value of the first parameter `name` that has one (`url_param`). If `name` is `None`, the value of the first parameter that
/// has one.
#[must_use]
pub fn url_param<'a>(
    target: &'a [u8],
    name: Option<&[u8]>,
    delimiter: Option<u8>,
    ignore_case: bool,
) -> Option<&'a [u8]> {
    let same = |found: &[u8]| match name {
        None => true,
        Some(name) if ignore_case => found.eq_ignore_ascii_case(name),
        Some(name) => found == name,
    };
    params(param_text(target, delimiter)?, true, delimiter)
        .find_map(|(found, value)| value.filter(|_| same(found)))
}

/// Whether a host consists of characters allowed in a name, an address or a bracketed address.
#[must_use]
pub fn is_host(host: &[u8]) -> bool {
    host.iter()
        .all(|&b| is_token_byte(b) || matches!(b, b'[' | b']' | b':' | b'(' | b')' | b',' | b';' | b'='))
}

#[cfg(test)]
#[allow(clippy::type_complexity, reason = "tables of cases")]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn targets_split_into_their_parts() {
        #[rustfmt::skip]
        let cases: &[(&str, TargetForm, &str, &str, Option<&str>, Option<&str>, Option<&str>)] = &[
            // target form scheme host port path query
            ("/a/b?c=d?e",                 TargetForm::Origin,    "",      "",        None,        Some("/a/b"), Some("c=d?e")),
            ("/",                          TargetForm::Origin,    "",      "",        None,        Some("/"),    None),
            ("/?",                         TargetForm::Origin,    "",      "",        None,        Some("/"),    Some("")),
            ("//x/y",                      TargetForm::Origin,    "",      "",        None,        Some("//x/y"), None),
            ("http://u:p@h:80/x",          TargetForm::Absolute,  "http",  "h",       Some("80"),  Some("/x"),   None),
            ("https://[::1]:443?q",        TargetForm::Absolute,  "https", "[::1]",   Some("443"), None,         Some("q")),
            ("http://[::1]",               TargetForm::Absolute,  "http",  "[::1]",   None,        None,         None),
            ("http://h#f/x?y",             TargetForm::Absolute,  "http",  "h",       None,        Some("#f/x"), Some("y")),
            ("http://:",                   TargetForm::Absolute,  "http",  "",        Some(""),    None,         None),
            ("h:443",                      TargetForm::Authority, "",      "h",       Some("443"), None,         None),
            ("admin/a",                    TargetForm::Authority, "",      "admin/a", None,        None,         None),
            ("1http://x",                  TargetForm::Authority, "",      "1http://x", None,      None,         None),
            ("*",                          TargetForm::Asterisk,  "",      "",        None,        None,         None),
        ];
        for (target, form, scheme, host, port, path, query) in cases {
            let s = split(target.as_bytes());
            assert_eq!(s.form, *form, "{target}");
            assert_eq!(
                (text(s.scheme()), text(s.host()), s.port().map(text)),
                (*scheme, *host, *port),
                "{target}"
            );
            assert_eq!((s.path().map(text), s.query().map(text)), (*path, *query), "{target}");
        }
    }

    #[test]
    fn url_parameters_match_haproxy() {
        #[rustfmt::skip]
        let cases: &[(&str, Option<u8>, Option<&str>)] = &[
            ("/p?a=1&b=2", None, Some("1")), ("/p?b=2&a=3", None, Some("3")), ("/p?b=2;a=3", None, Some("3")),
            ("/p?b=2?a=3", None, Some("3")), ("/p?xa=3&a",  None, None),      ("/p?a&a=4",   None, Some("4")),
            ("/p?a=&a=4",  None, Some("")),  ("/p;a=3?b",   None, None),      ("/p;a=3?b",   Some(b';'), Some("3?b")),
            ("/p?A=1",     None, None),      ("/p",         None, None),
            ("/p?a=1",     Some(b'/'), None), ("/p&a=1?x=2", Some(b'&'), Some("1?x=2")),
        ];
        for (target, delimiter, value) in cases {
            assert_eq!(
                url_param(target.as_bytes(), Some(b"a"), *delimiter, false).map(text),
                *value,
                "{target}"
            );
        }
        assert_eq!(url_param(b"/?A=1", Some(b"a"), None, true), Some(&b"1"[..]));
        assert_eq!(url_param(b"/?x=1", None, None, false), Some(&b"1"[..]));
    }

    #[test]
    fn decoding_refuses_broken_escapes_and_handles_plus() {
        for (input, form, output) in [
            ("a%20b", false, Some("a b")),
            ("a+b?c+d", false, Some("a+b?c d")),
            ("a+b", true, Some("a b")),
            ("%zz", false, None),
            ("a%4", false, None),
            ("a%", false, None),
            ("", false, Some("")),
        ] {
            let mut out = b"x".to_vec();
            let ok = url_decode(input.as_bytes(), form, &mut out);
            assert_eq!(ok, output.is_some(), "{input}");
            assert_eq!(text(&out), format!("x{}", output.unwrap_or_default()));
        }
        let mut out = Vec::new();
        url_encode(b"a b/~\xff", &mut out);
        assert_eq!(text(&out), "a%20b%2F~%FF");
    }
}
