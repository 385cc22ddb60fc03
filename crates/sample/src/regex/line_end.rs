//! The end of a text as in PCRE: `$` and `\Z` match at the very end and before a final line ending. The `regex` crate supports
//! only the very end, so a text with a final line ending is matched a second time without it.
//!
//! This costs nothing for other texts, which are the vast majority.

use regex::bytes::{Captures, Regex};

/// Whether `$` or `\Z` occurs in `pattern` unescaped and outside a class.
pub(super) fn looks_for_end(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let (mut at, mut in_class) = (0, false);
    while let Some(byte) = bytes.get(at) {
        match (byte, in_class) {
            (b'$', false) => return true,
            (b'\\', _) => {
                if !in_class && bytes.get(at + 1) == Some(&b'Z') {
                    return true;
                }
                at += 1;
            }
            (b'[', false) => {
                in_class = true;
                at += usize::from(bytes.get(at + 1) == Some(&b'^'));
                // A bracket at the very start is a literal.
                at += usize::from(bytes.get(at + 1) == Some(&b']'));
            }
            (b'[', true) if bytes.get(at + 1) == Some(&b':') => {
                at += pattern.get(at..).and_then(|rest| rest.find(":]")).map_or(0, |length| length + 1);
            }
            (b']', true) => in_class = false,
            _ => {}
        }
        at += 1;
    }
    false
}

/// `bytes` without the final line end, if there is one and the pattern looks for the end.
#[inline]
pub(super) fn before_line_end(bytes: &[u8], looks_for_end: bool) -> Option<&[u8]> {
    if looks_for_end { bytes.strip_suffix(b"\n") } else { None }
}

/// The first match at or after `at`, in `bytes` or in `bytes` without its final line end.
pub(super) fn captures_at<'b>(
    regex: &Regex,
    bytes: &'b [u8],
    before: &'b [u8],
    at: usize,
) -> Option<Captures<'b>> {
    let start = |found: &Captures<'b>| found.get(0).map(|whole| whole.start());
    let found = regex.captures_at(bytes, at);
    let earlier = if at <= before.len() { regex.captures_at(before, at) } else { None };
    match (found, earlier) {
        (Some(found), Some(earlier)) if start(&earlier) < start(&found) => Some(earlier),
        (found, earlier) => found.or(earlier),
    }
}

#[cfg(test)]
mod tests {
    use super::looks_for_end;
    use crate::regex::{Lean, Regex, RegexSet};

    #[test]
    fn end_anchors_are_recognized() {
        for pattern in ["a$", "^$", "(a$|b)", "[]$]$", "[[:alpha:]$]$", "a\\Z", "[^]]$", "\\\\$"] {
            assert!(looks_for_end(pattern), "{pattern}");
        }
        for pattern in ["a\\$", "[$]", "[]$]", "[^]$]", "[[:alpha:]$]", "a\\z", "[\\]$]", "a"] {
            assert!(!looks_for_end(pattern), "{pattern}");
        }
    }

    #[test]
    fn end_anchors_match_before_a_final_line_end() {
        let patterns = [
            "a$", "^a$", "^$", "$", "a\\Z", "(a|b)+$", "[^b]*$", "\\w+$", "a\\n$", "b?$", "a\\z", "(a$)",
            "a[$]?", "c",
        ];
        let texts = ["a", "a\n", "a\n\n", "\n", "", "ab\n", "ba\nb\n", "a\nb", "a\r\n", "b a\n", "a$\n"];
        for pattern in patterns {
            let (fast, lean) = (Regex::new(pattern, false).unwrap(), Lean::new(pattern, false).unwrap());
            let set = RegexSet::new([pattern, "never"], false).unwrap();
            let pcre = pcre2::bytes::Regex::new(pattern).unwrap();
            assert!(fast.is_linear(), "{pattern}");
            for text in texts.map(str::as_bytes) {
                let (of, expected) =
                    ((pattern, text.escape_ascii().to_string()), pcre.is_match(text).unwrap());
                assert_eq!(fast.is_match(text), expected, "{of:?}");
                assert_eq!(lean.is_match(text), expected, "{of:?}");
                assert_eq!(
                    (set.is_match(text), set.first(text)),
                    (expected, expected.then_some(0)),
                    "{of:?}"
                );
                let whole = pcre.captures(text).unwrap().map(|found| found[0].to_vec());
                for expand in [&|out: &mut Vec<u8>| fast.expand(text, br"\0", out), &|out: &mut Vec<u8>| {
                    lean.expand(text, br"\0", out)
                }] as [&dyn Fn(&mut Vec<u8>) -> bool; 2]
                {
                    let mut out = Vec::new();
                    let found = expand(&mut out).then_some(out);
                    assert_eq!(found, whole, "{of:?}");
                }
            }
        }
    }

    #[test]
    fn replacing_keeps_the_final_line_end() {
        let cases: &[(&str, &str, bool, &str)] = &[
            ("a$", "ba\n", false, "bX\n"),
            ("$", "a\n", false, "aX\n"),
            ("$", "a\n", true, "aXX\nX"),
            ("a", "aa\n", true, "XX\n"),
            ("(a|b$)", "abb\n", true, "XbX\n"),
            ("a$", "a", true, "X"),
        ];
        for (pattern, text, all, expected) in cases {
            let replaced = Regex::new(pattern, false).unwrap().replace(text.as_bytes(), b"X", *all);
            assert_eq!(
                replaced.as_ref().map(|text| &text[..]),
                Some(expected.as_bytes()),
                "{pattern} {text:?}"
            );
        }
    }
}
