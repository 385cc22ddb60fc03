//! The filters of a proxy (manual, chapter 9): which of them are used on which side
//! (`filter-sequence`).

use std::collections::HashMap;
use std::sync::Arc;

use diag::Diagnostic;
use plan::compression::Compression;
use plan::filter::TraceFilter;
use sample::acl::Acls;
use sample::bandwidth::{BandwidthFilter, SharedLimit};
use sample::expression::Expression;
use sample::{Place, Words, track};
use state::Mode;
use syntax::Word;

use crate::draft::keyword::Outcome;
use crate::draft::settings::{CompressionFilter, FilterDraft, FilterKind, SharedDraft};
use crate::resolve::lines::scope;
use crate::resolve::{Context, Pending};

/// Resolves the filters of a proxy: those that trace, in the order of their lines. Those of
/// bandwidth are put where its rules find them.
pub(crate) fn filters(proxy: &Pending<'_>, context: &mut Context<'_>) -> Vec<Arc<TraceFilter>> {
    let (request, response) = proxy.settings.filter_sequence;
    for list in request.iter().chain(&response) {
        check(list, proxy, context);
    }
    let used = |list: Option<&Word>, keyword: &Word| {
        list.is_none_or(|list| list.split(',').any(|name| keyword == name))
    };
    let mut traces = Vec::new();
    let mut limits: HashMap<Box<str>, Arc<BandwidthFilter>> = HashMap::new();
    for FilterDraft { keyword, kind, shared } in &proxy.settings.filters {
        let (on_request, on_response) = (used(request, keyword), used(response, keyword));
        match kind {
            FilterKind::Trace(trace) if on_request || on_response => {
                traces.push(Arc::new(TraceFilter { on_request, on_response, ..trace.clone() }));
            }
            FilterKind::Trace(_)
            | FilterKind::Compression(_)
            | FilterKind::Cache(_)
            | FilterKind::Fcgi(_)
            | FilterKind::Spoe(..)
            | FilterKind::Script(_) => {}
            FilterKind::Bandwidth(limit) => {
                let active = if limit.upload { on_request } else { on_response };
                let mut filter = BandwidthFilter { active, ..limit.clone() };
                if let Some(by) = shared {
                    match share(&mut filter, by, proxy, context) {
                        Ok(()) => {}
                        Err(error) => context.diagnostics.push(error),
                    }
                }
                limits.insert(limit.name.clone(), Arc::new(filter));
            }
        }
    }
    context.names.bandwidth.replace(limits);
    traces
}

/// Finds what a limit is shared by: a table that counts the bytes of that direction, by a key of its
/// type.
fn share(
    filter: &mut BandwidthFilter,
    by: &SharedDraft<'_>,
    proxy: &Pending<'_>,
    context: &Context<'_>,
) -> Outcome {
    let (own, name) = (proxy.settings.name, &filter.name);
    let (Some(first), Some(last)) = (by.key.first(), by.key.last()) else { return Ok(()) };
    let words: Vec<sample::Word<'_>> =
        by.key.iter().map(|word| sample::Word { text: word.as_str(), span: word.span() }).collect();
    let mut words = Words::new(&words, last.span());
    let acls = Acls::new();
    let scope = scope(context, &acls, Some(&proxy.state), proxy.settings.mode, Place::HttpRequest);
    let key = Expression::compile(&mut words, &scope)?;
    if let Some(extra) = words.peek() {
        let text = extra.text;
        return Err(Diagnostic::alert(format!("bandwidth filters do not know `{text}`"))
            .at(extra.span)
            .haproxy(format!("'filter' : unknown keyword '{text}'.")));
    }
    let table_name = by.table.map_or(own, |word| word.as_str());
    let place = by.table.unwrap_or(first).span();
    let wrong = |message: String, haproxy: String| {
        Diagnostic::alert(message).at(place).haproxy_whole(format!("Proxy {own} : {haproxy}"))
    };
    let Some(table) = context.names.tables.get(table_name) else {
        return Err(wrong(
            format!("there is no stick table `{table_name}`"),
            format!("unable to find table '{table_name}' referenced by bwlim filter '{name}'"),
        ));
    };
    if !key.gives().casts_to(track::key_type(table.settings.kind)) {
        return Err(wrong(
            format!("keys of table `{table_name}` are of another type than this gives"),
            format!("stick-table '{table_name}' uses a key type incompatible with bwlim filter '{name}'"),
        ));
    }
    let Some(column) = table.column(filter.rate()) else {
        let rate = filter.rate().name();
        return Err(wrong(
            format!("table `{table_name}` does not store `{rate}(<period>)`"),
            format!(
                "stick-table '{table_name}' uses a data type incompatible with bwlim filter '{name}'. It must be '{rate}'"
            ),
        ));
    };
    filter.period_ms = column.period_ms.into();
    let text: Vec<&str> = by.key.iter().map(|word| word.as_str()).collect();
    let shared = SharedLimit { key: text.join(",").into(), table: table.clone() };
    filter.shared = Some(Arc::new(shared));
    Ok(())
}

/// What a sequence calls a filter.
fn names<'a>(filter: &FilterDraft<'a>) -> Vec<&'a str> {
    match filter.kind {
        FilterKind::Compression(CompressionFilter::Both) => vec!["comp-req", "comp-res"],
        _ => vec![filter.keyword.as_str()],
    }
}

/// What the proxy compresses: as its `compression` lines say, where it has a filter that heeds them
/// and no sequence leaves that out.
pub(crate) fn compression(proxy: &Pending<'_>, context: &mut Context<'_>) -> Option<Box<Compression>> {
    let settings = &proxy.settings;
    let draft = settings.compression.as_ref()?;
    let mut filters = settings.filters.iter().filter_map(|filter| match filter.kind {
        FilterKind::Compression(which) => Some(which),
        _ => None,
    });
    let (mut on_request, mut on_response) = draft.directions;
    if let Some(first) = filters.next() {
        let all: Vec<CompressionFilter> = filters.chain([first]).collect();
        if !all.contains(&CompressionFilter::Both) {
            on_request = all.contains(&CompressionFilter::Request);
            on_response = all.contains(&CompressionFilter::Response);
        }
    } else if let Some(other) =
        settings.filters.iter().find(|filter| !matches!(filter.kind, FilterKind::Fcgi(_)))
    {
        let name = settings.name;
        context.diagnostics.push(
            Diagnostic::alert(format!("`{name}` has other filters, and none for its `compression`"))
                .at(other.keyword.span())
                .help("`filter comp-res` says where among them bodies are compressed")
                .haproxy_whole(format!(
                    "config: proxy '{name}': require an explicit filter declaration to use HTTP compression"
                )),
        );
        return None;
    }
    if settings.mode != Mode::Http {
        return None;
    }
    let (request, response) = settings.filter_sequence;
    let named =
        |list: Option<&Word>, name: &str| list.is_none_or(|list| list.split(',').any(|own| own == name));
    on_request &= named(request, "comp-req");
    on_response &= named(response, "comp-res");
    Some(Box::new(Compression {
        request: on_request.then(|| draft.request.clone()),
        response: on_response.then(|| draft.response.clone()),
        offload: draft.offload,
    }))
}

/// Every name of a sequence must be that of a filter here.
fn check(list: &Word, proxy: &Pending<'_>, context: &mut Context<'_>) {
    let known: Vec<&str> = proxy.settings.filters.iter().flat_map(names).collect();
    // Those of compression are there without a line of their own.
    let known = if known.is_empty() && proxy.settings.compression.is_some() {
        vec!["comp-req", "comp-res"]
    } else {
        known
    };
    let mut at = 0;
    for name in list.split(',') {
        if !known.contains(&name) {
            let known = known.iter().copied();
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
