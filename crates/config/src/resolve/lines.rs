//! The words of a line as `sample` and `rules` read them, and the scope in which they are compiled.

use std::sync::Arc;

use diag::Span;
use sample::Acls;
use sample::{Place, Scope};
use smallvec::SmallVec;
use state::Mode;
use syntax::Word;

use crate::draft::Statement;
use crate::resolve::ResolveContext;

/// The words of a statement as `sample` and `rules` read them.
pub(crate) type WordList<'a> = SmallVec<[sample::Word<'a>; 16]>;

/// The words behind the keyword.
pub(crate) fn arguments(statement: &Statement) -> WordList<'_> {
    words(statement.arguments())
}

/// Any run of words.
fn words(words: &[Word]) -> WordList<'_> {
    words.iter().map(|word| sample::Word { text: word.as_str(), span: word.span() }).collect()
}

/// The scope of a line of `proxy`.
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

/// A place as HAProxy shows it, such as `haproxy.cfg:8`.
pub(crate) fn shown(context: &ResolveContext<'_>, span: Span) -> String {
    let file = context.sources.file(span.file);
    format!("{}:{}", file.name(), file.position(span.start).line)
}
