//! Reads the lines of several files, with conditional blocks resolved (manual, sections 2.1 and 2.4).
//!
//! Called by `config`, which interprets the words and may change the environment and set the section name between two lines.

use crate::condition::evaluate_words;
use crate::environment::Environment;
use crate::predicates::ProgramFacts;
use crate::split::{PseudoVariables, split_text};
use crate::word::{Line, Word};
use diag::{Diagnostic, Diagnostics, FileId, Severity, SourceMap, Span, suggest};

/// Maximum nesting of `.if`, as in HAProxy.
const MOST_BLOCKS: usize = 99;
/// Maximum number of words in a line, as in HAProxy.
const MOST_WORDS: usize = 64;

/// A level of `.if`.
struct ConditionBlock {
    opened: Span,
    state: ReaderState,
    after_else: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    /// Lines are active.
    Taken,
    /// No branch has been true so far.
    Waiting,
    /// A branch was taken, or the block is inside inactive lines. In both cases no further line is active.
    Over,
}

/// Reads lines one after the other.
pub struct Reader<'a> {
    /// The environment, which the keywords of the lines may change.
    pub environment: Environment,
    sources: &'a SourceMap,
    files: std::vec::IntoIter<FileId>,
    facts: &'a ProgramFacts,
    file: FileId,
    text: &'a [u8],
    /// Offset of the next line.
    at: usize,
    number: u32,
    section: String,
    blocks: Vec<ConditionBlock>,
}

impl<'a> Reader<'a> {
    /// Returns a reader of `files` in their order.
    pub fn new(
        sources: &'a SourceMap,
        files: Vec<FileId>,
        facts: &'a ProgramFacts,
        environment: Environment,
    ) -> Self {
        Self {
            environment,
            sources,
            files: files.into_iter(),
            facts,
            file: FileId(0),
            text: b"",
            at: 0,
            number: 0,
            section: String::new(),
            blocks: Vec::new(),
        }
    }

    /// Sets the value of `.SECTION`: the section's name, or its type if it has no name.
    pub fn set_section(&mut self, name: &str) {
        self.section.clear();
        self.section.push_str(name);
    }

    /// Puts the next active line into `line`, whose storage is reused; returns `false` after the last line. Lines that cannot be
    /// split are reported and skipped.
    pub fn next_line(&mut self, line: &mut Line, diagnostics: &mut Diagnostics) -> bool {
        loop {
            if self.at >= self.text.len() && !self.next_file(diagnostics) {
                return false;
            }
            if self.take_line(line, diagnostics) {
                return true;
            }
        }
    }

    fn next_file(&mut self, diagnostics: &mut Diagnostics) -> bool {
        for block in self.blocks.drain(..) {
            let message = Diagnostic::alert("`.if` without `.endif`").at(block.opened);
            diagnostics.push(message.haproxy(": non-terminated '.if' block."));
        }
        loop {
            let Some(file) = self.files.next() else { return false };
            (self.file, self.text) = (file, self.sources.file(file).text());
            (self.at, self.number) = (0, 0);
            self.section.clear();
            if !self.text.is_empty() {
                return true;
            }
        }
    }

    fn take_line(&mut self, line: &mut Line, diagnostics: &mut Diagnostics) -> bool {
        let start = self.at;
        let rest = &self.text[start..];
        let end = memchr::memchr(b'\n', rest);
        let text = &rest[..end.unwrap_or(rest.len())];
        self.at = start + text.len() + 1;
        self.number += 1;
        if end.is_none() {
            self.missing_line_feed(start, text, diagnostics);
        }
        let blanks = text.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let first = text.get(blanks);
        if matches!(first, None | Some(b'#')) {
            return false;
        }
        let counts = self.blocks.last().is_none_or(|block| block.state == ReaderState::Taken);
        if let Some(nul) = memchr::memchr(0, text) {
            let place = Span::new(self.file, start + nul, start + nul + 1);
            let message = Diagnostic::alert("NUL byte in the configuration").at(place);
            diagnostics.push(message.haproxy(format!(": Stray NUL character at position {}.", nul + 1)));
            return false;
        }
        line.file = self.file;
        line.number = self.number;
        line.span = Span::new(self.file, start + blanks, start + text.len());
        let name = self.sources.file(self.file).name();
        let pseudo = PseudoVariables { file: name, line: self.number, section: &self.section };
        let split = split_text(text, self.file, start, &self.environment, pseudo, &mut line.words);
        if first == Some(&b'.') {
            self.run_directive(counts, line, split, diagnostics);
            return false;
        }
        // Inactive lines are split too, because their end depends on their quotes.
        let error = split.err().or_else(|| too_many_words(line));
        if let Some(error) = error.or_else(|| counts.then(|| empty_argument(line)).flatten()) {
            diagnostics.push(error);
            return false;
        }
        counts && !line.words.is_empty() && !begins_empty(line, diagnostics)
    }

    fn missing_line_feed(&self, start: usize, text: &[u8], diagnostics: &mut Diagnostics) {
        let position = text.len() + 1;
        let message = Diagnostic::alert("missing line feed at the end of the last line")
            .at(Span::new(self.file, start + text.len(), start + text.len()))
            .label("the file may be truncated")
            .haproxy(format!(
                ": Missing LF on last line, file might have been truncated at position {position}."
            ));
        diagnostics.push(message);
    }

    /// Handles a line whose first byte is a dot. The caller does not see it.
    fn run_directive(
        &mut self,
        counts: bool,
        line: &Line,
        split: Result<(), Diagnostic>,
        diagnostics: &mut Diagnostics,
    ) {
        let Some(directive) = line.words.first().cloned() else {
            diagnostics.extend_error(split);
            return;
        };
        let arguments = &line.words[1..];
        let outcome = match directive.as_str() {
            ".if" => self.open_block(&directive, counts, split, arguments),
            ".elif" => self.alternative(&directive, split, arguments),
            ".else" => self.otherwise(&directive, arguments),
            ".endif" => self.close_block(&directive, arguments),
            _ if !counts => split,
            ".notice" => split.and_then(|()| message(&directive, arguments, Severity::Notice, diagnostics)),
            ".warning" => split.and_then(|()| message(&directive, arguments, Severity::Warning, diagnostics)),
            ".alert" => split.and_then(|()| message(&directive, arguments, Severity::Alert, diagnostics)),
            ".diag" if !self.facts.diag_mode => split,
            ".diag" => split.and_then(|()| message(&directive, arguments, Severity::Diag, diagnostics)),
            other => Err(unknown_directive(&directive, other)),
        };
        diagnostics.extend_error(outcome);
    }

    fn open_block(
        &mut self,
        directive: &Word,
        counts: bool,
        split: Result<(), Diagnostic>,
        arguments: &[Word],
    ) -> Result<(), Diagnostic> {
        // The block is pushed first. Otherwise, an invalid condition would also make the matching `.endif` look wrong.
        self.blocks.push(ConditionBlock {
            opened: directive.span(),
            state: ReaderState::Over,
            after_else: false,
        });
        match self.blocks.len().checked_sub(MOST_BLOCKS + 1) {
            Some(0) => return Err(too_deep(directive)),
            // One message is enough.
            Some(_) => return Ok(()),
            None if !counts => return split,
            None => {}
        }
        split?;
        self.decide(directive, arguments)
    }

    fn alternative(
        &mut self,
        directive: &Word,
        split: Result<(), Diagnostic>,
        arguments: &[Word],
    ) -> Result<(), Diagnostic> {
        let block = self.blocks.last_mut().ok_or_else(|| lone(directive))?;
        if block.after_else {
            return Err(after_else(directive, block.opened));
        }
        let waits = block.state == ReaderState::Waiting;
        block.state = ReaderState::Over;
        split?;
        if waits { self.decide(directive, arguments) } else { Ok(()) }
    }

    fn otherwise(&mut self, directive: &Word, arguments: &[Word]) -> Result<(), Diagnostic> {
        let block = self.blocks.last_mut().ok_or_else(|| lone(directive))?;
        if block.after_else {
            return Err(after_else(directive, block.opened));
        }
        block.after_else = true;
        block.state =
            if block.state == ReaderState::Waiting { ReaderState::Taken } else { ReaderState::Over };
        no_arguments(directive, arguments)
    }

    fn close_block(&mut self, directive: &Word, arguments: &[Word]) -> Result<(), Diagnostic> {
        self.blocks.pop().ok_or_else(|| lone(directive))?;
        no_arguments(directive, arguments)
    }

    fn decide(&mut self, directive: &Word, arguments: &[Word]) -> Result<(), Diagnostic> {
        let value = evaluate_words(directive.as_str(), arguments, self.facts, &self.environment)
            .map_err(|error| if error.span.is_none() { error.at(directive.span()) } else { error })?;
        if let Some(block) = self.blocks.last_mut() {
            block.state = if value { ReaderState::Taken } else { ReaderState::Waiting };
        }
        Ok(())
    }
}

/// Records the error of a step that has no other result.
trait ExtendError {
    fn extend_error(&mut self, outcome: Result<(), Diagnostic>);
}

impl ExtendError for Diagnostics {
    fn extend_error(&mut self, outcome: Result<(), Diagnostic>) {
        if let Err(error) = outcome {
            self.push(error);
        }
    }
}

fn too_many_words(line: &Line) -> Option<Diagnostic> {
    let (last, _) = line.words.get(MOST_WORDS - 1).zip(line.words.get(MOST_WORDS))?;
    let position = last.span().start - line.span.start + 1;
    Some(
        Diagnostic::alert(format!(
            "a line can have at most {MOST_WORDS} words, but this one has {}",
            line.words.len()
        ))
        .at(last.span())
        .label("the rest of the line would be lost")
        .help("use pattern files (`-f`) for long lists, or several ACL lines with the same name")
        .haproxy(format!(
            ": too many words, truncating after word {MOST_WORDS}, position {position}: <{last}>."
        )),
    )
}

/// Returns whether the first word is empty, for example because a variable is not set. Such a line is ignored.
fn begins_empty(line: &Line, diagnostics: &mut Diagnostics) -> bool {
    let Some((first, rest)) = line.words.split_first().filter(|(first, _)| first.is_empty()) else {
        return false;
    };
    if let Some(ignored) = rest.first() {
        diagnostics.push(
            Diagnostic::warning("the first word of this line is empty: the line is ignored")
                .at(first.span().to(ignored.span()))
                .haproxy(format!(": the first word is empty, '{ignored}' and what follows it is ignored.")),
        );
    }
    true
}

/// Returns the error for an empty argument. It would end the line, so that the words after it would be lost silently; an empty last
/// word usually comes from a variable that is not set. Environment variables may be set to nothing; their keywords check that
/// themselves.
fn empty_argument(line: &Line) -> Option<Diagnostic> {
    let (last, earlier) = line.words.split_last()?;
    let empty = line.words.iter().position(|word| word.is_empty()).filter(|empty| *empty > 0)?;
    if earlier.len() == empty
        && earlier.first().is_none_or(|first| *first == "setenv" || *first == "presetenv")
    {
        return None;
    }
    let span = line.words[empty].span();
    let position = span.start - line.span.start + 1;
    Some(
        Diagnostic::alert("an empty argument ends the argument list")
            .at(span)
            .label(match last.is_empty() {
                true => "empty argument".to_owned(),
                false => format!("`{last}` and everything before it would be ignored"),
            })
            .help("if it comes from an empty environment variable, set a default: `${NAME-value}` (section 2.3)")
            .haproxy(format!(
                ": argument number {empty} at position {position} is empty and marks the end of the argument list; \
                 all subsequent arguments would be ignored. If this is caused by an environment variable expansion, \
                 please have a look at section 2.3 of the configuration manual."
            )),
    )
}

fn message(
    directive: &Word,
    arguments: &[Word],
    severity: Severity,
    diagnostics: &mut Diagnostics,
) -> Result<(), Diagnostic> {
    if let Some(extra) = arguments.get(1) {
        return Err(Diagnostic::alert(format!("unexpected argument `{extra}` for `{directive}`"))
            .at(extra.span())
            .label("put the message in quotes if it contains spaces")
            .haproxy(format!(
                ": Unexpected argument '{extra}' for '{directive}'. Use quotes if the message should contain spaces."
            )));
    }
    let text = arguments.first().map_or("", Word::as_str);
    diagnostics.push(Diagnostic::new(severity, text).at(directive.span()).haproxy(format!(": '{text}'.")));
    Ok(())
}

fn unknown_directive(directive: &Word, name: &str) -> Diagnostic {
    const KNOWN: &[&str] = &[".if", ".elif", ".else", ".endif", ".diag", ".notice", ".warning", ".alert"];
    Diagnostic::alert(format!("unknown directive `{name}`"))
        .at(directive.span())
        .did_you_mean(suggest(name, KNOWN.iter().copied()))
        .haproxy(format!(": unknown directive '{name}'."))
}

fn too_deep(directive: &Word) -> Diagnostic {
    Diagnostic::alert(format!("`.if` blocks are nested more than {MOST_BLOCKS} levels deep"))
        .at(directive.span())
        .haproxy(format!(": too many nested '.if', max is {}.", MOST_BLOCKS + 1))
}

fn lone(directive: &Word) -> Diagnostic {
    Diagnostic::alert(format!("`{directive}` without `.if`"))
        .at(directive.span())
        .haproxy(format!(": lone '{directive}' with no matching '.if'."))
}

fn after_else(directive: &Word, opened: Span) -> Diagnostic {
    Diagnostic::alert(format!("`{directive}` after `.else`"))
        .at(directive.span())
        .related(opened, "the block starts here")
        .haproxy(format!(": '{directive}' after '.else' is not permitted."))
}

fn no_arguments(directive: &Word, arguments: &[Word]) -> Result<(), Diagnostic> {
    match arguments.first() {
        None => Ok(()),
        Some(extra) => Err(Diagnostic::alert(format!("unexpected argument `{extra}` for `{directive}`"))
            .at(extra.span())
            .haproxy(format!(": Unexpected argument '{extra}' for '{directive}'."))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut sources = SourceMap::new();
        let files =
            texts.iter().enumerate().map(|(n, text)| sources.add(format!("{n}.cfg"), *text)).collect();
        let facts = ProgramFacts { diag_mode: true, ..ProgramFacts::default() };
        let mut reader = Reader::new(&sources, files, &facts, Environment::new());
        let (mut line, mut diagnostics) = (Line::default(), Diagnostics::new());
        let mut lines = Vec::new();
        while reader.next_line(&mut line, &mut diagnostics) {
            if line.words[0] == "setenv" {
                reader.environment.set(&line.words[1], &line.words[2]);
            }
            if line.words[0] == "frontend" {
                reader.set_section(&line.words[1]);
            }
            let words: Vec<&str> = line.words.iter().map(Word::as_str).collect();
            lines.push(format!("{}:{} {}", line.file.0, line.number, words.join("|")));
        }
        let shown = diagnostics.iter().map(|diagnostic| diag::render::line(diagnostic, &sources, 1));
        (lines, shown.collect())
    }

    #[test]
    fn line_numbers_are_right_across_files_and_comments() {
        let (lines, errors) = read(&["\n# c\n a b # d\n\t\n  c\r\n", "", "x\n"]);
        assert_eq!(lines, ["0:3 a|b", "0:5 c", "2:1 x"]);
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[test]
    fn conditions_select_the_active_lines() {
        let cases: &[(&str, &str)] = &[
            (".if 1\na\n.else\nb\n.endif\nc\n", "a c"),
            (".if 0\na\n.else\nb\n.endif\nc\n", "b c"),
            (".if 0\na\n.elif 1\nb\n.elif 1\nc\n.else\nd\n.endif\n", "b"),
            (".if 0\na\n.elif 0\nb\n.else\nd\n.endif\n", "d"),
            (".if 0\n.if 1\na\n.else\nb\n.endif\n.else\nc\n.endif\n", "c"),
            (".if 1\n.if 0\na\n.else\nb\n.endif\n.else\nc\n.endif\n", "b"),
            (".if 0\n.if nonsense(\n.elif x\n.unknown\n.alert x\nbroken\n.endif\n.endif\na\n", "a"),
            (".if 1\na\n.elif nonsense(\nb\n.endif\n", "a"),
            ("setenv X 1\n.if \"$X\"\na\n.endif\n", "setenv|X|1 a"),
            (".if \"$NONE\"\na\n.endif\nb\n", "b"),
            ("frontend web\n name \"${.SECTION}.${.LINE}\"\n", "frontend|web name|web.2"),
        ];
        for (text, expected) in cases {
            let (lines, errors) = read(&[text]);
            let words: Vec<&str> = lines.iter().map(|line| line.split_once(' ').unwrap().1).collect();
            assert_eq!(words.join(" "), *expected, "{text}");
            assert!(errors.is_empty(), "{text}: {errors:?}");
        }
    }

    #[test]
    fn directives_report_as_in_haproxy() {
        let cases: &[(&str, &[&str])] = &[
            (".notice \"a b\"\n", &["[NOTICE]   (1) : config : parsing [0.cfg:1]: 'a b'."]),
            (".warning x\n", &["[WARNING]  (1) : config : parsing [0.cfg:1]: 'x'."]),
            (".alert x\n", &["[ALERT]    (1) : config : parsing [0.cfg:1]: 'x'."]),
            (".diag x\n", &["[DIAG]     (1) : config : parsing [0.cfg:1]: 'x'."]),
            (
                ".endif\n",
                &["[ALERT]    (1) : config : parsing [0.cfg:1]: lone '.endif' with no matching '.if'."],
            ),
            (
                ".else\n",
                &["[ALERT]    (1) : config : parsing [0.cfg:1]: lone '.else' with no matching '.if'."],
            ),
            (
                ".elif 1\n",
                &["[ALERT]    (1) : config : parsing [0.cfg:1]: lone '.elif' with no matching '.if'."],
            ),
            (".if 1\na\n", &["[ALERT]    (1) : config : parsing [0.cfg:1]: non-terminated '.if' block."]),
            (
                ".if 1\n.else\n.else\n.endif\n",
                &["[ALERT]    (1) : config : parsing [0.cfg:3]: '.else' after '.else' is not permitted."],
            ),
            (
                ".if 1\n.else\n.elif 1\n.endif\n",
                &["[ALERT]    (1) : config : parsing [0.cfg:3]: '.elif' after '.else' is not permitted."],
            ),
            (
                ".if foo(1)\nx\n.endif\n",
                &[
                    "[ALERT]    (1) : config : parsing [0.cfg:1]: unparsable conditional expression 'foo(1)' in '.if' at position 1:\n  .if foo(1)\n      ^",
                ],
            ),
            (".foo\n", &["[ALERT]    (1) : config : parsing [0.cfg:1]: unknown directive '.foo'."]),
            (
                ".notice a b\n",
                &[
                    "[ALERT]    (1) : config : parsing [0.cfg:1]: Unexpected argument 'b' for '.notice'. Use quotes if the message should contain spaces.",
                ],
            ),
            ("a\0b\n", &["[ALERT]    (1) : config : parsing [0.cfg:1]: Stray NUL character at position 2."]),
            (
                "a\nb",
                &[
                    "[ALERT]    (1) : config : parsing [0.cfg:2]: Missing LF on last line, file might have been truncated at position 2.",
                ],
            ),
            (
                "a 'b\n",
                &[
                    "[ALERT]    (1) : config : parsing [0.cfg:1]: unmatched quote at position 3:\n  a 'b\n    ^",
                ],
            ),
        ];
        for (text, expected) in cases {
            let (_, errors) = read(&[text]);
            let errors: Vec<&str> = errors.iter().map(|error| error.trim_end_matches('\n')).collect();
            assert_eq!(errors, *expected, "{text}");
        }
    }

    #[test]
    fn empty_arguments_are_refused() {
        let (lines, errors) = read(&["a b \"$NONE\"\na \"\" b\nsetenv c ''\na b\n"]);
        assert_eq!(lines, ["0:3 setenv|c|", "0:4 a|b"]);
        let positions =
            ["argument number 2 at position 5 is empty", "argument number 1 at position 3 is empty"];
        assert!(errors.len() == 2, "{errors:?}");
        assert!(
            positions.iter().zip(&errors).all(|(position, error)| error.contains(position)),
            "{errors:?}"
        );
    }

    #[test]
    fn very_long_lines_are_not_truncated() {
        let word = "w".repeat(100_000);
        let (lines, errors) = read(&[&format!("a {word} b {}\n", "x ".repeat(61))]);
        assert!(errors.is_empty());
        assert_eq!(lines[0].matches('|').count(), 63);
    }
}
