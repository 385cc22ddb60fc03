//! Script filters (`filter lua.…`): each line is passed to the script that registered the filter.

use std::sync::Arc;

use diag::Diagnostic;
use plan::filter::{FilterPlaces, ScriptFilters};
use state::Mode;
use syntax::Word;

use crate::draft::settings::{FilterDraft, FilterKind};
use crate::resolve::{PendingProxy, ResolveContext};

/// Builds the filters of a proxy; `places` has the position of each filter, by line.
pub(crate) fn script_filters(
    proxy: &PendingProxy<'_>,
    places: &[FilterPlaces],
    context: &mut ResolveContext<'_>,
) -> Option<Box<ScriptFilters>> {
    let mut all = Vec::new();
    for (FilterDraft { keyword, kind, .. }, places) in proxy.settings.filters.iter().zip(places) {
        let FilterKind::Script(words) = kind else { continue };
        match declare(proxy, keyword, words, context) {
            Ok(Some(declared)) => all.push((Arc::new(declared), *places)),
            Ok(None) => {}
            Err(error) => context.diagnostics.push(error),
        }
    }
    (!all.is_empty()).then(|| Box::new(ScriptFilters(all)))
}

/// Lets the script process a line.
fn declare(
    proxy: &PendingProxy<'_>,
    keyword: &Word,
    words: &[&Word],
    context: &ResolveContext<'_>,
) -> Result<Option<lua::FilterDeclared>, Diagnostic> {
    let name = keyword.strip_prefix("lua.").unwrap_or(keyword);
    let program = context.names.lua.as_ref();
    let Some(class) = program.and_then(|program| program.filter(name)) else {
        let known: Vec<String> = program
            .map(|program| program.filters().map(|name| format!("lua.{name}")).collect())
            .unwrap_or_default();
        let near = diag::suggest(keyword, known.iter().map(String::as_str));
        return Err(Diagnostic::alert(format!("no script registers a filter `{name}`"))
            .at(keyword.span())
            .help("register it with `core.register_filter` in a file loaded by `lua-load`")
            .did_you_mean(near)
            .haproxy(format!("'filter' : unknown keyword '{keyword}'.")));
    };
    let wrong = |why: String| {
        Diagnostic::alert(format!("cannot use filter `{name}`: {why}"))
            .at(keyword.span())
            .haproxy(format!("'filter' : '{keyword}' : {why}."))
    };
    let words: Vec<String> = words.iter().map(|word| word.as_str().to_owned()).collect();
    let declared = class.declare(&words).map_err(wrong)?;
    match declared {
        Some(own) if proxy.settings.mode == Mode::Http && !own.is_for_http => Err(wrong(
            "it cannot filter HTTP, because its class does not set `flags = filter.FLT_CFG_FL_HTX`"
                .to_owned(),
        )),
        declared => Ok(declared),
    }
}
