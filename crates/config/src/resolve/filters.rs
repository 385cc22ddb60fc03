//! The filters of a proxy (manual, chapter 9): which of them are used on which side
//! (`filter-sequence`).

use std::collections::HashMap;
use std::sync::Arc;

use diag::Diagnostic;
use plan::filter::TraceFilter;
use sample::bandwidth::BandwidthFilter;
use syntax::Word;

use crate::draft::settings::{FilterDraft, FilterKind};
use crate::resolve::{Context, Pending};

/// Resolves the filters of a proxy: those that trace, in the order of their lines. Those of
/// bandwidth are put where its rules find them.
pub(crate) fn filters(proxy: &Pending<'_>, context: &mut Context<'_>) -> Vec<Arc<TraceFilter>> {
    let (request, response) = proxy.settings.filter_sequence;
    for list in request.iter().chain(&response) {
        check(list, &proxy.settings.filters, context);
    }
    let used = |list: Option<&Word>, keyword: &Word| {
        list.is_none_or(|list| list.split(',').any(|name| keyword == name))
    };
    let mut traces = Vec::new();
    let mut limits: HashMap<Box<str>, Arc<BandwidthFilter>> = HashMap::new();
    for FilterDraft { keyword, kind } in &proxy.settings.filters {
        let (on_request, on_response) = (used(request, keyword), used(response, keyword));
        match kind {
            FilterKind::Trace(trace) if on_request || on_response => {
                traces.push(Arc::new(TraceFilter { on_request, on_response, ..trace.clone() }));
            }
            FilterKind::Trace(_) => {}
            FilterKind::Bandwidth(limit) => {
                let active = if limit.upload { on_request } else { on_response };
                let filter = Arc::new(BandwidthFilter { active, ..limit.clone() });
                limits.insert(limit.name.clone(), filter);
            }
        }
    }
    context.names.bandwidth.replace(limits);
    traces
}

/// Every name of a sequence must be that of a filter here.
fn check(list: &Word, filters: &[FilterDraft<'_>], context: &mut Context<'_>) {
    let mut at = 0;
    for name in list.split(',') {
        if !filters.iter().any(|filter| filter.keyword == name) {
            let known = filters.iter().map(|filter| filter.keyword.as_str());
            context.diagnostics.push(
                Diagnostic::alert(format!("no filter `{name}` is declared here"))
                    .at(list.part(at, at + name.len()))
                    .did_you_mean(diag::suggest(name, known))
                    .haproxy(format!("'filter-sequence' : unable to find filter '{name}' in the proxy.")),
            );
        }
        at += name.len() + 1;
    }
}
