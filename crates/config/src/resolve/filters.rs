//! The filters of a proxy (manual, chapter 9): which ones are used in each direction, and in which order (`filter-sequence`).

use std::collections::HashMap;
use std::sync::Arc;

use diag::Diagnostic;
use plan::compression::Compression;
use plan::filter::{FilterPlaces, TraceFilter};
use sample::Acls;
use sample::bandwidth::{BandwidthFilter, SharedLimit};
use sample::expression::Expression;
use sample::{Place, Words, track};
use state::Mode;
use syntax::Word;

use crate::draft::row::Outcome;
use crate::draft::settings::{CompressionFilter, FilterDraft, FilterKind, SharedDraft};
use crate::resolve::lines::scope;
use crate::resolve::{PendingProxy, ResolveContext};

/// The position of each filter of a proxy, by line.
pub(crate) fn places(proxy: &PendingProxy<'_>) -> Vec<FilterPlaces> {
    let (request, response) = proxy.settings.filter_sequence;
    let filters = &proxy.settings.filters;
    let both = order(request, filters, false).into_iter().zip(order(response, filters, true));
    both.map(|(request, response)| FilterPlaces { request, response }).collect()
}

/// The positions of filters in one direction, counted from 1, in the order of a sequence or of the lines. Each name in a sequence
/// refers to the next filter of that name in line order.
fn order(sequence: Option<&Word>, filters: &[FilterDraft<'_>], of_response: bool) -> Vec<Option<u16>> {
    let mut numbers = 1u16..;
    let Some(sequence) = sequence else { return filters.iter().map(|_| numbers.next()).collect() };
    let mut places = vec![None; filters.len()];
    for name in sequence.split(',') {
        let is_next = |line: &usize| places[*line].is_none() && called(&filters[*line], of_response) == name;
        if let Some(line) = (0..filters.len()).find(is_next) {
            places[line] = numbers.next();
        }
    }
    places
}

/// The name of a filter in a sequence of that direction.
fn called<'a>(filter: &FilterDraft<'a>, of_response: bool) -> &'a str {
    match filter.kind {
        FilterKind::Compression(CompressionFilter::Both) if of_response => "comp-res",
        FilterKind::Compression(CompressionFilter::Both) => "comp-req",
        _ => filter.keyword.as_str(),
    }
}

/// Resolves the filters of the proxy with that number and returns the trace filters, in line order. Bandwidth filters are
/// registered for its rules.
pub(crate) fn filters(
    number: usize,
    proxy: &PendingProxy<'_>,
    places: &[FilterPlaces],
    context: &mut ResolveContext<'_>,
) -> Vec<Arc<TraceFilter>> {
    let (request, response) = proxy.settings.filter_sequence;
    for list in request.iter().chain(&response) {
        check(list, proxy, context);
    }
    let mut traces = Vec::new();
    let mut limits: HashMap<Box<str>, Arc<BandwidthFilter>> = HashMap::new();
    for (FilterDraft { kind, shared, .. }, places) in proxy.settings.filters.iter().zip(places) {
        match kind {
            FilterKind::Trace(trace) if *places != FilterPlaces::default() => {
                traces.push(Arc::new(TraceFilter { places: *places, ..trace.clone() }));
            }
            FilterKind::Trace(_)
            | FilterKind::Compression(_)
            | FilterKind::Cache(_)
            | FilterKind::Fcgi(_)
            | FilterKind::Spoe(..)
            | FilterKind::Script(_) => {}
            FilterKind::Bandwidth(limit) => {
                let place = places.of(!limit.upload);
                let mut filter = BandwidthFilter { place, proxy: number, ..limit.clone() };
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

/// Resolves a shared limit: a table that counts bytes of that direction, and a key of its type.
fn share(
    filter: &mut BandwidthFilter,
    by: &SharedDraft<'_>,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
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
        return Err(Diagnostic::alert(format!("unknown argument `{text}` for a bandwidth filter"))
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
            format!("table `{table_name}` has keys of a different type"),
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

/// The proxy's compression settings, taken from its `compression` lines if it has a compression filter that no sequence leaves out.
pub(crate) fn compression(
    proxy: &PendingProxy<'_>,
    places: &[FilterPlaces],
    context: &mut ResolveContext<'_>,
) -> Option<Box<Compression>> {
    let settings = &proxy.settings;
    let draft = settings.compression.as_ref()?;
    let explicit: Vec<(CompressionFilter, FilterPlaces)> = (settings.filters.iter().zip(places))
        .filter_map(|(filter, places)| match filter.kind {
            FilterKind::Compression(which) => Some((which, *places)),
            _ => None,
        })
        .collect();
    let (mut on_request, mut on_response) = draft.directions;
    let mut places = implied(settings.filter_sequence);
    if !explicit.is_empty() {
        let line = |wanted| {
            let is_meant = |which| which == wanted || which == CompressionFilter::Both;
            explicit.iter().find(|(which, _)| is_meant(*which))
        };
        let (request, response) = (line(CompressionFilter::Request), line(CompressionFilter::Response));
        if !explicit.iter().any(|(which, _)| *which == CompressionFilter::Both) {
            (on_request, on_response) = (request.is_some(), response.is_some());
        }
        places = FilterPlaces {
            request: request.and_then(|(_, places)| places.request),
            response: response.and_then(|(_, places)| places.response),
        };
    } else if let Some(other) = settings
        .filters
        .iter()
        .find(|filter| !matches!(filter.kind, FilterKind::Fcgi(_) | FilterKind::Cache(_)))
    {
        let name = settings.name;
        context.diagnostics.push(
            Diagnostic::alert(format!("`{name}` has filters, but none for its `compression`"))
                .at(other.keyword.span())
                .help("use `filter comp-res` to define its position among the filters")
                .haproxy_whole(format!(
                    "config: proxy '{name}': require an explicit filter declaration to use HTTP compression"
                )),
        );
        return None;
    }
    if settings.mode != Mode::Http {
        return None;
    }
    places.request = places.request.filter(|_| on_request);
    places.response = places.response.filter(|_| on_response);
    Some(Box::new(Compression {
        request: places.request.map(|_| draft.request.clone()),
        response: places.response.map(|_| draft.response.clone()),
        places,
        offload: draft.offload,
    }))
}

/// The position of compression without a filter line: after all filters with one.
fn implied((request, response): (Option<&Word>, Option<&Word>)) -> FilterPlaces {
    let place = |list: Option<&Word>, name: &str| {
        list.is_none_or(|list| list.split(',').any(|own| own == name)).then_some(u16::MAX)
    };
    FilterPlaces { request: place(request, "comp-req"), response: place(response, "comp-res") }
}

/// Checks that every name in a sequence is a filter of the proxy.
fn check(list: &Word, proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    let filters = &proxy.settings.filters;
    let names = |filter| [called(filter, false), called(filter, true)];
    let mut known: Vec<&str> = filters.iter().flat_map(names).collect();
    // Compression and caches can exist without a filter line.
    if proxy.settings.compression.is_some()
        && !filters.iter().any(|filter| matches!(filter.kind, FilterKind::Compression(_)))
    {
        known.extend(["comp-req", "comp-res"]);
    }
    if !context.names.caches.is_empty() {
        known.push("cache");
    }
    let mut at = 0;
    for name in list.split(',') {
        if !known.contains(&name) {
            let known = known.iter().copied();
            context.diagnostics.push(
                Diagnostic::alert(format!("unknown filter `{name}`"))
                    .at(list.part(at, at + name.len()))
                    .did_you_mean(diag::suggest(name, known))
                    .haproxy(format!("'filter-sequence' : unable to find filter '{name}' in the proxy.")),
            );
        }
        at += name.len() + 1;
    }
}
