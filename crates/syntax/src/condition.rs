//! Conditions of `.if`, `.elif` and `-cc` (manual, section 2.4).
//!
//! The words are joined with single spaces and parsed as one expression. Everything is parsed even if the result is known early, so
//! that errors are found on every machine.

use crate::arguments::parse_arguments;
use crate::environment::Environment;
use crate::predicate::PREDICATES;
use crate::predicates::ProgramFacts;
use crate::split::{PseudoVariables, split_text};
use crate::word::Word;
use diag::{Diagnostic, FileId, Span, suggest};

/// Maximum nesting of parentheses.
const MAX_DEPTH: usize = 128;

/// Evaluates the condition of a command line's `-cc`.
///
/// The diagnostic has no span, because the text is not from a file.
pub fn evaluate_condition(
    text: &str,
    facts: &ProgramFacts,
    environment: &Environment,
) -> Result<bool, Diagnostic> {
    let mut words = Vec::new();
    let line = text.replace('\n', " ");
    let pseudo = PseudoVariables::default();
    split_text(line.as_bytes(), FileId(0), 0, environment, pseudo, &mut words)
        .and_then(|()| evaluate_words("-cc", &words, facts, environment))
        .map_err(|error| Diagnostic { span: None, ..error })
}

/// Evaluates the words after `directive`.
pub(crate) fn evaluate_words(
    directive: &str,
    words: &[Word],
    facts: &ProgramFacts,
    environment: &Environment,
) -> Result<bool, Diagnostic> {
    let text = words.iter().map(Word::as_str).collect::<Vec<_>>().join(" ");
    let mut parser = ConditionParser { text: &text, at: 0, depth: 0, facts, environment };
    parser.whole().map_err(|error| {
        let ConditionError { at, message, label } = error;
        let column = directive.len() + 4 + at;
        let place = format!("'{directive}' at position {}", at + 1);
        let shown = message.replace('`', "'");
        let mut diagnostic = Diagnostic::alert(format!("{message} in `{directive}`"))
            .haproxy(format!(": {shown} in {place}:\n  {directive} {text}\n{:>column$}", '^'));
        if let Some(span) = locate(words, at) {
            diagnostic = diagnostic.at(span);
        }
        if let Some(label) = label {
            diagnostic = diagnostic.label(label);
        }
        diagnostic
    })
}

/// Returns the position in the file of byte `at` of the joined words.
fn locate(words: &[Word], at: usize) -> Option<Span> {
    let mut start = 0;
    for word in words {
        let end = start + word.len();
        if at <= end {
            let within = (at - start).min(word.len().saturating_sub(1));
            return Some(word.part(within, word.len()));
        }
        start = end + 1;
    }
    words.last().map(Word::span)
}

struct ConditionError {
    at: usize,
    message: String,
    label: Option<String>,
}

fn error(at: usize, message: impl Into<String>) -> ConditionError {
    ConditionError { at, message: message.into(), label: None }
}

struct ConditionParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    facts: &'a ProgramFacts,
    environment: &'a Environment,
}

impl ConditionParser<'_> {
    fn whole(&mut self) -> Result<bool, ConditionError> {
        self.skip_spaces();
        if self.rest().is_empty() {
            return Ok(false);
        }
        let value = self.or()?;
        self.skip_spaces();
        match self.rest().chars().next() {
            None => Ok(value),
            Some(character) => {
                let text = self.text;
                let message = format!(
                    "unexpected character `{character}` at the end of conditional expression `{text}`"
                );
                Err(error(self.at, message))
            }
        }
    }

    fn or(&mut self) -> Result<bool, ConditionError> {
        let mut value = self.and()?;
        while self.take("||") {
            value |= self.and()?;
        }
        Ok(value)
    }

    fn and(&mut self) -> Result<bool, ConditionError> {
        let mut value = self.term()?;
        while self.take("&&") {
            value &= self.term()?;
        }
        Ok(value)
    }

    fn term(&mut self) -> Result<bool, ConditionError> {
        let mut negated = false;
        while self.take("!") {
            negated = !negated;
        }
        self.skip_spaces();
        let start = self.at;
        let value = if self.take("(") {
            self.parenthesis(start)?
        } else if let Some(number) = self.take_integer() {
            number
        } else {
            self.predicate()?
        };
        Ok(value != negated)
    }

    fn parenthesis(&mut self, start: usize) -> Result<bool, ConditionError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(error(start, "too many nested parentheses in conditional expression"));
        }
        let value = self.or()?;
        self.depth -= 1;
        if self.take(")") {
            return Ok(value);
        }
        Err(error(start, format!("expected `)` after conditional expression `{}`", &self.text[start..])))
    }

    /// A number is true unless it is zero, whatever its sign and length.
    fn take_integer(&mut self) -> Option<bool> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with(['-', '+']));
        let digits = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        let value = rest[sign..sign + digits].bytes().any(|digit| digit != b'0');
        self.at += sign + digits;
        Some(value)
    }

    fn predicate(&mut self) -> Result<bool, ConditionError> {
        let start = self.at;
        let text = self.text;
        let rest = &text[start..];
        let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let name = &rest[..length];
        let Some(predicate) = PREDICATES.iter().find(|predicate| predicate.name == name) else {
            let mut wrong = error(start, format!("unparsable conditional expression `{rest}`"));
            let known = PREDICATES.iter().map(|predicate| predicate.name);
            wrong.label = suggest(name, known).map(|word| format!("did you mean `{word}`?"));
            return Err(wrong);
        };
        self.at += length;
        let wanted = predicate.arguments.len();
        let used = format!("of predicate `{name}` used in conditional expression");
        let open = self.at;
        let has_arguments = self.rest().starts_with('(');
        let arguments = if has_arguments {
            parse_arguments(self.text, open + 1)
                .map_err(|at| error(at, format!("unmatched quote in argument {used}")))?
        } else {
            parse_arguments("", 0).map_err(|_| error(open, "no argument"))?
        };
        let got = arguments.values.len();
        if got < wanted {
            let kind = predicate.arguments[got];
            let message = format!(
                "missing arguments (got {got}/{wanted}), type `{kind}` expected in argument {got} {used}"
            );
            return Err(error(open + usize::from(has_arguments), message));
        }
        if got > wanted {
            let at = arguments.values[wanted].start.saturating_sub(usize::from(wanted > 0));
            let extra = &self.text[at..];
            return Err(error(at, format!("expected `)` before `{extra}` in argument {wanted} {used}")));
        }
        if has_arguments {
            if arguments.end >= self.text.len() {
                return Err(error(arguments.end, format!("expected `)` at the end of the arguments {used}")));
            }
            self.at = arguments.end + 1;
        }
        let texts: Vec<&str> = arguments.values.iter().map(|argument| argument.text.as_str()).collect();
        (predicate.evaluate)(self.facts, self.environment, &texts).map_err(|(index, what)| {
            error(arguments.values[index].start, format!("{what} in argument {} {used}", index + 1))
        })
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    fn take(&mut self, token: &str) -> bool {
        let before = self.at;
        self.skip_spaces();
        let found = self.rest().starts_with(token);
        self.at = if found { self.at + token.len() } else { before };
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn evaluate(text: &str) -> Result<bool, Diagnostic> {
        let facts = ProgramFacts {
            version: "3.5-dev5".parse().unwrap(),
            features: vec!["EPOLL", "OPENSSL"],
            enabled: vec!["EPOLL"],
            ssl_library: Some("OpenSSL 3.0.15"),
            openssl_version: "3.0.15".parse().ok(),
            awslc_api: Some(30),
            ..ProgramFacts::default()
        };
        let environment = [("SET", "1"), ("EMPTY", ""), ("NAME", "a b")].into_iter().collect();
        evaluate_condition(text, &facts, &environment)
    }

    #[test]
    fn every_predicate_and_operator_evaluates() {
        let cases: &[(&str, bool)] = &[
            ("", false),
            ("  ", false),
            ("0", false),
            ("1", true),
            ("-1000 && 200", true),
            ("00", false),
            ("defined(SET)", true),
            ("defined(EMPTY)", true),
            ("defined(NONE)", false),
            ("defined( SET )", false),
            ("feature(OPENSSL)", true),
            ("feature(LUA)", false),
            ("enabled(EPOLL)", true),
            ("enabled(SPLICE)", false),
            ("fips_mode()", false),
            ("!fips_mode", true),
            ("streq(a,a)", true),
            ("streq(a, a)", false),
            ("streq(foo,'foo')", true),
            ("streq(\"foo bar\",'foo bar')", true),
            ("streq(\"$NAME\",\"a b\")", true),
            ("strneq(a,b)", true),
            ("strneq(a,a)", false),
            ("strstr(haystack,stack)", true),
            ("strstr(stack,haystack)", false),
            ("version_atleast(3.5-dev5)", true),
            ("version_atleast(3.5-dev6)", false),
            ("version_atleast(3.5)", false),
            ("version_atleast(2.4-dev19)", true),
            ("version_atleast(1024)", false),
            ("version_before(3.5)", true),
            ("version_before(3.5-dev5)", false),
            ("openssl_version_atleast(1.1.1)", true),
            ("openssl_version_before(3.5.0)", true),
            ("openssl_version_before(3.0.0)", false),
            ("ssllib_name_startswith(OpenSSL)", true),
            ("ssllib_name_startswith(wolfSSL)", false),
            ("awslc_api_atleast(30)", true),
            ("awslc_api_before(30)", false),
            ("!0", true),
            ("! ! 1", true),
            ("0 || 1", true),
            ("1 || 0 && 0", true),
            ("(1 || 0) && 0", false),
            ("1&&!0&&!((streq(a,b)||!streq(a,a)&&1)||strneq(a,a))", true),
            ("1   &&!   0&&    !((streq(a,b)||!streq(a,a)&&1)||strneq(a,a))", true),
            ("1 && !0 && !((streq(a,b) || !streq(a,a) && 1) || strneq(a,b))", false),
            ("defined(SET) && streq(\"$SET\",\"1\")", true),
        ];
        for (text, expected) in cases {
            let value = evaluate(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(value, *expected, "{text}");
        }
    }

    #[test]
    fn errors_in_conditions_are_reported_as_in_haproxy() {
        let cases: &[(&str, &str)] = &[
            (
                "foo(1)",
                "unparsable conditional expression 'foo(1)' in '-cc' at position 1:\n  -cc foo(1)\n      ^",
            ),
            (
                "1 foo",
                "unexpected character 'f' at the end of conditional expression '1 foo' in '-cc' at position 3:\n  -cc 1 foo\n        ^",
            ),
            (
                "200rrr",
                "unexpected character 'r' at the end of conditional expression '200rrr' in '-cc' at position 4:\n  -cc 200rrr\n         ^",
            ),
            (
                "streq(a)",
                "missing arguments (got 1/2), type 'string' expected in argument 1 of predicate 'streq' used in conditional expression in '-cc' at position 7:\n  -cc streq(a)\n            ^",
            ),
            (
                "streq(a,b,c)",
                "expected ')' before ',c)' in argument 2 of predicate 'streq' used in conditional expression in '-cc' at position 10:\n  -cc streq(a,b,c)\n               ^",
            ),
            (
                "(1",
                "expected ')' after conditional expression '(1' in '-cc' at position 1:\n  -cc (1\n      ^",
            ),
            ("!", "unparsable conditional expression '' in '-cc' at position 2:\n  -cc !\n       ^"),
            (
                "version_atleast(x)",
                "'x' is not a version such as '2.8', '3.0.5' or '3.5-dev5' in argument 1 of predicate 'version_atleast' used in conditional expression in '-cc' at position 17:\n  -cc version_atleast(x)\n                      ^",
            ),
        ];
        for (text, expected) in cases {
            let error = evaluate(text).unwrap_err();
            assert_eq!(error.haproxy.as_deref(), Some(format!(": {expected}").as_str()), "{text}");
        }
        for text in ["1 &&", "!(0))", "streq(a,\"a)", "streq(a,a", "fips_mode(1)", "defined", "streq"] {
            assert!(evaluate(text).is_err(), "{text}");
        }
        assert_eq!(evaluate("strEq(a,b)").unwrap_err().label.as_deref(), Some("did you mean `streq`?"));
        assert!(evaluate(&"(".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn evaluation_never_panics(text in "[ 01a-z()!&|,\"'\\\\$é_]{0,40}") {
            let _ = evaluate(&text);
        }
    }
}
