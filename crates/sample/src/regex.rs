//! Regular expressions: compiled once, on bytes, without Unicode, as HAProxy's PCRE patterns are meant.
//!
//! The `regex` crate runs in linear time. What only PCRE knows (look-around, back-references) is refused with a
//! message that says so.

use crate::value::Scratch;

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub struct Regex(regex::bytes::Regex);

impl Regex {
    /// Compiles `pattern`.
    pub fn new(pattern: &str, ignore_case: bool) -> Result<Self, String> {
        regex::bytes::RegexBuilder::new(&translate(pattern))
            .unicode(false)
            .case_insensitive(ignore_case)
            .build()
            .map(Self)
            .map_err(|error| explain(pattern, &error))
    }

    /// Whether it matches somewhere in `bytes`.
    #[inline]
    pub fn is_match(&self, bytes: &[u8]) -> bool {
        self.0.is_match(bytes)
    }

    /// Appends `template` to `out` with `\0` to `\9` replaced by what they captured of the first match; says
    /// whether there was a match.
    pub fn expand(&self, bytes: &[u8], template: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(found) = self.0.captures(bytes) else { return false };
        expand(&found, template, out);
        true
    }

    /// Replaces the first match, or all of them, by `template`; `None` when nothing matched.
    pub fn replace(&self, bytes: &[u8], template: &[u8], all: bool) -> Option<Scratch> {
        let mut out: Option<Scratch> = None;
        let mut copied = 0;
        for found in self.0.captures_iter(bytes) {
            let Some(whole) = found.get(0) else { break };
            let out = out.get_or_insert_with(Scratch::new);
            out.extend_from_slice(&bytes[copied..whole.start()]);
            expand(&found, template, out);
            copied = whole.end();
            if !all {
                break;
            }
        }
        let mut out = out?;
        out.extend_from_slice(&bytes[copied..]);
        Some(out)
    }
}

/// HAProxy's references: a backslash and one digit; any other escaped byte stands for itself, `\xNN` for a byte.
fn expand(found: &regex::bytes::Captures<'_>, template: &[u8], out: &mut Vec<u8>) {
    let mut rest = template.iter().copied().enumerate();
    while let Some((at, byte)) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest.next() {
            Some((_, digit @ b'0'..=b'9')) => {
                if let Some(group) = found.get(usize::from(digit - b'0')) {
                    out.extend_from_slice(group.as_bytes());
                }
            }
            Some((_, b'x')) => match template.get(at + 2..at + 4).and_then(hex_byte) {
                Some(byte) => {
                    out.push(byte);
                    rest.next();
                    rest.next();
                }
                None => out.push(b'x'),
            },
            Some((_, other)) => out.push(other),
            None => out.push(b'\\'),
        }
    }
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Many regular expressions tried at once.
#[derive(Clone, Debug)]
pub struct RegexSet(regex::bytes::RegexSet);

impl RegexSet {
    /// Compiles `patterns`; the error names the first that does not compile.
    pub fn new<'a>(
        patterns: impl IntoIterator<Item = &'a str>,
        ignore_case: bool,
    ) -> Result<Self, (usize, String)> {
        let patterns: Vec<&str> = patterns.into_iter().collect();
        regex::bytes::RegexSetBuilder::new(patterns.iter().map(|pattern| translate(pattern)))
            .unicode(false)
            .case_insensitive(ignore_case)
            .size_limit(64 << 20)
            .build()
            .map(Self)
            .map_err(|error| {
                let single = patterns.iter().enumerate();
                let mut failures =
                    single.filter_map(|(at, one)| Regex::new(one, ignore_case).err().map(|e| (at, e)));
                failures.next().unwrap_or_else(|| (0, error.to_string()))
            })
    }

    /// The first in the order of the configuration that matches.
    pub fn first(&self, bytes: &[u8]) -> Option<usize> {
        self.0.matches(bytes).iter().next()
    }

    /// Whether any matches.
    pub fn is_match(&self, bytes: &[u8]) -> bool {
        self.0.is_match(bytes)
    }
}

/// Rewrites what PCRE takes as itself and the `regex` crate as syntax: `[`, `&&`, `--` and `~~` inside a class,
/// and `{` that begins no repetition.
fn translate(pattern: &str) -> String {
    let bytes = pattern.as_bytes();
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut class_start: Option<usize> = None;
    let mut chars = pattern.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (c, class_start) {
            ('\\', _) => {
                out.push(c);
                if let Some((_, next)) = chars.next() {
                    match next {
                        // PCRE escapes that the other crate spells differently.
                        'h' if class_start.is_none() => {
                            out.pop();
                            out.push_str("[ \\t]");
                        }
                        'e' => out.push_str("x1b"),
                        'Z' => out.push('z'),
                        '<' | '>' => {
                            out.pop();
                            out.push(next);
                        }
                        _ => out.push(next),
                    }
                }
            }
            ('[', None) => {
                class_start = Some(out.len());
                out.push(c);
                if chars.peek().is_some_and(|(_, next)| *next == '^') {
                    chars.next();
                    out.push('^');
                }
                // A bracket right at the start stands for itself.
                if chars.peek().is_some_and(|(_, next)| *next == ']') {
                    chars.next();
                    out.push_str("\\]");
                }
            }
            ('[', Some(_)) if bytes.get(at + 1) == Some(&b':') => {
                // A named class such as [:alpha:] goes through to its end.
                match pattern[at..].find(":]") {
                    Some(length) => {
                        out.push_str(&pattern[at..at + length + 2]);
                        while chars.peek().is_some_and(|(next, _)| *next < at + length + 2) {
                            chars.next();
                        }
                    }
                    None => out.push_str("\\["),
                }
            }
            ('[', Some(_)) => out.push_str("\\["),
            (']', Some(_)) => {
                class_start = None;
                out.push(c);
            }
            ('&' | '~', Some(_)) => {
                out.push('\\');
                out.push(c);
            }
            ('-', Some(_)) if bytes.get(at + 1) == Some(&b'-') || (at > 0 && bytes[at - 1] == b'-') => {
                out.push_str("\\-");
            }
            ('{', None) if !begins_repetition(&bytes[at..]) => out.push_str("\\{"),
            ('}', None) if !ends_repetition(&bytes[..at]) => out.push_str("\\}"),
            _ => out.push(c),
        }
    }
    out
}

fn begins_repetition(rest: &[u8]) -> bool {
    let Some(end) = rest.iter().position(|byte| *byte == b'}') else { return false };
    let inner = &rest[1..end];
    inner.first().is_some_and(u8::is_ascii_digit)
        && inner.iter().all(|byte| byte.is_ascii_digit() || *byte == b',')
}

fn ends_repetition(before: &[u8]) -> bool {
    let Some(start) = before.iter().rposition(|byte| *byte == b'{') else { return false };
    // Braces of \x{..}, \p{..} belong to their escape.
    if start >= 2 && before[start - 2] == b'\\' {
        return true;
    }
    let inner = &before[start + 1..];
    inner.first().is_some_and(u8::is_ascii_digit)
        && inner.iter().all(|byte| byte.is_ascii_digit() || *byte == b',')
}

fn explain(pattern: &str, error: &regex::Error) -> String {
    if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|start| pattern.contains(start)) {
        return format!("look-around in the regular expression `{pattern}` is not supported yet");
    }
    match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("the regular expression `{pattern}` is too large: it would take more than {limit} bytes")
        }
        // The last line says what is wrong; those before it draw an underline that the diagnostic draws itself.
        other => {
            let text = other.to_string();
            let cause = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("regular expression `{pattern}` is invalid: {cause}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_written_for_pcre_compile_and_match() {
        let cases: &[(&str, &str, bool)] = &[
            (r"^/api/v[0-9]{1,2}/", "/api/v12/x", true),
            (r"^[[a]", "[", true),
            (r"[]x]", "]", true),
            (r"a{b}", "a{b}", true),
            (r"\/path\/", "/path/", true),
            (r"[a&&b]", "&", true),
            (r"[[:digit:]]+$", "a12", true),
            (r"^[\w.-]+$", "a-b.c", true),
            (r"^\x41$", "A", true),
            (r"^é$", "é", true),
        ];
        for (pattern, text, expected) in cases {
            let regex = Regex::new(pattern, false).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(regex.is_match(text.as_bytes()), *expected, "{pattern}");
        }
    }

    #[test]
    fn look_around_is_refused_by_name() {
        assert!(Regex::new("^(?!x)", false).unwrap_err().contains("look-around"));
    }

    #[test]
    fn references_are_filled_from_the_match() {
        let regex = Regex::new("^/(here)(/|$)", false).unwrap();
        let replaced = regex.replace(b"/here/x", br"my/\1\x2d\\", true).unwrap();
        assert_eq!(&replaced[..], br"my/here-\x");
        assert!(regex.replace(b"/there", b"", true).is_none());
    }
}
