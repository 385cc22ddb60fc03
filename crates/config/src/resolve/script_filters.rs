//! Filters of scripts (`filter lua.…`): what the scripts that registered them make of each line, and in
//! which order they see requests and responses.

use std::sync::Arc;

use diag::Diagnostic;
use plan::filter::ScriptFilters;
use state::Mode;
use syntax::Word;

use crate::draft::settings::{FilterDraft, FilterKind};
use crate::resolve::{Context, Pending};

/// Makes the filters of a proxy.
pub(crate) fn script_filters(proxy: &Pending<'_>, context: &mut Context<'_>) -> Option<Box<ScriptFilters>> {
    let mut all = ScriptFilters { declared: Vec::new(), request: Vec::new(), response: Vec::new() };
    let mut made: Vec<&Word> = Vec::new();
    let mut behind: Option<&str> = None;
    for FilterDraft { keyword, kind, .. } in &proxy.settings.filters {
        let FilterKind::Script(words) = kind else {
            if matches!(kind, FilterKind::Compression(_)) {
                behind = Some(keyword.as_str());
            }
            continue;
        };
        if let Some(other) = behind {
            context.diagnostics.push(
                Diagnostic::alert(format!(
                    "filters of scripts behind `filter {other}` are not supported yet"
                ))
                .at(keyword.span())
                .help(format!("let it stand before `filter {other}`")),
            );
            continue;
        }
        match declare(proxy, keyword, words, context) {
            Ok(Some(declared)) => {
                all.declared.push(Arc::new(declared));
                made.push(keyword);
            }
            Ok(None) => {}
            Err(error) => context.diagnostics.push(error),
        }
    }
    if made.is_empty() {
        return None;
    }
    let (request, response) = proxy.settings.filter_sequence;
    (all.request, all.response) = (order(request, &made), order(response, &made));
    Some(Box::new(all))
}

/// The places of filters in the order of a sequence, or in that of their lines.
fn order(sequence: Option<&Word>, made: &[&Word]) -> Vec<usize> {
    let Some(sequence) = sequence else { return (0..made.len()).collect() };
    let places = |name: &str| (0..made.len()).filter(|at| made[*at].as_str() == name).collect::<Vec<_>>();
    let mut order = Vec::new();
    for place in sequence.split(',').flat_map(places) {
        if !order.contains(&place) {
            order.push(place);
        }
    }
    order
}

/// What a script makes of a line.
fn declare(
    proxy: &Pending<'_>,
    keyword: &Word,
    words: &[&Word],
    context: &Context<'_>,
) -> Result<Option<lua::FilterDeclared>, Diagnostic> {
    let name = keyword.strip_prefix("lua.").unwrap_or(keyword);
    let program = context.names.lua.as_ref();
    let Some(class) = program.and_then(|program| program.filter(name)) else {
        let known: Vec<String> = program
            .map(|program| program.filters().map(|name| format!("lua.{name}")).collect())
            .unwrap_or_default();
        let near = diag::suggest(keyword, known.iter().map(String::as_str));
        return Err(Diagnostic::alert(format!("no script registered a filter `{name}`"))
            .at(keyword.span())
            .help("a file of `lua-load` does that with `core.register_filter`")
            .did_you_mean(near)
            .haproxy(format!("'filter' : unknown keyword '{keyword}'.")));
    };
    let wrong = |why: String| {
        Diagnostic::alert(format!("filter `{name}` cannot be used: {why}"))
            .at(keyword.span())
            .haproxy(format!("'filter' : '{keyword}' : {why}."))
    };
    let words: Vec<String> = words.iter().map(|word| word.as_str().to_owned()).collect();
    let declared = class.declare(&words).map_err(wrong)?;
    match declared {
        Some(own) if proxy.settings.mode == Mode::Http && !own.is_for_http => Err(wrong(
            "it cannot filter HTTP, as its class says nothing of `flags = filter.FLT_CFG_FL_HTX`".to_owned(),
        )),
        declared => Ok(declared),
    }
}
