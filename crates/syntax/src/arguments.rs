//! The arguments between the parentheses of a predicate (manual, section 2.2: the second level of quoting).
//!
//! The rules are the same as for words, except that `\#`, `\$` and `\xNN` are not special, and that a comma or the closing
//! parenthesis ends an argument.

/// The arguments, and the offset of the byte after them: `)`, or the end of the text.
pub(crate) struct Arguments {
    pub(crate) values: Vec<Argument>,
    pub(crate) end: usize,
}

/// An argument and its start offset in the text.
pub(crate) struct Argument {
    pub(crate) text: String,
    pub(crate) start: usize,
}

/// Parses the arguments from byte `start`, which follows the opening parenthesis. `Err` contains the offset of an unterminated
/// quote.
pub(crate) fn parse_arguments(text: &str, start: usize) -> Result<Arguments, usize> {
    let bytes = text.as_bytes();
    let mut values = Vec::new();
    let mut value: Vec<u8> = Vec::new();
    let (mut at, mut value_start) = (start, start);
    let mut quote: Option<(u8, usize)> = None;
    loop {
        let Some(&byte) = bytes.get(at) else {
            if let Some((_, opened)) = quote {
                return Err(opened);
            }
            break;
        };
        match (byte, quote) {
            (b'"' | b'\'', None) => quote = Some((byte, at)),
            (b'"' | b'\'', Some((open, _))) if open == byte => quote = None,
            (b'\\', None | Some((b'"', _))) => {
                let next = bytes.get(at + 1).copied();
                let escaped = match next {
                    Some(b'n') => Some(b'\n'),
                    Some(b'r') => Some(b'\r'),
                    Some(b't') => Some(b'\t'),
                    Some(b' ' | b'\\' | b'\'' | b'"' | b',') => next,
                    _ => None,
                };
                value.push(escaped.unwrap_or(b'\\'));
                at += usize::from(escaped.is_some());
            }
            (b',', None) => {
                values.push(Argument { text: text_of(&mut value), start: value_start });
                value_start = at + 1;
            }
            (b')', None) => break,
            _ => value.push(byte),
        }
        at += 1;
    }
    // `()` has no argument, `(,)` has two empty ones.
    if !values.is_empty() || at > start {
        values.push(Argument { text: text_of(&mut value), start: value_start });
    }
    Ok(Arguments { values, end: at })
}

fn text_of(value: &mut Vec<u8>) -> String {
    String::from_utf8(std::mem::take(value)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_end_at_commas_and_the_closing_parenthesis() {
        let cases: &[(&str, &[&str], usize)] = &[
            (")", &[], 0),
            ("a)", &["a"], 1),
            ("a,b)c", &["a", "b"], 3),
            (",)", &["", ""], 1),
            (" a , b )", &[" a ", " b "], 7),
            ("\"a,b\",'c)d')", &["a,b", "c)d"], 11),
            ("a\\,b\\\"\\n\\x41\\#)", &["a,b\"\n\\x41\\#"], 14),
            ("'a\\n')", &["a\\n"], 5),
            ("a", &["a"], 1),
            ("(a))", &["(a"], 2),
        ];
        for (text, expected, end) in cases {
            let parsed = parse_arguments(text, 0).unwrap_or_else(|at| panic!("{text}: {at}"));
            let texts: Vec<&str> = parsed.values.iter().map(|argument| argument.text.as_str()).collect();
            assert_eq!((texts.as_slice(), parsed.end), (*expected, *end), "{text}");
        }
        assert_eq!(parse_arguments("a,\"b)", 0).err(), Some(2));
    }
}
