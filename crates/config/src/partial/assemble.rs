//! Puts separately resolved sections into a copy of the plan in use.

use std::sync::Arc;

use plan::source_text::{PlacedSection, SectionStart, SectionedFiles};
use plan::{Plan, Proxy};

use super::ChangedSections;
use crate::draft::Draft;

/// Returns `old` with the proxies of `own`. All objects that no changed section defines are shared with `old`.
pub(super) fn plan(found: &ChangedSections, old: &Plan, draft: &Draft, own: Plan) -> Plan {
    let mut proxies: Vec<Arc<Proxy>> = old.proxies.iter().cloned().collect();
    let mut attended = old.attended.clone();
    for ((_, index), proxy) in found.changed.iter().zip(own.proxies.into_fixed()) {
        match (attended.binary_search(index), Plan::has_attended(&proxy)) {
            (Err(at), true) => attended.insert(at, *index),
            (Ok(at), false) => drop(attended.remove(at)),
            _ => {}
        }
        // Nothing else refers to it yet.
        if let Some(proxy) = Arc::into_inner(proxy) {
            proxies[*index] = Arc::new(Proxy { index: *index, ..proxy });
        }
    }
    Plan {
        global: old.global.clone(),
        proxies: proxies.into(),
        attended,
        resolvers: old.resolvers.clone(),
        mailers: old.mailers.clone(),
        frontends: old.frontends.clone(),
        backends: old.backends.configured(),
        kept: old.kept.clone(),
        source: source(found, old, draft),
        sectioned: old
            .sectioned
            .as_ref()
            .map(|known| SectionedFiles { files: found.files.clone(), others: known.others.clone() }),
        files: old.files.clone(),
        variables: old.variables.clone(),
        patterns: old.patterns.clone(),
        certificates: old.certificates.clone(),
        lua: old.lua.clone(),
        tables: old.tables.clone(),
        caches: old.caches.clone(),
        revalidates: old.revalidates,
        tls: old.tls.clone(),
        acme: old.acme.clone(),
        traces: old.traces.clone(),
        rings: old.rings.clone(),
        ring_servers: old.ring_servers.clone(),
        telemetry: old.telemetry.clone(),
        discovery: old.discovery.clone(),
        environment: old.environment.clone(),
    }
}

/// The text of all sections, with their current line numbers.
fn source(found: &ChangedSections, old: &Plan, draft: &Draft) -> Vec<PlacedSection> {
    let mut source = old.source.clone();
    let starts = found.files.iter().flat_map(|file| &file.sections);
    for (placed, SectionStart { line, .. }) in source.iter_mut().zip(starts) {
        placed.line = *line;
    }
    for (index, new) in found.indexes().zip(found.sections(draft)) {
        source[index].section = new.section;
    }
    source
}
