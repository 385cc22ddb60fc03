//! Converts the words of a line for `sample` and `rules`, and builds the scope in which they are compiled.

use std::sync::Arc;

use diag::{Diagnostic, Diagnostics, Span};
use sample::Acls;
use sample::{Place, Scope};
use smallvec::SmallVec;
use state::Mode;
use syntax::Word;

use crate::draft::Statement;
use crate::resolve::ResolveContext;

/// The words of a statement, for `sample` and `rules`.
pub(crate) type WordList<'a> = SmallVec<[sample::Word<'a>; 16]>;

/// The words after the keyword.
pub(crate) fn arguments(statement: &Statement) -> WordList<'_> {
    words(statement.arguments())
}

/// Converts a sequence of words.
fn words(words: &[Word]) -> WordList<'_> {
    words.iter().map(|word| sample::Word { text: word.as_str(), span: word.span() }).collect()
}

/// The scope for a line of `proxy`.
pub(crate) fn scope<'s>(
    context: &'s ResolveContext<'_>,
    acls: &'s Acls,
    proxy: Option<&'s Arc<state::Proxy>>,
    mode: Mode,
    place: Place,
) -> Scope<'s> {
    Scope {
        names: &context.names,
        variables: &context.variables,
        patterns: &context.patterns,
        acls,
        proxy,
        mode,
        place,
        inherited: context.inherited,
    }
}

/// A location in HAProxy's notation, such as `haproxy.cfg:8`.
pub(crate) fn shown(context: &ResolveContext<'_>, span: Span) -> String {
    let file = context.sources.file(span.file);
    format!("{}:{}", file.name(), file.position(span.start).line)
}

/// Reports a line that has no effect.
pub(crate) fn warn_ineffective(statement: &Statement, reason: &str, diagnostics: &mut Diagnostics) {
    diagnostics.push(Diagnostic::ineffective(statement.keyword.name, reason).at(statement.keyword_span()));
}
