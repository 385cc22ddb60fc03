//! `cache` sections (manual, section 6.2.1), and the check that a proxy with caches places them among its filters.

use std::sync::Arc;

use cache::{CacheSettings, Disk, Hints, Store};
use diag::Diagnostic;
use plan::filter::{CachePlaces, FilterPlaces};
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::cache::CacheDraft;
use crate::draft::keyword::{Apply, apply_of};
use crate::draft::settings::{CompressionFilter, FilterDraft, FilterKind};
use crate::draft::{Draft, Section, SectionKind};
use crate::resolve::unique::second;
use crate::resolve::{PendingProxy, ResolveContext, carry_over};

/// Creates the store of every section.
pub(crate) fn stores(draft: &Draft, context: &mut ResolveContext<'_>) -> Vec<Arc<Store>> {
    let mut made: Vec<(&Section, Option<CacheSettings>)> = Vec::new();
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::Cache) {
        let name = &section.name;
        if let Some((other, _)) = made.iter().find(|(other, _)| *other.name == **name) {
            let haproxy = |name: &str, _: &str| format!("Duplicate cache name '{name}'.");
            let error = second(section, other, haproxy, context);
            context.diagnostics.push(error);
            continue;
        }
        let settings = read(section, context);
        made.push((section, settings));
    }
    refuse_shared_directories(&made, context);
    let settings = made.into_iter().filter_map(|(_, settings)| settings);
    settings.map(|settings| carry_over::cache(settings, context.previous)).collect()
}

/// A directory belongs to a single cache.
fn refuse_shared_directories(made: &[(&Section, Option<CacheSettings>)], context: &mut ResolveContext<'_>) {
    let directory =
        |settings: &Option<CacheSettings>| Some(settings.as_ref()?.disk.as_ref()?.directory.clone());
    for (at, (section, settings)) in made.iter().enumerate() {
        let Some(own) = directory(settings) else { continue };
        if let Some((other, _)) =
            made[..at].iter().find(|(_, other)| directory(other).is_some_and(|dir| dir == own))
        {
            let line = |section: &Section| {
                let mut lines = section.statements.iter().filter(|line| line.keyword.name == "disk");
                lines.next_back().map_or(section.name.span(), |line| line.span)
            };
            context.diagnostics.push(
                Diagnostic::alert(format!("two caches cannot use the same directory `{own}`"))
                    .at(line(section))
                    .related(line(other), "already used here")
                    .help("use a separate directory for each cache"),
            );
        }
    }
}

fn read(section: &Section, context: &mut ResolveContext<'_>) -> Option<CacheSettings> {
    let mut draft = CacheDraft::default();
    let errors = context.diagnostics.error_count();
    for statement in &section.statements {
        if let Apply::Cache(read) = apply_of(statement) {
            let mut args = Args::new(statement, context.diagnostics, context.environment);
            let outcome = read(&mut draft, &mut args);
            context.note(outcome);
        }
    }
    let name = &section.name;
    let Some(megabytes) = draft.megabytes else {
        // An invalid size was already reported.
        if context.diagnostics.error_count() == errors {
            context.diagnostics.push(
                Diagnostic::alert(format!("cache `{name}` has no size"))
                    .at(name.span())
                    .help("use `total-max-size` to set its size in megabytes")
                    .haproxy_whole(format!("config : Size not specified for cache '{name}'")),
            );
        }
        return None;
    };
    let mut settings = CacheSettings::new(name, megabytes * 1024);
    let half = u64::from(settings.blocks) * CacheSettings::BLOCK / 2;
    if let Some((size, word)) = draft.max_object {
        if size > half {
            context.diagnostics.push(
                Diagnostic::alert(format!(
                    "an object size of {size} bytes is more than half of cache `{name}`"
                ))
                .at(word.span())
                .help(format!("use at most {half} bytes, or a larger `total-max-size`"))
                .haproxy_whole(format!(
                    "config : \"max-object-size\" is limited to an half of \"total-max-size\" => {half}"
                )),
            );
            return None;
        }
        settings.max_object = size;
    }
    settings.max_age = draft.max_age.unwrap_or(settings.max_age);
    settings.vary = draft.vary.unwrap_or(settings.vary);
    if let Some((most, word)) = draft.max_variants {
        settings.max_variants = most;
        if !settings.vary {
            context.diagnostics.push(
                Diagnostic::advice("`max-secondary-entries` has no effect without `process-vary on`")
                    .at(word.span()),
            );
        }
    }
    if let Some((hints, ratio)) = draft.hints {
        settings.hints = hints;
        settings.hints_ratio = ratio.unwrap_or(settings.hints_ratio);
    }
    settings.stale_while_revalidate = draft.stale_while_revalidate;
    settings.stale_if_error = draft.stale_if_error;
    settings.wait_ms = draft.wait_ms;
    settings.ranges = draft.ranges;
    settings.revalidation = draft.revalidation;
    settings.disk = draft.disk.map(|(directory, size)| Disk { directory: directory.as_str().into(), size });
    settings.tags = draft.tags.map(|word| word.as_str().to_ascii_lowercase().into());
    if settings.hints == Hints::Only {
        for statement in section.statements.iter().filter(|own| OF_RESPONSES.contains(&own.keyword.name)) {
            let name = statement.keyword.name;
            context.diagnostics.push(
                Diagnostic::advice(format!("`{name}` has no effect with `early-hints only`"))
                    .at(statement.span)
                    .help("it caches no responses"),
            );
        }
    }
    Some(settings)
}

/// Keywords that affect the use of cached responses.
const OF_RESPONSES: &[&str] = &[
    "collapsed-forwarding",
    "disk",
    "process-range",
    "purge-tags",
    "revalidation",
    "stale-if-error",
    "stale-while-revalidate",
];

/// Returns the positions of caches among the filters of a proxy with rules that name `used`. `places` contains the position of
/// each filter, by line. Reports an invalid order.
pub(crate) fn places(
    proxy: &PendingProxy<'_>,
    used: &[Arc<Store>],
    places: &[FilterPlaces],
    context: &mut ResolveContext<'_>,
) -> CachePlaces {
    let name = proxy.settings.name;
    let filters = &proxy.settings.filters;
    let whose = |word: &Word, message: String, haproxy: String| {
        Diagnostic::alert(message)
            .at(word.span())
            .haproxy_whole(format!("config: {} '{name}': {haproxy}", proxy.settings.kind_name()))
    };
    let is_compression = |filter: &FilterDraft<'_>| match filter.kind {
        FilterKind::Compression(which) => which != CompressionFilter::Request,
        _ => false,
    };
    let compressed = filters.iter().position(is_compression).and_then(|line| places[line].response);
    let sequence = proxy.settings.filter_sequence.1;
    let mut named = Vec::new();
    for (filter, place) in filters.iter().zip(places) {
        let FilterKind::Cache(cache) = filter.kind else { continue };
        let place = place.response;
        named.push((cache.as_str().into(), place));
        if !context.names.caches.iter().any(|store| *store.settings.name == **cache) {
            let message = format!("there is no cache `{cache}`");
            let haproxy = format!("unable to find the cache '{cache}' referenced by the filter 'cache'.");
            context.diagnostics.push(whose(cache, message, haproxy));
        } else if place.zip(compressed).is_some_and(|(own, compressed)| compressed < own) {
            let message = format!("compressed responses cannot be stored in cache `{cache}`");
            let haproxy = format!("unable to enable the compression filter before the cache '{cache}'.");
            let error = whose(cache, message, haproxy);
            context.diagnostics.push(match sequence {
                None => error.help("put this line before the compression filter"),
                Some(_) => error.help("put `cache` before `comp-res` in `filter-sequence response`"),
            });
        }
    }
    let is_named = |store: &Store| {
        let is =
            |kind: &FilterKind<'_>| matches!(kind, FilterKind::Cache(name) if **name == *store.settings.name);
        filters.iter().any(|filter| is(&filter.kind))
    };
    let other = filters.iter().find(|filter| {
        !matches!(filter.kind, FilterKind::Compression(_) | FilterKind::Cache(_) | FilterKind::Fcgi(_))
    });
    if let Some(other) = other {
        for store in used.iter().filter(|store| !is_named(store)) {
            let cache = &store.settings.name;
            let message = format!("`{name}` has filters, but none for its cache `{cache}`");
            let haproxy = format!("require an explicit filter declaration to use the cache '{cache}'.");
            let error = whose(other.keyword, message, haproxy);
            context.diagnostics.push(
                error.help(format!("use `filter cache {cache}` to define its position among the filters")),
            );
        }
    }
    // Caches without a filter line come before all caches with one.
    let is_used = sequence.is_none_or(|list| list.split(',').any(|own| own == "cache"));
    CachePlaces { named, others: is_used.then_some(0) }
}
