//! The evaluation of conditions in detail, for explanations and traces: which terms held, with which values and patterns.

use std::fmt;

use crate::outcome::{PASS, Test};

/// An evaluated condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedCondition {
    /// The result, including `unless`.
    pub test: Test,
    /// Whether the condition follows `unless`.
    pub unless: bool,
    /// The terms that were evaluated, in order.
    pub terms: Vec<ExplainedTerm>,
}

/// A term: a named or an anonymous ACL, optionally negated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedTerm {
    /// The term as configured.
    pub text: Box<str>,
    /// The result, including the negation.
    pub test: Test,
    /// The tests of the ACL that were evaluated, in order.
    pub tests: Vec<ExplainedTest>,
    /// Whether an `or` precedes the term.
    pub begins_alternative: bool,
}

/// One line of an ACL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExplainedTest {
    /// The criterion as configured, without the name of the ACL.
    pub text: Box<str>,
    pub(crate) result: u8,
    /// The values that were tested, as text; the last one matched, if any did. At most [`MOST_VALUES`].
    pub values: Vec<String>,
    /// The pattern that matched, with the file that it is from, if it is known.
    pub pattern: Option<MatchedPattern>,
    /// Whether the test has side effects and was therefore not evaluated.
    pub is_skipped: bool,
}

impl ExplainedTest {
    /// Whether the test matched.
    pub fn is_match(&self) -> bool {
        self.result == PASS
    }
}

/// A pattern that matched a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedPattern {
    /// The pattern.
    pub text: String,
    /// The file or virtual list, or `None` for a pattern in the ACL's line.
    pub list: Option<Box<str>>,
}

impl fmt::Display for ExplainedTerm {
    /// The term as configured, followed by its tests. The criterion of a named ACL is in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = if self.begins_alternative { "or " } else { "" };
        write!(f, "{or}{} ", self.text)?;
        let is_anonymous = self.text.trim_start_matches('!').trim_start().starts_with('{');
        for (number, test) in self.tests.iter().enumerate() {
            f.write_str(if number > 0 { "; " } else { " " })?;
            if !is_anonymous {
                write!(f, "[{}] ", test.text)?;
            }
            test.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for ExplainedTest {
    /// The values, and the pattern that matched.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_skipped {
            return f.write_str("not evaluated, because it has side effects");
        }
        match &self.values[..] {
            [] => f.write_str("no value")?,
            values => f.write_str(&values.join(", "))?,
        }
        let Some(pattern) = &self.pattern else { return Ok(()) };
        write!(f, " matches `{}`", pattern.text)?;
        match &pattern.list {
            Some(list) => write!(f, " in {list}"),
            None => Ok(()),
        }
    }
}

/// The maximum number of values that are kept of one test.
pub const MOST_VALUES: usize = 8;

/// The maximum length of a value in bytes.
const LONGEST_VALUE: usize = 256;

/// A value or pattern as text: control characters and quotes escaped, and shortened if it is long.
pub fn shown(bytes: &[u8]) -> String {
    let (bytes, rest) = bytes.split_at(bytes.len().min(LONGEST_VALUE));
    let end = if rest.is_empty() { "" } else { "…" };
    format!("{}{end}", String::from_utf8_lossy(bytes).escape_debug())
}
