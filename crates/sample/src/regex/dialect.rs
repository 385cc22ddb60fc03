//! Translates PCRE patterns to the syntax of the `regex` crate.
//!
//! The two treat some characters differently: `[`, `&&`, `--` and `~~` in a class, and braces without a repetition, are literal
//! only in PCRE, and some escapes differ. A pattern is split into [`Token`]s, and each is written in the other syntax. Constructs
//! that only PCRE supports are kept, so that the `regex` crate refuses them and PCRE2 is used for the pattern.

/// A pattern that the `regex` crate refuses.
const UNSUPPORTED: &str = "(?=)";

/// Rewrites `pattern`.
pub(crate) fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut after_quantifier = false;
    for token in Tokens::new(pattern) {
        match token {
            // The `regex` crate would read the possessive `a++` as `(a+)+`.
            Token::Quantifier('+') if after_quantifier => return UNSUPPORTED.to_owned(),
            Token::Escape { next, in_class } => escape(next, in_class, &mut out),
            Token::ClassStart { is_negated, has_bracket } => {
                out.push_str(if is_negated { "[^" } else { "[" });
                out.push_str(if has_bracket { "\\]" } else { "" });
            }
            Token::NamedClass(name) => out.push_str(name),
            Token::Literal(c) => out.extend(['\\', c]),
            Token::Quantifier(c) | Token::Other(c) => out.push(c),
        }
        after_quantifier = match token {
            // After another quantifier, it makes that quantifier lazy.
            Token::Quantifier('?') => !after_quantifier,
            Token::Quantifier(_) => true,
            _ => false,
        };
    }
    out
}

/// Writes an escape of the character `next`. Without one, the pattern ends with a backslash.
fn escape(next: Option<char>, in_class: bool, out: &mut String) {
    match next {
        Some('h') if !in_class => out.push_str("[ \\t]"),
        Some('e') => out.push_str("\\x1b"),
        Some('Z') => out.push_str("\\z"),
        // The `regex` crate would read these escapes as word boundaries.
        Some(c @ ('<' | '>')) => out.push(c),
        Some(c) => out.extend(['\\', c]),
        None => out.push('\\'),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A backslash, and the character after it.
    Escape { next: Option<char>, in_class: bool },
    /// `[`, possibly followed by `^`, and possibly by a literal `]` as the first member.
    ClassStart { is_negated: bool, has_bracket: bool },
    /// `[:alpha:]` in a class.
    NamedClass(&'a str),
    /// `*`, `+`, `?`, or the `}` of a repetition.
    Quantifier(char),
    /// A literal character that the `regex` crate would parse as syntax.
    Literal(char),
    /// Any other character, with the same meaning in both.
    Other(char),
}

/// The tokens of a pattern.
struct Tokens<'a> {
    pattern: &'a str,
    at: usize,
    in_class: bool,
}

impl<'a> Tokens<'a> {
    fn new(pattern: &'a str) -> Self {
        Self { pattern, at: 0, in_class: false }
    }

    fn rest(&self) -> &'a str {
        &self.pattern[self.at..]
    }

    /// Takes the next character.
    fn take(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Takes the next character if it is `wanted`.
    fn take_if(&mut self, wanted: char) -> bool {
        let is_next = self.rest().starts_with(wanted);
        self.at += if is_next { wanted.len_utf8() } else { 0 };
        is_next
    }

    fn class_start(&mut self) -> Token<'a> {
        self.in_class = true;
        let is_negated = self.take_if('^');
        let has_bracket = self.take_if(']');
        Token::ClassStart { is_negated, has_bracket }
    }

    /// The token for `c`, which is at `start` in a class.
    fn member(&mut self, c: char, start: usize) -> Token<'a> {
        let bytes = self.pattern.as_bytes();
        match c {
            ']' => {
                self.in_class = false;
                Token::Other(c)
            }
            '[' if self.rest().starts_with(':')
                && let Some(length) = self.rest().find(":]") =>
            {
                self.at += length + 2;
                Token::NamedClass(&self.pattern[start..self.at])
            }
            '[' | '&' | '~' => Token::Literal(c),
            '-' if self.rest().starts_with('-') || bytes[..start].ends_with(b"-") => Token::Literal(c),
            _ => Token::Other(c),
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let start = self.at;
        let c = self.take()?;
        Some(match c {
            '\\' => Token::Escape { in_class: self.in_class, next: self.take() },
            _ if self.in_class => self.member(c, start),
            '[' => self.class_start(),
            '*' | '+' | '?' => Token::Quantifier(c),
            '{' if begins_repetition(self.rest()) => Token::Other(c),
            '}' if ends_repetition(&self.pattern[..start]) => Token::Quantifier(c),
            '{' | '}' => Token::Literal(c),
            _ => Token::Other(c),
        })
    }
}

/// Whether a brace that is followed by `rest` starts a repetition.
fn begins_repetition(rest: &str) -> bool {
    rest.split_once('}').is_some_and(|(inner, _)| is_count(inner))
}

/// Whether a closing brace that follows `before` ends a repetition or an escape.
fn ends_repetition(before: &str) -> bool {
    let Some((outside, inner)) = before.rsplit_once('{') else { return false };
    // The braces of `\x{..}` and `\p{..}` belong to their escapes.
    let is_escape = outside.as_bytes().iter().rev().nth(1) == Some(&b'\\');
    is_escape || is_count(inner)
}

/// Whether the text consists of one or two numbers, as in a repetition.
fn is_count(inner: &str) -> bool {
    inner.starts_with(|c: char| c.is_ascii_digit()) && inner.bytes().all(|b| b.is_ascii_digit() || b == b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_construct_is_written_in_the_other_syntax() {
        for (pattern, translated) in [
            (r"^/api/v[0-9]{1,2}/.*$", r"^/api/v[0-9]{1,2}/.*$"),
            // Classes.
            ("[[a]", r"[\[a]"),
            ("[]x]", r"[\]x]"),
            ("[^]x]", r"[^\]x]"),
            ("[^^]", "[^^]"),
            ("[a&&b]", r"[a\&\&b]"),
            ("[a~~b]&~", r"[a\~\~b]&~"),
            ("[a--b]", r"[a\-\-b]"),
            ("[a-z-]-", "[a-z-]-"),
            ("[[:alpha:]_]", "[[:alpha:]_]"),
            ("[[:alpha]", r"[\[:alpha]"),
            ("[*+?{}]++", "(?=)"),
            ("[a]]", "[a]]"),
            ("[a", "[a"),
            // Braces.
            ("a{b}", r"a\{b\}"),
            ("a{1,}b{2}{", r"a{1,}b{2}\{"),
            ("a{,2}", r"a\{,2\}"),
            ("}", r"\}"),
            (r"\p{Greek}", r"\p\{Greek}"),
            // Escapes.
            (r"\h\e\Z\<\>\.", r"[ \t]\x1b\z<>\."),
            (r"[\h\e]", r"[\h\x1b]"),
            (r"[\]]", r"[\]]"),
            (r"\\[", r"\\["),
            ("a\\", "a\\"),
            (r"é\é", r"é\é"),
            // Quantifiers.
            ("a+?b*?", "a+?b*?"),
            ("a?+", "(?=)"),
            ("a{2}+", "(?=)"),
            (r"\++", r"\++"),
            ("[+]+", "[+]+"),
        ] {
            assert_eq!(translate(pattern), translated, "{pattern}");
        }
    }
}
