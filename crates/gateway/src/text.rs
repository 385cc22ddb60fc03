//! Words and lines of configuration text. Values from objects become text only through the functions of this module.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Whether a value can be written into a line. Control characters cannot.
pub(crate) fn is_printable(value: &str) -> bool {
    !value.chars().any(char::is_control)
}

/// A word that means exactly `value`, which has no control characters.
pub(crate) fn quote(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:*@=~,".contains(&byte);
    if !value.is_empty() && value.bytes().all(is_plain) {
        return value.into();
    }
    let kept: String = value.chars().filter(|c| !c.is_control()).collect();
    format!("'{}'", kept.replace('\'', "'\\''"))
}

/// The words of a condition that compare a sample with `value`, with these flags before the pattern.
pub(crate) fn equal_to(value: &str, flags: &str) -> String {
    match value {
        // A word cannot be empty.
        "" => "-m len 0".into(),
        // This word would end the condition.
        "}" => "-m reg -- '^\\}$'".into(),
        _ => format!("-m str {flags}-- {}", quote(value)),
    }
}

/// A log format that renders exactly `value`.
pub(crate) fn literal(value: &str) -> String {
    value.replace('%', "%%")
}

/// Whether a text is a token, as names of headers and methods are.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Whether a text can be an argument of a fetch, without quotes or escapes.
pub(crate) fn is_argument(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Whether a text is a hostname, or one after `*.`.
pub(crate) fn is_hostname(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        })
}

/// A short text that depends on the content.
pub(crate) fn digest(content: &(impl Hash + ?Sized)) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// A text for the name of a section, unique for each value.
pub(crate) fn section_name(value: &str) -> String {
    if value.len() <= 120 && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
    {
        return value.into();
    }
    let kept: String = value
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.:".contains(c) { c } else { '-' })
        .take(80)
        .collect();
    format!("{kept}-{}", digest(value))
}

/// Configuration text.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// Begins a section.
    pub(crate) fn section(&mut self, kind: &str, name: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.0, "{gap}{}", format!("{kind} {name}").trim_end());
    }

    /// Adds a line to the section. Line ends in it would be removed, because values have none.
    pub(crate) fn line(&mut self, line: &str) {
        self.0.push_str("    ");
        if line.contains(['\n', '\r', '\0']) {
            self.0.extend(line.chars().filter(|c| !matches!(c, '\n' | '\r' | '\0')));
        } else {
            self.0.push_str(line);
        }
        self.0.push('\n');
    }

    /// Adds lines that the administrator wrote.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.push('\n');
            self.0.push_str(text.trim_end());
            self.0.push('\n');
        }
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// `text.line(&format!(…))`.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => { $text.line(&format!($($arg)*)) };
}
pub(crate) use line;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_if_necessary() {
        assert_eq!(quote("a-b.c:1"), "a-b.c:1");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("it's"), "'it'\\''s'");
        assert_eq!(quote("a\nb"), "'ab'");
        assert_eq!(quote("$x #y \\z"), "'$x #y \\z'");
    }

    #[test]
    fn every_value_has_a_pattern_in_conditions() {
        assert_eq!(equal_to("a b", "-i "), "-m str -i -- 'a b'");
        assert_eq!(equal_to("}", "-i "), "-m reg -- '^\\}$'");
        assert_eq!(equal_to("", ""), "-m len 0");
    }

    #[test]
    fn section_names_are_unique() {
        assert_eq!(section_name("a_b_80"), "a_b_80");
        assert_ne!(section_name("a b"), section_name("a-b"));
        assert_ne!(section_name("a b"), section_name("a\tb"));
    }
}
