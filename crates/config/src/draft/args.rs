//! A cursor over the arguments of a line with typed accessors, used by the keyword functions.
//!
//! Errors underline the argument; in the one-line form they use HAProxy's wording.

use std::str::FromStr;
use std::time::Duration;

use base::address::{Accepts, Address};
use base::keyword_support::Support;
use base::units::{self, DefaultUnit, UnitError};
use diag::{Diagnostic, Diagnostics, Span};
use syntax::{Environment, Word};

use crate::draft::Statement;
use crate::draft::row::{Lenient, Negation, not_supported};

/// A cursor over the arguments of one statement. `'a` is the lifetime of the draft.
pub struct Args<'a, 'd> {
    /// The line.
    pub statement: &'a Statement,
    words: &'a [Word],
    next: usize,
    /// Collects warnings; errors are returned.
    pub diagnostics: &'d mut Diagnostics,
    /// The environment for addresses, in which variables are expanded even without quotes.
    pub environment: &'d Environment,
    /// The parameter that is being read, on lines with several of them. Messages name it instead of the keyword.
    pub parameter: Option<&'static str>,
    /// The mistakes that HAProxy tolerates on this line.
    pub lenient: Lenient,
}

impl<'a, 'd> Args<'a, 'd> {
    /// Creates a cursor before the first argument.
    pub fn new(
        statement: &'a Statement,
        diagnostics: &'d mut Diagnostics,
        environment: &'d Environment,
    ) -> Self {
        let (words, lenient) = (statement.arguments(), statement.keyword.lenient);
        Self { words, statement, next: 0, diagnostics, environment, parameter: None, lenient }
    }

    /// The keyword's name.
    pub fn keyword(&self) -> &'static str {
        self.parameter.unwrap_or(self.statement.keyword.name)
    }

    /// Whether the line begins with `no`.
    pub fn negated(&self) -> bool {
        self.statement.negation == Negation::No
    }

    /// The next argument without taking it.
    pub fn peek(&self) -> Option<&'a Word> {
        self.words.get(self.next)
    }

    /// The next argument.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<&'a Word> {
        let word = self.words.get(self.next)?;
        self.next += 1;
        Some(word)
    }

    /// Takes the next argument if it is `text`.
    pub fn take(&mut self, text: &str) -> bool {
        let found = self.peek().is_some_and(|word| word == text);
        self.next += usize::from(found);
        found
    }

    /// The argument taken last, or the keyword.
    pub fn last(&self) -> &'a Word {
        match self.next {
            0 => &self.statement.words[self.statement.words.len() - self.words.len() - 1],
            next => &self.words[next - 1],
        }
    }

    /// The arguments that were not taken yet, without taking them.
    pub fn remaining(&self) -> &'a [Word] {
        &self.words[self.next..]
    }

    /// Takes the arguments that were not taken yet.
    pub fn rest(&mut self) -> &'a [Word] {
        let rest = &self.words[self.next..];
        self.next = self.words.len();
        rest
    }

    /// Takes the next argument, or returns an error; `what` is its notation in the manual, such as `<name>`.
    pub fn required(&mut self, what: &str) -> Result<&'a Word, Diagnostic> {
        match self.next() {
            Some(word) => Ok(word),
            None => Err(self.missing(what)),
        }
    }

    /// Takes the value of the parameter taken last, in `bind` and `server` lines.
    pub fn value(&mut self) -> Result<&'a Word, Diagnostic> {
        let name = self.last();
        self.next().ok_or_else(|| {
            Diagnostic::alert(format!("`{name}` expects an argument"))
                .at(name.span())
                .haproxy(format!("'{name}' expects an argument"))
        })
    }

    /// Refuses an invalid globally unique identifier: it has at most 127 letters, digits, `.`, `:`, `-` or `_`.
    pub fn check_guid(&self, word: &Word) -> Result<(), Diagnostic> {
        let wrong = match word.chars().find(|c| !crate::draft::is_name_character(*c)) {
            _ if word.len() > 127 => "invalid length".to_owned(),
            Some(character) => format!("invalid character '{character}'"),
            None => return Ok(()),
        };
        let name = self.parameter.unwrap_or_else(|| self.keyword());
        Err(Diagnostic::alert(format!("invalid globally unique identifier `{word}`: {wrong}"))
            .at(word.span())
            .label("use at most 127 letters, digits, `.`, `:`, `-` and `_`")
            .haproxy(format!("'{name}' : {wrong}")))
    }

    fn missing(&self, what: &str) -> Diagnostic {
        let keyword = self.keyword();
        let end = self.statement.span.part(self.statement.span.len(), self.statement.span.len());
        let last = self.statement.words.last().map_or(end, |word| word.span());
        Diagnostic::alert(format!("`{keyword}` expects {what}"))
            .at(Span { start: last.end, ..last })
            .label(format!("usage: {keyword} {}", self.statement.keyword.signature))
            .haproxy(match what.ends_with("argument") {
                true => format!("'{keyword}' expects {what}."),
                false => format!("'{keyword}' expects {what} as argument."),
            })
    }

    /// Creates an error about the argument taken last.
    pub fn wrong(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::alert(message).at(self.last().span())
    }

    /// Adds a warning about the whole line.
    pub fn warn(&mut self, message: impl Into<String>) {
        let span = self.statement.keyword_span();
        self.diagnostics.push(Diagnostic::warning(message).at(span));
    }

    /// Adds advice about the whole line.
    pub fn advise(&mut self, message: impl Into<String>) {
        let span = self.statement.keyword_span();
        self.diagnostics.push(Diagnostic::advice(message).at(span));
    }

    /// Warns about `mptcp@` addresses, which are treated as TCP.
    pub(crate) fn warn_of_mptcp(&mut self, addresses: &Word) {
        let is_mptcp = |part: &str| {
            matches!(part.trim_start().split_once('@'), Some(("mptcp" | "mptcp4" | "mptcp6", _)))
        };
        if addresses.split(',').any(is_mptcp) {
            let text = "MPTCP is not supported yet: connections use TCP";
            // HAProxy does not warn, but in Weir the transport differs, which the operator must know.
            self.diagnostics.push(Diagnostic::warning(text).at(addresses.span()).tolerated());
        }
    }

    /// Warns about a parameter without effect.
    pub(crate) fn warn_without_effect(&mut self, parameter: &Word, support: Support) {
        if let Support::None(reason) = support {
            self.diagnostics.push(Diagnostic::ineffective(parameter, reason).at(parameter.span()));
        }
    }

    /// Refuses the argument taken last as not supported.
    pub fn unsupported(&self) -> Diagnostic {
        let (keyword, word) = (self.keyword(), self.last());
        not_supported(&format!("{keyword} … {word}")).at(word.span())
    }

    /// Takes a whole number between `low` and `high`.
    pub fn integer<T>(&mut self, what: &str, low: T, high: T) -> Result<T, Diagnostic>
    where
        T: FromStr + PartialOrd + std::fmt::Display + Copy,
    {
        let word = self.required(what)?;
        self.number(word, low, high)
    }

    /// Parses `word` as a whole number between `low` and `high`.
    pub fn number<T>(&mut self, word: &Word, low: T, high: T) -> Result<T, Diagnostic>
    where
        T: FromStr + PartialOrd + std::fmt::Display + Copy,
    {
        let keyword = self.keyword();
        let text = if self.lenient.numbers { self.digits(word) } else { word };
        let text = text.strip_prefix('+').unwrap_or(text);
        match text.parse::<T>() {
            Ok(value) if value >= low && value <= high => Ok(value),
            Ok(_) => Err(Diagnostic::alert(format!("`{keyword}`: {word} is out of range"))
                .at(word.span())
                .label(format!("use {low} to {high}"))
                .haproxy(format!("'{keyword}' expects a number between {low} and {high} (got '{word}').",))),
            Err(_) => Err(Diagnostic::alert(format!("`{keyword}`: `{word}` is not a whole number"))
                .at(word.span())
                .haproxy(format!("'{keyword}' expects an integer argument (got '{word}')."))),
        }
    }

    /// The prefix of `word` that HAProxy reads as a number. A warning is reported if that is not the whole word.
    fn digits<'w>(&mut self, word: &'w Word) -> &'w str {
        let sign = usize::from(word.starts_with(['+', '-']));
        let end = word[sign..].find(|c: char| !c.is_ascii_digit()).map_or(word.len(), |end| sign + end);
        if end == word.len() && end > sign {
            return word;
        }
        let text = if end > sign { &word[..end] } else { "0" };
        let keyword = self.keyword();
        self.diagnostics.push(
            Diagnostic::warning(format!("`{keyword}`: `{word}` is not a whole number and is read as {text}"))
                .at(word.span())
                .haproxy(format!(
                    "'{keyword}' expects an integer argument (got '{word}'), which is read as {text}."
                )),
        );
        text
    }

    /// Takes a time (section 2.5).
    pub fn duration(&mut self, unit: DefaultUnit) -> Result<Duration, Diagnostic> {
        let word = self.required("a time")?;
        self.time(word, unit)
    }

    /// Takes the name of an existing network namespace.
    pub fn namespace(&mut self) -> Result<&'a str, Diagnostic> {
        let word = self.value()?;
        let path = format!("/var/run/netns/{word}");
        base::seen_files::note(&path);
        if std::path::Path::new(&path).exists() {
            return Ok(word);
        }
        Err(self
            .wrong(format!("there is no network namespace `{word}`"))
            .help("`ip netns list` shows the existing ones")
            .haproxy(format!("Cannot open namespace '{word}'.")))
    }

    /// Takes the value of `idle-ping` on a bind or server line: a delay, for protocols with a ping.
    pub fn idle_ping(&mut self) -> Result<Option<Duration>, Diagnostic> {
        let word = self.value()?;
        Ok(Some(self.time(word, DefaultUnit::Milliseconds)?).filter(|delay| !delay.is_zero()))
    }

    /// Warns about a time below 100 without a unit: seconds were probably meant.
    pub fn warn_if_small(&mut self, word: &Word, keyword: &str, within: &str) {
        if !matches!(word.parse::<u32>(), Ok(1..100)) {
            return;
        }
        self.diagnostics.push(
            Diagnostic::warning(format!("`{keyword}` of {word} milliseconds is suspiciously small"))
                .at(word.span())
                .label(format!("use `{word}ms` if that is intended"))
                .haproxy(format!(
                    "'{keyword} {word}' in {within} is suspiciously small for a value in milliseconds. Please use an explicit \
                     unit ('{word}ms') if that was the intent."
                )),
        );
    }

    /// Parses `word` as a time.
    pub fn time(&mut self, word: &Word, unit: DefaultUnit) -> Result<Duration, Diagnostic> {
        let keyword = self.keyword();
        if let Some(time) = self.time_and_garbage(word, unit) {
            return Ok(time);
        }
        units::parse_duration(word, unit).map_err(|error| {
            let suffix = unit.suffix();
            let (span, label, haproxy) = match error {
                UnitError::Empty => (word.span(), "a time such as `30s`".to_owned(), format!("'{keyword}' expects a time")),
                UnitError::Unexpected { at, found } => (
                    word.part(at, at + found.len_utf8()),
                    "use a whole number and one of: us, ms, s, m, h, d".to_owned(),
                    format!("unexpected character '{found}' in argument to <{keyword}>."),
                ),
                UnitError::Overflow => (
                    word.span(),
                    format!("use at most 2147483647{suffix}"),
                    format!("timer overflow in argument <{word}> to <{keyword}> (maximum value is 2147483647 {suffix} or ~24.8 days)."),
                ),
                UnitError::Underflow => (
                    word.span(),
                    format!("use 0, or at least 1{suffix}"),
                    format!("timer underflow in argument <{word}> to <{keyword}> (minimum non-null value is 1 {suffix})."),
                ),
            };
            Diagnostic::alert(format!("`{keyword}`: {error} in `{word}`")).at(span).label(label).haproxy(haproxy)
        })
    }

    /// Parses a time like HAProxy, which reads `1s[` as one second, but with a warning.
    fn time_and_garbage(&mut self, word: &Word, unit: DefaultUnit) -> Option<Duration> {
        let Err(UnitError::Unexpected { at, .. }) = units::parse_duration(word, unit) else { return None };
        let (time, garbage) = word.as_str().split_at(at);
        let read = time
            .ends_with(|last: char| last.is_ascii_alphabetic())
            .then(|| units::parse_duration(time, unit))?;
        self.diagnostics.push(
            Diagnostic::warning(format!("`{garbage}` after a time is ignored"))
                .at(word.part(at, word.len()))
                .label(format!("read as `{time}`, the units are us, ms, s, m, h and d")),
        );
        read.ok()
    }

    /// Takes a size (section 2.6) of at most `high` bytes.
    pub fn size(&mut self, high: u64) -> Result<u64, Diagnostic> {
        let word = self.required("a size")?;
        let keyword = self.keyword();
        let wrong = |span, what: String| {
            Diagnostic::alert(format!("`{keyword}`: {what}"))
                .at(span)
                .label("use a whole number of bytes, or a suffix k, m or g")
                .haproxy(format!("'{keyword}' : {what} in argument <{word}>"))
        };
        match units::parse_size(word) {
            Ok(size) if size <= high => Ok(size),
            Ok(_) => Err(wrong(word.span(), format!("more than {high}"))),
            Err(UnitError::Unexpected { at, found }) => {
                Err(wrong(word.part(at, at + found.len_utf8()), format!("unexpected character '{found}'")))
            }
            Err(error) => Err(wrong(word.span(), error.to_string())),
        }
    }

    /// Takes `on` or `off`.
    pub fn on_off(&mut self) -> Result<bool, Diagnostic> {
        let keyword = self.keyword();
        match self.required("'on' or 'off'")?.as_str() {
            "on" => Ok(true),
            "off" => Ok(false),
            other => {
                let shown = format!("'{keyword}' expects either 'on' or 'off' but got '{other}'.");
                Err(self.wrong(format!("`{keyword}` must be `on` or `off`, not `{other}`")).haproxy(shown))
            }
        }
    }

    /// Takes one of several words.
    pub fn one_of<T: Copy>(&mut self, choices: &[(&'static str, T)]) -> Result<T, Diagnostic> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let word = self.required(&format!("one of: {}", names.join(", ")))?;
        self.choice(word, choices)
    }

    /// Parses `word` as one of several words.
    pub fn choice<T: Copy>(&self, word: &Word, choices: &[(&'static str, T)]) -> Result<T, Diagnostic> {
        if let Some((_, value)) = choices.iter().find(|(name, _)| word == name) {
            return Ok(*value);
        }
        let keyword = self.keyword();
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
        Err(Diagnostic::alert(format!("unknown argument `{word}` for `{keyword}`"))
            .at(word.span())
            .did_you_mean(diag::suggest(word, names.iter().copied()))
            .help(format!("one of: {}", names.join(", ")))
            .haproxy(format!("'{keyword}' expects one of {} (got '{word}').", quoted.join(", "))))
    }

    /// Parses an address (section 2.9). Variables expand even without quotes.
    pub fn address(&self, word: &Word, accepts: Accepts) -> Result<Address, Diagnostic> {
        self.address_in(word, 0, word, accepts)
    }

    /// Parses the part of `word` that starts at byte `offset` and reads `part` as an address.
    pub fn address_in(
        &self,
        word: &Word,
        offset: usize,
        part: &str,
        accepts: Accepts,
    ) -> Result<Address, Diagnostic> {
        let keyword = self.keyword();
        let expanded;
        let text = if part.contains('$') {
            expanded = self.environment.expand(part);
            expanded.as_str()
        } else {
            part
        };
        let parsed = Address::parse(text).and_then(|address| address.check(accepts).map(|()| address));
        parsed.map_err(|error| {
            let at = if text == part { error.at } else { 0 };
            let span = word.part(offset + at, offset + part.len());
            let kind = error.kind;
            Diagnostic::alert(format!("`{keyword}`: {} in `{part}`", kind.to_string().replace('\'', "`")))
                .at(span)
                .haproxy(format!("'{keyword}' : {kind} in '{part}'"))
        })
    }

    /// Refuses any remaining arguments.
    pub fn finish(&mut self) -> Result<(), Diagnostic> {
        if self.lenient.more_words {
            self.finish_softly();
            return Ok(());
        }
        self.refuse_more()
    }

    fn refuse_more(&self) -> Result<(), Diagnostic> {
        let Some(extra) = self.peek() else { return Ok(()) };
        let keyword = self.keyword();
        let usage = format!("{keyword} {}", self.statement.keyword.signature);
        Err(Diagnostic::alert(format!("unexpected argument `{extra}` for `{keyword}`"))
            .at(extra.span())
            .label(format!("usage: {}", usage.trim_end()))
            .haproxy(format!("'{keyword}' cannot handle unexpected argument '{extra}'.")))
    }

    /// Like [`finish`](Self::finish), but with a warning instead of an error, because HAProxy ignores the words.
    pub fn finish_softly(&mut self) {
        if let Err(error) = self.refuse_more() {
            let severity = diag::Severity::Warning;
            let haproxy = error.haproxy.as_deref().map(|text| format!("{text} It is ignored."));
            self.diagnostics.push(Diagnostic { severity, haproxy, ..error });
            self.rest();
        }
    }
}
