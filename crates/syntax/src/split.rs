//! Splits one line of text into words (manual, sections 2.2 and 2.3).
//!
//! Words without quotes, escapes and variables, which is nearly all of them, are taken from the text unchanged; the others are
//! built in a buffer. Non-ASCII bytes never cause an error: they are part of words.

use crate::environment::Environment;
use crate::word::{Word, WordForm};
use base::raw::bytes_of;
use diag::{Diagnostic, FileId, Span};

/// Maximum length of a line after expansion of variables.
const MOST_EXPANDED: usize = 16 << 20;

/// The variables whose value depends on the position: `.FILE`, `.LINE` and `.SECTION`.
#[derive(Debug, Clone, Copy, Default)]
pub struct PseudoVariables<'a> {
    /// `.FILE`: the name of the file.
    pub file: &'a str,
    /// `.LINE`: the number of the line, from 1.
    pub line: u32,
    /// `.SECTION`: the name of the section, or its type if it has no name.
    pub section: &'a str,
}

/// Splits `text`, at byte `offset` of `file` and without a line feed, into `words`.
pub fn split_text(
    text: &[u8],
    file: FileId,
    offset: usize,
    environment: &Environment,
    pseudo: PseudoVariables<'_>,
    words: &mut Vec<Word>,
) -> Result<(), Diagnostic> {
    words.clear();
    let mut at = 0;
    loop {
        while text.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        match text.get(at) {
            None | Some(b'#') => return Ok(()),
            Some(_) => {}
        }
        let length = text[at..].iter().take_while(|byte| CLASS[usize::from(**byte)] == 0).count();
        let end = at + length;
        if text.get(end).is_none_or(|byte| is_space(*byte) || *byte == b'#') {
            let span = Span::new(file, offset + at, offset + end);
            words.push(Word::from_bytes(&text[at..end], span, WordForm::Plain));
            at = end;
        } else {
            let mut splitter =
                Splitter { text, file, offset, environment, pseudo, words, word: Vec::new(), start: at, at };
            splitter.run()?;
            at = splitter.at;
        }
    }
}

/// The class of a byte outside quotes: 0 for a plain byte of a word.
static CLASS: [u8; 256] = {
    let mut class = [0u8; 256];
    let special = b" \t\n\r\x0b\x0c#\"'\\";
    let mut index = 0;
    while index < special.len() {
        class[special[index] as usize] = 1;
        index += 1;
    }
    class
};

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Splits off one word with quotes or escapes, or the several words that a `${NAME[*]}` expands to.
struct Splitter<'a> {
    text: &'a [u8],
    file: FileId,
    offset: usize,
    environment: &'a Environment,
    pseudo: PseudoVariables<'a>,
    words: &'a mut Vec<Word>,
    /// The word so far.
    word: Vec<u8>,
    start: usize,
    at: usize,
}

impl Splitter<'_> {
    fn run(&mut self) -> Result<(), Diagnostic> {
        let (mut double, mut single) = (None, None);
        let mut expanded = false;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\'' if double.is_none() => single = toggled(single, self.at),
                b'"' if single.is_none() => double = toggled(double, self.at),
                _ if single.is_some() => self.word.push(byte),
                b'\\' => {
                    self.escape(double.is_some())?;
                    continue;
                }
                b'$' if double.is_some() => {
                    expanded |= self.variable()?;
                    continue;
                }
                b'#' if double.is_none() => break,
                _ if double.is_none() && is_space(byte) => break,
                _ => self.word.push(byte),
            }
            self.at += 1;
        }
        if let Some(quote) = double.or(single) {
            return Err(self.error(
                quote,
                quote + 1,
                "unmatched quote",
                "the quote that starts here is not closed",
            ));
        }
        if !(expanded && self.word.is_empty()) {
            self.finish_word();
        }
        Ok(())
    }

    fn finish_word(&mut self) {
        let span = Span::new(self.file, self.offset + self.start, self.offset + self.at);
        let source = &self.text[self.start..self.at];
        let quoted = source.len() == self.word.len() + 2
            && matches!(source, [b'"', inside @ .., b'"'] | [b'\'', inside @ .., b'\''] if inside == self.word);
        self.words.push(Word::from_bytes(
            &self.word,
            span,
            if quoted { WordForm::Quoted } else { WordForm::Altered },
        ));
        self.word.clear();
    }

    /// Handles a backslash outside single quotes. The backslash is kept before any character that is not listed in this function,
    /// and also before a dollar sign outside double quotes, as in HAProxy (which differs from the table of section 2.2).
    fn escape(&mut self, quoted: bool) -> Result<(), Diagnostic> {
        let escaped = match self.text.get(self.at + 1) {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'x') => {
                let digit = |index: usize| self.text.get(index).and_then(|byte| (*byte as char).to_digit(16));
                let (Some(high), Some(low)) = (digit(self.at + 2), digit(self.at + 3)) else {
                    let end = (self.at + 4).min(self.text.len());
                    let text = "truncated or invalid hexadecimal sequence";
                    return Err(self.error(
                        self.at,
                        end,
                        text,
                        "`\\x` must be followed by two hexadecimal digits",
                    ));
                };
                self.word.push((high * 16 + low) as u8);
                self.at += 4;
                return Ok(());
            }
            Some(b'$') if quoted => b'$',
            Some(&other @ (b' ' | b'\t' | b'#' | b'\\' | b'\'' | b'"')) => other,
            _ => {
                self.word.push(b'\\');
                self.at += 1;
                return Ok(());
            }
        };
        self.word.push(escaped);
        self.at += 2;
        Ok(())
    }

    /// Expands a variable inside double quotes; returns whether it has the form `${NAME[*]}`.
    fn variable(&mut self) -> Result<bool, Diagnostic> {
        let dollar = self.at;
        let braced = self.text.get(dollar + 1) == Some(&b'{');
        let name_start = dollar + 1 + usize::from(braced);
        let dot = usize::from(self.text.get(name_start) == Some(&b'.'));
        let name_bytes = self.text.get(name_start + dot..).unwrap_or_default();
        let length =
            name_bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        let is_name = name_bytes.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
        // Only pseudo-variables begin with a dot; a JSON path is not a variable.
        let is_own = matches!(&name_bytes[..length], b"FILE" | b"LINE" | b"SECTION");
        if !is_name || dot > 0 && !is_own {
            let text = "forbidden first char in environment variable name";
            let advice = "a name starts with a letter or `_`; write `\\$` for a dollar sign";
            return Err(self.error(name_start, name_start + 1, text, advice));
        }
        let length = dot + length;
        let name =
            std::str::from_utf8(&self.text[name_start..name_start + length]).unwrap_or_default().to_owned();
        self.at = name_start + length;
        let (mut many, mut default) = (false, None);
        if braced {
            if self.text.get(self.at) == Some(&b'[') {
                if !self.text[self.at..].starts_with(b"[*]") {
                    let text = "truncated or invalid word expansion sequence";
                    return Err(self.error(self.at, self.at + 1, text, "only `[*]` is allowed here"));
                }
                many = true;
                self.at += 3;
            }
            if self.text.get(self.at) == Some(&b'-') {
                let end = self.text[self.at..].iter().position(|byte| *byte == b'}');
                let end = end.map_or(self.text.len(), |end| self.at + end);
                default = Some(self.text[self.at + 1..end].to_vec());
                self.at = end;
            }
            if self.text.get(self.at) != Some(&b'}') {
                let text = "unmatched brace in environment variable name";
                return Err(self.error(
                    dollar + 1,
                    dollar + 2,
                    text,
                    "the brace that starts here is not closed",
                ));
            }
            self.at += 1;
        }
        let value = self.value(&name).or(default).unwrap_or_default();
        let so_far: usize = self.words.iter().map(|word| word.len()).sum::<usize>() + self.word.len();
        if so_far + value.len() > MOST_EXPANDED {
            let advice = format!("the limit is {} MiB, after variables are expanded", MOST_EXPANDED >> 20);
            return Err(self.error(dollar, self.at, "line too long", &advice));
        }
        if many {
            self.push_words(&value)
        } else {
            self.word.extend_from_slice(&value)
        }
        Ok(many)
    }

    fn value(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            ".FILE" => Some(bytes_of(self.pseudo.file).into()),
            ".LINE" => Some(self.pseudo.line.to_string().into_bytes()),
            ".SECTION" => Some(self.pseudo.section.into()),
            _ => self.environment.get(name).map(|value| bytes_of(value).into()),
        }
    }

    /// Adds a value, split into words at runs of spaces; text directly before and after the variable joins the first and last word.
    fn push_words(&mut self, value: &[u8]) {
        for byte in value {
            if !is_space(*byte) {
                self.word.push(*byte);
            } else if !self.word.is_empty() {
                self.finish_word();
            }
        }
    }

    /// Builds an error for the bytes `start..end` of the line; HAProxy's form shows the line with a caret.
    fn error(&self, start: usize, end: usize, text: &str, advice: &str) -> Diagnostic {
        let blanks = self.text.iter().take_while(|byte| is_space(**byte)).count();
        let line = String::from_utf8_lossy(&self.text[blanks..]);
        let caret = start.saturating_sub(blanks) + 3;
        let end = end.min(self.text.len()).max(start);
        Diagnostic::alert(text)
            .at(Span::new(self.file, self.offset + start, self.offset + end))
            .label(advice)
            .haproxy(format!(": {text} at position {}:\n  {line}\n{:>caret$}", start + 1, '^'))
    }
}

fn toggled(open: Option<usize>, at: usize) -> Option<usize> {
    if open.is_some() { None } else { Some(at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &[u8]) -> Result<Vec<Word>, Diagnostic> {
        let environment: Environment =
            [("A", "one"), ("LIST", " a  b "), ("EMPTY", ""), ("_9", "u"), ("RAW", "-\u{10ffe9}-")]
                .into_iter()
                .collect();
        let pseudo = PseudoVariables { file: "x.cfg", line: 12, section: "web" };
        let mut words = Vec::new();
        split_text(text, FileId(0), 100, &environment, pseudo, &mut words).map(|()| words)
    }

    #[test]
    fn quoting_rules_hold() {
        let cases: &[(&[u8], &[&[u8]])] = &[
            (b"", &[]),
            (b"  \t ", &[]),
            (b"# only a comment", &[]),
            (b"a b\tc\r", &[b"a", b"b", b"c"]),
            (b"global#this is the global section", &[b"global"]),
            (b"a \\# b", &[b"a", b"#", b"b"]),
            (b"a\\ b", &[b"a b"]),
            (b"a\\\tb", &[b"a\tb"]),
            (b"\\\\ \\' \\\"", &[b"\\", b"'", b"\""]),
            (b"\\n\\r\\t\\x41\\x7e", &[b"\n\r\tA~"]),
            (b"\\x80", &[b"\x80"]),
            (b"a\\qb a\\", &[b"a\\qb", b"a\\"]),
            (b"\"a b\" 'c d'", &[b"a b", b"c d"]),
            (b"\"it's\" '\"' \"#\" '#'", &[b"it's", b"\"", b"#", b"#"]),
            (b"\"\\\"\" \"\\n\" \"\\\\\" \"\\ \"", &[b"\"", b"\n", b"\\", b" "]),
            (b"'\\n$A\\'", &[b"\\n$A\\"]),
            (b"\"\" x ''", &[b"", b"x", b""]),
            (b"a\"b\"'c'd", &[b"abcd"]),
            (b"$A \\$A ${A} ^/a\\$ \"\\$\"", &[b"$A", b"\\$A", b"${A}", b"^/a\\$", b"$"]),
            (b"\"$A\" \"${A}b\" \"$A.b\" \"\\$A\"", &[b"one", b"oneb", b"one.b", b"$A"]),
            (b"\"$_9\"", &[b"u"]),
            (b"\"$RAW\" \"${RAW[*]}\"", &[b"-\xe9-", b"-\xe9-"]),
            (b"\"$NONE\" \"$EMPTY\"", &[b"", b""]),
            (b"\"${NONE-d e}\" \"${EMPTY-d}\" \"${A-d}\" \"${NONE-}\"", &[b"d e", b"", b"one", b""]),
            (b"\"${LIST[*]}\"", &[b"a", b"b"]),
            (b"\"x${LIST[*]}y\"z", &[b"x", b"a", b"b", b"yz"]),
            (b"\"${NONE[*]}\" \"${EMPTY[*]}\" end", &[b"end"]),
            (b"\"${NONE[*]-p q}\"", &[b"p", b"q"]),
            (b"\"${.FILE}:${.LINE}\" \"$.SECTION\"", &[b"x.cfg:12", b"web"]),
            (b"log-format %{+Q}o\\ %t\\ %s\\ %{-Q}r", &[b"log-format", b"%{+Q}o %t %s %{-Q}r"]),
            (b"log-format \"%{+Q}o %t\"' %s %{-Q}r'", &[b"log-format", b"%{+Q}o %t %s %{-Q}r"]),
            (b"log-format \"%{+Q}o %t\"' %s'\\ %{-Q}r", &[b"log-format", b"%{+Q}o %t %s %{-Q}r"]),
            (b"caf\xe9 \xc3\xa9", &[b"caf\xe9", b"\xc3\xa9"]),
            // A private-use character that represents a raw byte in other places.
            (b"'\xf4\x8f\xbc\x80'", &[b"\xf4\x8f\xbc\x80"]),
        ];
        for (text, expected) in cases {
            let shown = String::from_utf8_lossy(text);
            let words = split(text).unwrap_or_else(|error| panic!("{shown}: {error:?}"));
            let bytes: Vec<std::borrow::Cow<'_, [u8]>> = words.iter().map(Word::bytes).collect();
            assert_eq!(bytes, *expected, "{shown}");
        }
    }

    #[test]
    fn quoting_errors_name_the_byte_as_in_haproxy() {
        let cases: &[(&str, &str, u32)] = &[
            (" .notice \"a\\", "unmatched quote at position 10:\n  .notice \"a\\\n          ^", 9),
            ("x 'abc", "unmatched quote at position 3:\n  x 'abc\n    ^", 2),
            ("a\\x4", "truncated or invalid hexadecimal sequence at position 2:\n  a\\x4\n   ^", 1),
            ("\"\\xg0\"", "truncated or invalid hexadecimal sequence at position 2:\n  \"\\xg0\"\n   ^", 1),
            ("\"${Ab\"", "unmatched brace in environment variable name at position 3:\n  \"${Ab\"\n    ^", 2),
            (
                "\"${A:-b}\"",
                "unmatched brace in environment variable name at position 3:\n  \"${A:-b}\"\n    ^",
                2,
            ),
            (
                "\"$1\"",
                "forbidden first char in environment variable name at position 3:\n  \"$1\"\n    ^",
                2,
            ),
            (
                "\"$.a\"",
                "forbidden first char in environment variable name at position 3:\n  \"$.a\"\n    ^",
                2,
            ),
            (
                "\"${}\"",
                "forbidden first char in environment variable name at position 4:\n  \"${}\"\n     ^",
                3,
            ),
            (
                "\"${A[1]}\"",
                "truncated or invalid word expansion sequence at position 5:\n  \"${A[1]}\"\n      ^",
                4,
            ),
        ];
        for (text, message, at) in cases {
            let error = split(text.as_bytes()).unwrap_err();
            assert_eq!(error.haproxy.as_deref(), Some(format!(": {message}").as_str()), "{text}");
            assert_eq!(error.span.unwrap().start, 100 + at, "{text}");
        }
    }

    #[test]
    fn parts_of_words_map_to_file_positions() {
        let words = split(b"plain \"quo ted\" al\\ tered").unwrap();
        assert_eq!(words[0].part(2, 4), Span::new(FileId(0), 102, 104));
        assert_eq!(words[1].part(4, 7), Span::new(FileId(0), 111, 114));
        assert_eq!(words[2].part(1, 2), words[2].span());
        assert_eq!(words[0].tail(3).as_str(), "in");
        assert_eq!(words[0].tail(3).span(), Span::new(FileId(0), 103, 105));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_split_or_give_an_error(
            text in proptest::collection::vec(
                prop_oneof![any::<u8>(), proptest::sample::select(&b" \t\"'\\$#{}[*]-Ax.LINE"[..])], 0..60)
        ) {
            let text: Vec<u8> = text.into_iter().filter(|byte| *byte != b'\n').collect();
            match split(&text) {
                Ok(words) => for word in words {
                    let span = word.span();
                    prop_assert!(span.start >= 100 && span.end as usize <= 100 + text.len() && !span.is_empty());
                },
                Err(error) => prop_assert!(error.span.unwrap().end as usize <= 100 + text.len()),
            }
        }

        #[test]
        fn single_quotes_protect_everything_except_themselves(text in "[^'\\n]{0,40}") {
            let words = split(format!("'{text}'").as_bytes()).unwrap();
            prop_assert_eq!(words.len(), 1);
            prop_assert_eq!(&*words[0].bytes(), text.as_bytes());
        }
    }
}
