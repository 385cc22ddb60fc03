//! Finds the keywords that end-to-end tests use, by searching the sources of `tests/`, their configurations and scenarios.
//!
//! A configuration in a test is a Rust string or a file; both are split into the lines that the program would parse.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The syntactic position of a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// At the beginning of a line, or after `no` or `default`.
    Line,
    /// After the first word of a `bind` or `server` line.
    Parameter(&'a str),
    /// Between the brackets of a crt-list line, or after `ssl-f-use`.
    Listed,
    /// After the name of a rule set.
    Action(&'a str),
    /// In an expression or a condition.
    Fetch,
    /// After a comma in an expression.
    Converter,
    /// A runtime socket command.
    Command,
}

/// A line of a test, and its file.
struct Line {
    text: String,
    file: usize,
}

/// The lines of all tests.
pub(crate) struct Shown {
    files: Vec<String>,
    lines: Vec<Line>,
    /// The lines that contain a word, by word.
    by_word: HashMap<String, Vec<usize>>,
}

/// Tests of the documentation, which test no keyword.
const DOCUMENTATION: &str = "tests/tests/docs";

/// Returns the files in `folder` and in subfolders that contain a `main.rs` or `mod.rs`.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            all.push(path);
        } else if ["main.rs", "mod.rs"].iter().any(|root| path.join(root).is_file()) {
            all.extend(files(&path)?);
        }
    }
    all.sort();
    Ok(all)
}

/// Returns whether a character can be part of a keyword.
fn is_part(byte: char) -> bool {
    byte.is_ascii_alphanumeric() || "_-.".contains(byte)
}

impl Shown {
    /// Reads the tests of the workspace at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let mut shown = Self { files: Vec::new(), lines: Vec::new(), by_word: HashMap::new() };
        for folder in ["tests/tests", "tests/vtc", "tests/configs", "tests/src"] {
            for path in files(&root.join(folder)).map_err(|error| format!("{folder}: {error}"))? {
                let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                if name.starts_with(DOCUMENTATION) {
                    continue;
                }
                let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
                shown.add(name, &text);
            }
        }
        Ok(shown)
    }

    fn add(&mut self, name: String, text: &str) {
        let is_code = name.ends_with(".rs");
        self.files.push(format!("`{name}`"));
        let text = if is_code {
            text.replace("\\\"", " ").replace("\\n", "\n").replace("\\\n", "\n")
        } else {
            text.replace('"', " \n ")
        };
        let ends: &[char] = if is_code { &['\n', '"', ';'] } else { &['\n', ';'] };
        for line in text.split(ends).map(str::trim) {
            // A keyword in a comment does not count as used.
            if line.is_empty() || line.starts_with("//") || line.starts_with('#') {
                continue;
            }
            let number = self.lines.len();
            for word in line.split(|char| !is_part(char)).filter(|word| !word.is_empty()) {
                let at = self.by_word.entry(word.to_owned()).or_default();
                if at.last() != Some(&number) {
                    at.push(number);
                }
            }
            self.lines.push(Line { text: line.to_owned(), file: self.files.len() - 1 });
        }
    }

    /// Returns a file that uses the keyword, if there is one.
    pub(crate) fn find(&self, place: Place<'_>, name: &str) -> Option<&str> {
        let word = name.split(|char| !is_part(char)).find(|word| !word.is_empty())?;
        let lines = self.by_word.get(word)?.iter().map(|number| &self.lines[*number]);
        let mut used = lines.filter(|line| uses(&line.text, place, name));
        used.next().map(|line| self.files[line.file].as_str())
    }
}

fn uses(line: &str, place: Place<'_>, name: &str) -> bool {
    match place {
        Place::Line => begins(without_prefix(line), name),
        // Commands may follow each other, and may be sent by a shell.
        Place::Command => begins(line.trim_start_matches(['@', '!', '1', ' ']), name),
        Place::Action(set) => {
            let rest = line.strip_prefix(set).or_else(|| without_prefix(line).strip_prefix(set));
            // `track-sc` stands for `track-sc0` and the others.
            let numbered = |rest: &str| {
                let behind = rest.strip_prefix("track-sc").filter(|_| name == "track-sc");
                behind.is_some_and(|behind| behind.starts_with(|first: char| first.is_ascii_digit()))
            };
            rest.map(str::trim_start).is_some_and(|rest| begins(rest, name) || numbered(rest))
        }
        Place::Parameter(_) if name.contains('-') || name.contains("md5sig") => {
            occurrences(line, name).any(|(before, _)| before.ends_with(' ') || before.is_empty())
        }
        Place::Parameter(first) => {
            let of_line = line.starts_with(first) || first == "server" && is_server_line(line);
            let parameters = of_line
                || line.starts_with(|first: char| first == '{' || first.is_ascii_digit())
                || line.starts_with("default-server");
            parameters && occurrences(line, name).any(|(before, _)| before.ends_with(' '))
                || begins(line, name) && is_parameters(line)
        }
        Place::Listed => occurrences(line, name).any(|(before, _)| {
            let opened = before.rsplit_once('[').is_some_and(|(_, inside)| !inside.contains(']'));
            (opened && before.ends_with(['[', ' '])) || (line.contains("ssl-f-use ") && before.ends_with(' '))
        }),
        Place::Fetch => occurrences(line, name).any(|(before, after)| is_fetch(before, after, name)),
        Place::Converter => {
            let follows = |after: &str| after.is_empty() || after.starts_with(['(', ',', ']', ' ', ')', '|']);
            occurrences(line, name).any(|(before, after)| before.ends_with(',') && follows(after))
        }
    }
}

/// Returns whether a piece of a string can only be parameters: words and numbers without punctuation.
fn is_parameters(line: &str) -> bool {
    !line.contains(['(', ')', '=', ':', '.']) && !line.contains(", ")
}

fn is_server_line(line: &str) -> bool {
    ["default-server", "server-template", "add server", "peer "].iter().any(|first| line.starts_with(first))
}

fn without_prefix(line: &str) -> &str {
    line.strip_prefix("no ").or_else(|| line.strip_prefix("default ")).unwrap_or(line)
}

/// Returns whether a line begins with these words.
fn begins(line: &str, words: &str) -> bool {
    line.strip_prefix(words).is_some_and(|rest| !rest.starts_with(is_part))
}

/// Returns the text before and after each occurrence of a name as a whole word.
fn occurrences<'a>(line: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    line.match_indices(name)
        .map(|(at, _)| (&line[..at], &line[at + name.len()..]))
        .filter(|(before, after)| !before.ends_with(is_part) && !after.starts_with(is_part))
}

/// Returns whether a name is used as a fetch: in brackets, braces or an ACL, or with arguments.
fn is_fetch(before: &str, after: &str, name: &str) -> bool {
    let opened = before.is_empty() || before.ends_with(['[', '{', '(', '!']) || before.ends_with("{ ");
    let behind = before.ends_with(' ');
    let in_place =
        ["acl ", "if ", "unless ", "set-var", "set-src ", "set-dst", "capture ", "track", "on ", "hash "];
    let follows = after.is_empty() || after.starts_with(['(', ',', ']', ' ', ')']);
    let distinctive = name.contains(['_', '.']) || after.starts_with('(') || after.starts_with(',');
    follows && (opened || behind && (distinctive || in_place.iter().any(|word| before.contains(word))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_found_in_use_but_not_in_prose() {
        let cases = [
            (Place::Line, "option httplog", "no option httplog", true),
            (Place::Line, "option http", "option httplog", false),
            (Place::Line, "timeout client", "timeout client-fin 1s", false),
            (Place::Parameter("server"), "weight", "server s 127.0.0.1:1 weight 3", true),
            (Place::Parameter("server"), "weight", "the weight of a server", false),
            (Place::Parameter("bind"), "accept-proxy", "{port} accept-proxy", true),
            (Place::Listed, "alpn", "a.pem [verify none alpn h2] a.test", true),
            (Place::Listed, "alpn", "a.pem [verify none] alpn.test", false),
            (Place::Action("http-request"), "deny", "http-request deny if x", true),
            (Place::Action("http-request"), "deny", "http-response deny if x", false),
            (Place::Fetch, "path", "http-request deny if { path /x }", true),
            (Place::Fetch, "path", "the path of it", false),
            (Place::Fetch, "req.hdr", "set-header x %[req.hdr(a)]", true),
            (Place::Converter, "upper", "str(a),upper", true),
            (Place::Converter, "upper", "the upper half", false),
            (Place::Command, "show info", "show info typed", true),
            (Place::Command, "show info", "show information", false),
        ];
        for (place, name, line, expected) in cases {
            assert_eq!(uses(line, place, name), expected, "{name} in `{line}`");
        }
    }
}
