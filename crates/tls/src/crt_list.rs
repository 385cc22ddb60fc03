//! Parses the lines of a crt-list: `<crtfile> [\[<sslbindconf> ...\]] [[!]<snifilter> ...]` (manual, 5.1 `crt-list`).
//!
//! This module splits the lines into words; the configuration interprets the options.

use crate::load_error::LoadError;

/// The maximum number of words in a line.
const WORDS_MAX: usize = 4096;

/// One line of a crt-list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrtListLine<'a> {
    /// The line number, from 1.
    pub number: usize,
    /// The file or alias of the certificate.
    pub certificate: &'a str,
    /// The words between the brackets.
    pub options: Vec<&'a str>,
    /// The words after the brackets.
    pub filters: Vec<&'a str>,
}

impl CrtListLine<'_> {
    /// Whether there are negative filters but no wildcard that they could restrict.
    pub fn excludes_from_nothing(&self) -> bool {
        self.filters.iter().any(|filter| filter.starts_with('!') && !filter.starts_with("!*"))
            && !self.filters.iter().any(|filter| filter.starts_with('*'))
    }
}

/// Parses the text of the crt-list called `file`, skipping empty lines and comments.
///
/// # Errors
/// An invalid line, with HAProxy's message.
pub fn parse<'a>(file: &str, text: &'a str) -> Result<Vec<CrtListLine<'a>>, LoadError> {
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let number = index + 1;
        let cause = |what: &str| LoadError::at(file, number, format!("parsing [{file}:{number}]: {what}"));
        if let Some(line) = line(number, text).map_err(cause)? {
            lines.push(line);
        }
    }
    Ok(lines)
}

/// Parses one line, or `None` if it is empty.
///
/// # Errors
/// HAProxy's message.
pub fn line(number: usize, text: &str) -> Result<Option<CrtListLine<'_>>, &'static str> {
    let (mut words, mut opened, mut closed) = (Vec::new(), None, None);
    if text.trim_start().starts_with('#') {
        return Ok(None);
    }
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { break };
        match first {
            '[' if opened.is_some() => return Err("too many '['"),
            '[' if words.is_empty() => return Err("file name must not start with '['"),
            '[' => opened = Some(words.len()),
            ']' if closed.is_some() => return Err("too many ']'"),
            ']' if opened.is_none() => return Err("missing '['"),
            ']' => closed = Some(words.len()),
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || c == '[' || c == ']');
                let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
                if words.len() == WORDS_MAX {
                    return Err("too many args");
                }
                words.push(word);
                rest = behind;
                continue;
            }
        }
        rest = &rest[1..];
    }
    let Some((&certificate, _)) = words.split_first() else { return Ok(None) };
    let (options, filters) = match (opened, closed) {
        (Some(opened), Some(closed)) if opened == 1 => (&words[opened..closed], &words[closed..]),
        (Some(_), Some(_)) => return Err("the options must follow the file name"),
        (Some(_), None) => return Err("missing ']'"),
        _ => (&words[..0], &words[1..]),
    };
    Ok(Some(CrtListLine { number, certificate, options: options.to_vec(), filters: filters.to_vec() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_into_words() {
        let text = "# comment\n\n  # another\na.pem\nb.pem [alpn h2,http/1.1 verify none] *.x.test !y.x.test\nc.pem[] *\n\td.pem f g\n";
        let lines = parse("list", text).unwrap();
        let brief: Vec<_> = lines
            .iter()
            .map(|l| (l.number, l.certificate, l.options.join(" "), l.filters.join(" ")))
            .collect();
        let row = |n, c, o: &str, f: &str| (n, c, o.to_owned(), f.to_owned());
        assert_eq!(
            brief,
            [
                row(4, "a.pem", "", ""),
                row(5, "b.pem", "alpn h2,http/1.1 verify none", "*.x.test !y.x.test"),
                row(6, "c.pem", "", "*"),
                row(7, "d.pem", "", "f g"),
            ]
        );
    }

    #[test]
    fn faults_name_file_line_and_cause() {
        for (text, cause) in [
            ("a.pem ]", "parsing [list:1]: missing '['"),
            ("\na.pem [x] y ]", "parsing [list:2]: too many ']'"),
            ("a.pem [x [y]", "parsing [list:1]: too many '['"),
            ("[x] a.pem", "parsing [list:1]: file name must not start with '['"),
            ("a.pem [alpn h2", "parsing [list:1]: missing ']'"),
            ("a.pem x [alpn h2]", "parsing [list:1]: the options must follow the file name"),
        ] {
            assert_eq!(parse("list", text).unwrap_err().to_string(), cause, "{text}");
        }
    }
}
