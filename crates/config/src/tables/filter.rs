//! `filter` and `filter-sequence` (manual, section 4.2 and chapter 9).

use base::keyword_support::Support;
use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use plan::filter::{FilterPlaces, TraceFilter};
use sample::bandwidth::BandwidthFilter;
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, proxy};
use crate::draft::row::places::FLB;
use crate::draft::row::{Outcome, not_supported};
use crate::draft::settings::{CompressionFilter, FilterDraft, FilterKind, ProxySettings, SharedDraft};

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    proxy("filter",          FLB, "<name> [param*]",                        "filter to apply: trace, bwlim-in, bwlim-out, comp-req, comp-res, compression, cache, fcgi-app, spoe or lua.<name>", filter)
        .partial("other filters are not supported yet"),
    proxy("filter-sequence", FLB, "{ request | response } <filter_list>",   "filters to use, in order",                            filter_sequence),
];

/// The supported filters.
pub const BUILT: &[(&str, Support)] = &[
    (
        "trace",
        Support::Partial(
            "offsets count the payload only, not the header section, and empty chunks are not reported",
        ),
    ),
    ("bwlim-in", Support::Full),
    ("bwlim-out", Support::Full),
    ("comp-req", Support::Full),
    ("comp-res", Support::Full),
    ("compression", Support::Full),
    ("cache", Support::Full),
    ("fcgi-app", Support::Full),
    ("spoe", Support::Full),
];

/// HAProxy's filters that are not supported.
const OTHERS: &[&str] = &["opentelemetry", "opentracing"];

fn filter<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a filter name")?;
    let mut shared = None;
    let kind = match word.as_str() {
        "trace" => FilterKind::Trace(trace(args)?),
        "bwlim-in" | "bwlim-out" => {
            let (filter, by) = bandwidth(args, word == "bwlim-in")?;
            shared = by;
            FilterKind::Bandwidth(filter)
        }
        "comp-req" => compression(settings, args, CompressionFilter::Request)?,
        "comp-res" => compression(settings, args, CompressionFilter::Response)?,
        "compression" => compression(settings, args, CompressionFilter::Both)?,
        "fcgi-app" => FilterKind::Fcgi(fcgi_app(settings, args)?),
        "cache" => cache(settings, args)?,
        "spoe" => spoe(args)?,
        name if name.starts_with("lua.") => FilterKind::Script(std::iter::from_fn(|| args.next()).collect()),
        name if OTHERS.contains(&name) => {
            let error = not_supported(&format!("filter {name}")).at(word.span());
            return Err(match name {
                "opentelemetry" => {
                    error.help("define an `opentelemetry` section, and use `trace-to` instead of the filter")
                }
                _ => error,
            });
        }
        name => {
            let known = BUILT.iter().map(|(name, _)| *name).chain(OTHERS.iter().copied());
            let near = diag::suggest(name, known);
            let tail = near.map_or(String::new(), |near| format!("; did you mean '{near}' maybe ?"));
            return Err(Diagnostic::alert(format!("unknown filter `{name}`"))
                .at(word.span())
                .did_you_mean(near)
                .haproxy(format!("'filter' : unknown keyword '{name}'{tail}.")));
        }
    };
    if let FilterKind::Bandwidth(own) = &kind
        && settings
            .filters
            .iter()
            .any(|other| matches!(&other.kind, FilterKind::Bandwidth(other) if other.name == own.name))
    {
        let name = &own.name;
        return Err(Diagnostic::alert(format!("this proxy already has a bandwidth filter named `{name}`"))
            .at(args.statement.keyword_span())
            .haproxy(format!("'filter' : bwlim filter '{name}' already exists in this proxy.")));
    }
    settings.filters.push(FilterDraft { keyword: word, kind, shared });
    args.finish()
}

/// The position of an application among the filters. No other filter reads message heads, so the order has no effect.
fn fcgi_app<'a>(settings: &ProxySettings<'a>, args: &mut Args<'a, '_>) -> Result<&'a Word, Diagnostic> {
    let name = args.required("an application name")?;
    let is_other = |filter: &FilterDraft<'_>| matches!(filter.kind, FilterKind::Fcgi(_));
    if settings.filters.iter().any(is_other) {
        let backend = settings.name;
        return Err(args
            .wrong("a backend can use only one application")
            .haproxy(format!("proxy '{backend}' : only one fcgi-app supported per backend.")));
    }
    Ok(name)
}

/// A compression filter, one per direction.
fn compression(
    settings: &ProxySettings<'_>,
    args: &mut Args<'_, '_>,
    which: CompressionFilter,
) -> Result<FilterKind<'static>, Diagnostic> {
    let keyword = args.last();
    if let Some(extra) = args.next() {
        return Err(args
            .wrong(format!("unexpected argument `{extra}` for `filter {keyword}`"))
            .haproxy(format!("'filter {keyword}' : unknown keyword '{extra}'.")));
    }
    let meets = |other: &FilterDraft<'_>| match other.kind {
        FilterKind::Compression(other) => {
            other == which || other == CompressionFilter::Both || which == CompressionFilter::Both
        }
        _ => false,
    };
    if settings.filters.iter().any(meets) {
        let name = settings.name;
        return Err(args
            .wrong("this proxy already has such a filter")
            .haproxy(format!("'filter' : {name}: Proxy supports only one {keyword} filter\n")));
    }
    Ok(FilterKind::Compression(which))
}

/// The position among the filters at which a cache stores responses.
fn cache<'a>(settings: &ProxySettings<'a>, args: &mut Args<'a, '_>) -> Result<FilterKind<'a>, Diagnostic> {
    let name = args.next().ok_or_else(|| {
        Diagnostic::alert("`filter cache` needs the name of a cache")
            .at(args.statement.end())
            .label("usage: filter cache <name>")
            .haproxy("'filter' : cache : expects a <name> argument.")
    })?;
    let is_same =
        |other: &FilterDraft<'_>| matches!(other.kind, FilterKind::Cache(other) if **other == **name);
    if settings.filters.iter().any(is_same) {
        return Err(args.wrong(format!("this proxy already has a filter for the cache `{name}`")).haproxy(
            format!("'filter' : cache: multiple explicit declarations of the cache filter '{name}'."),
        ));
    }
    Ok(FilterKind::Cache(name))
}

/// An SPOE engine. Its file is processed once all backends are known.
fn spoe<'a>(args: &mut Args<'a, '_>) -> Result<FilterKind<'a>, Diagnostic> {
    let (mut engine, mut config) = (None, None);
    while let Some(word) = args.next() {
        let place = match word.as_str() {
            "engine" => &mut engine,
            "config" => &mut config,
            other => {
                return Err(args
                    .wrong(format!("unknown argument `{other}` for `filter spoe`"))
                    .did_you_mean(diag::suggest(other, ["engine", "config"]))
                    .haproxy(format!("'filter' : unknown keyword '{other}'")));
            }
        };
        *place = Some(args.next().ok_or_else(|| {
            Diagnostic::alert(format!("`{word}` needs a value"))
                .at(args.statement.end())
                .haproxy(format!("'filter' : 'spoe' : '{word}' option without value"))
        })?);
    }
    let config = config.ok_or_else(|| {
        Diagnostic::alert("`filter spoe` requires a configuration file")
            .at(args.statement.end())
            .label("usage: filter spoe [engine <name>] config <file>")
            .haproxy("'filter' : 'spoe' : missing config file")
    })?;
    Ok(FilterKind::Spoe(engine, config))
}

fn trace(args: &mut Args<'_, '_>) -> Result<TraceFilter, Diagnostic> {
    let mut trace = TraceFilter {
        name: "TRACE".into(),
        random_forwarding: false,
        max_forward: 0,
        quiet: false,
        hexdump: false,
        places: FilterPlaces::default(),
    };
    while let Some(word) = args.next() {
        match word.as_str() {
            "name" => trace.name = args.value()?.as_str().into(),
            "random-forwarding" => trace.random_forwarding = true,
            // Filters no longer parse anything, so there is nothing to randomize, as in HAProxy.
            "random-parsing" => {}
            "max-fwd" => {
                let word = args.value()?;
                trace.max_forward = args.number(word, 0, i32::MAX as usize)?;
            }
            "quiet" => trace.quiet = true,
            "hexdump" => trace.hexdump = true,
            other => {
                let known = ["name", "random-forwarding", "max-fwd", "quiet", "hexdump"];
                return Err(args
                    .wrong(format!("unknown argument `{other}` for `filter trace`"))
                    .did_you_mean(diag::suggest(other, known))
                    .haproxy(format!("'filter trace' : unknown argument '{other}'.")));
            }
        }
    }
    Ok(trace)
}

fn bandwidth<'a>(
    args: &mut Args<'a, '_>,
    upload: bool,
) -> Result<(BandwidthFilter, Option<SharedDraft<'a>>), Diagnostic> {
    const KNOWN: &[&str] = &["default-limit", "default-period", "limit", "key", "table", "min-size"];
    let name = args.required("a name")?;
    let (mut limit, mut default_limit, mut period, mut min_size) = (None, None, None, 0);
    let (mut key, mut table) = (Vec::new(), None);
    while let Some(word) = args.next() {
        match word.as_str() {
            "default-limit" => default_limit = Some(size(args)?),
            "default-period" => {
                let word = args.value()?;
                let time = args.time(word, Milliseconds)?.as_millis() as u64;
                period = Some(positive(args, time)?);
            }
            "limit" => limit = Some(size(args)?),
            "min-size" => min_size = size(args)?,
            "key" => {
                key.push(args.value()?);
                // Converters may follow as separate words.
                while let Some(more) = args.peek().filter(|word| !KNOWN.contains(&word.as_str())) {
                    key.push(more);
                    args.next();
                }
            }
            "table" => table = Some(args.value()?),
            other => {
                return Err(args
                    .wrong(format!("unknown argument `{other}` for a bandwidth filter"))
                    .did_you_mean(diag::suggest(other, KNOWN.iter().copied()))
                    .haproxy(format!("'filter {}' : unknown argument '{other}'.", kind(upload))));
            }
        }
    }
    let missing = |what: &str| {
        Diagnostic::alert(format!("bandwidth filter `{name}` shares its limit and needs `{what}`"))
            .at(args.statement.end())
            .haproxy(format!("'filter' : '{}' : <{what}> option is missing", kind(upload)))
    };
    let is_shared = limit.is_some() || !key.is_empty() || table.is_some();
    if is_shared && (default_limit.is_some() || period.is_some()) {
        return Err(Diagnostic::alert(format!(
            "bandwidth filter `{name}` mixes per-stream and shared limits"
        ))
        .at(name.span())
        .help("`default-limit` and `default-period` limit each stream; `limit` and `key` limit all streams with the same key")
        .haproxy(format!("'filter' : '{}' : cannot mix per-stream and shared parameter", kind(upload))));
    }
    let filter = |limit, period_ms| BandwidthFilter {
        name: name.as_str().into(),
        upload,
        limit,
        period_ms,
        min_size,
        place: None,
        proxy: 0,
        shared: None,
    };
    if is_shared {
        if key.is_empty() {
            return Err(missing("key"));
        }
        let limit = limit.ok_or_else(|| missing("limit"))?;
        return Ok((filter(limit, 1), Some(SharedDraft { key, table })));
    }
    let (Some(limit), Some(period_ms)) = (default_limit, period) else {
        return Err(Diagnostic::alert(format!(
            "bandwidth filter `{name}` needs `default-limit` and `default-period`"
        ))
        .at(args.statement.end())
        .haproxy(format!(
            "'filter {}' : <default-limit> and <default-period> must be set for per-stream bandwidth limitations.",
            kind(upload)
        )));
    };
    Ok((filter(limit, period_ms), None))
}

fn kind(upload: bool) -> &'static str {
    if upload { "bwlim-in" } else { "bwlim-out" }
}

fn size(args: &mut Args<'_, '_>) -> Result<u64, Diagnostic> {
    let value = args.size(u32::MAX.into())?;
    positive(args, value)
}

fn positive(args: &Args<'_, '_>, value: u64) -> Result<u64, Diagnostic> {
    if value > 0 {
        return Ok(value);
    }
    Err(args
        .wrong("the value must be greater than 0")
        .haproxy(format!("'filter' : '{}' expects a value greater than 0.", args.last())))
}

fn filter_sequence<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let on_request = args.one_of(&[("request", true), ("response", false)])?;
    let list = args.required("a list of filters")?;
    let slot: &mut Option<&'a Word> =
        if on_request { &mut settings.filter_sequence.0 } else { &mut settings.filter_sequence.1 };
    *slot = Some(list);
    args.finish()
}
