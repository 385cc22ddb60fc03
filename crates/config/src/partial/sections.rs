//! Finds the beginnings of sections in a text, by the first words of its lines.

use plan::source_text::SectionStart;

use crate::draft::section_names;

/// Returns the beginnings of all sections, or `None` if they cannot be found without parsing: if there are conditional blocks, or
/// lines in which the first word is quoted or contains a variable.
pub(super) fn starts(text: &[u8]) -> Option<Vec<SectionStart>> {
    let mut starts = Vec::new();
    let mut at = 0;
    let mut number = 0;
    while at < text.len() {
        number += 1;
        let rest = &text[at..];
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        let blanks = line.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let first = &line[blanks..];
        let length = first.iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
        let word = &first[..length];
        if word.first() == Some(&b'.') || word.iter().any(|byte| matches!(byte, b'"' | b'\'' | b'\\' | b'$'))
        {
            return None;
        }
        // A comment may follow the keyword without a blank.
        let word = &word[..memchr::memchr(b'#', word).unwrap_or(word.len())];
        if section_names().any(|name| name.as_bytes() == word) {
            starts.push(SectionStart { at: u32::try_from(at).ok()?, line: number, is_separate: false });
        }
        at += end + 1;
    }
    Some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_begin_at_lines_with_their_keywords() {
        let text = b"# a\nglobal\n  maxconn 5 # backend x\n\n\t backend b # c\nbackends\n#backend\nlisten#\n";
        let starts = starts(text).expect("simple lines");
        let found: Vec<_> = starts.iter().map(|start| (start.at, start.line)).collect();
        assert_eq!(found, [(4, 2), (36, 5), (70, 8)]);
    }

    #[test]
    fn lines_that_need_a_parser_are_refused() {
        for line in [".if 1", "  .endif", "\"backend\" b", "b\\x61ckend b", "$KIND b", "'global'"] {
            assert_eq!(starts(format!("global\n{line}\n").as_bytes()), None, "{line}");
        }
    }
}
