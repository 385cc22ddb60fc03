//! `show discovery`, and the same values in the exporter (docs/discovery.md): the sources of discovered servers. HAProxy has no
//! equivalent.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use serde_json::{Value, json};
use state::discovery::{DiscoverySource, Feed, FeedState, Instance};

use crate::config_view::ConfigView;
use crate::field::DescribedMetric;

/// A value: the name of its column and metric, its type, its description, and its getter. `None` for times of events that have not
/// happened.
type DiscoveryMetric = (&'static str, &'static str, &'static str, fn(&Feed, u64) -> Option<u64>);

#[rustfmt::skip]
const ROWS: &[DiscoveryMetric] = &[
    ("age_seconds",       "gauge",   "Time since the source last answered.",                                        |own, now| own.age(now).map(|ms| ms / 1000)),
    ("unchanged_seconds", "gauge",   "Time since the list last changed.",                                           |own, now| own.unchanged(now).map(|ms| ms / 1000)),
    ("changes",           "counter", "Total number of changes of the list.",                                        |own, _| Some(own.changes.get())),
    ("errors",            "counter", "Total number of failed requests and unusable answers.",                       |own, _| Some(own.errors.get())),
    ("instances",         "gauge",   "Number of instances in the list.",                                            |own, _| Some(own.list().map_or(0, |list| list.len() as u64))),
    ("servers",           "gauge",   "Number of servers made of the list.",                                         |own, _| Some(own.servers.load(Relaxed))),
    ("excess",            "gauge",   "Number of instances left out because of `max`.",                              |own, _| Some(own.excess.load(Relaxed))),
    ("failed",            "gauge",   "Whether the source fails, so that the last list is kept.",                    |own, _| Some(u64::from(own.state().0 == FeedState::Failed))),
];

/// The name of a metric of a row: counters end in `_total`.
fn metric_name(name: &str, kind: &str) -> String {
    if kind == "counter" { format!("{name}_total") } else { name.to_owned() }
}

/// The response to `show discovery`: the section `wanted` with its instances, or all sections without them if that is empty.
///
/// # Errors
/// The message for the client if the section does not exist.
pub fn show(view: &ConfigView, wanted: &str) -> Result<String, String> {
    let named = |source: &&Arc<DiscoverySource>| wanted.is_empty() || *source.name == *wanted;
    let chosen: Vec<_> = view.discovery.iter().filter(named).collect();
    if chosen.is_empty() && !wanted.is_empty() {
        return Err(format!("No discovery section '{wanted}'."));
    }
    let now = now_ms();
    let mut out = "# section query state age unchanged changes errors instances servers excess\n".to_owned();
    for source in chosen {
        for feed in source.feeds() {
            let query = if feed.query.is_empty() { "-" } else { &feed.query };
            let (state, error) = feed.state();
            let _ = write!(out, "{} {query} {}", source.name, state.name());
            for (.., value) in ROWS.iter().filter(|(name, ..)| *name != "failed") {
                let _ = match value(&feed, now) {
                    Some(value) => write!(out, " {value}"),
                    None => write!(out, " -"),
                };
            }
            out.push('\n');
            if wanted.is_empty() {
                continue;
            }
            let _ = writeln!(out, "  source: {}", source.line);
            if !error.is_empty() {
                let _ = writeln!(out, "  error: {error}");
            }
            for instance in feed.list().iter().flat_map(|list| list.iter()) {
                let _ = writeln!(out, "  {}", described_instance(instance));
            }
        }
    }
    Ok(out)
}

fn described_instance(instance: &Instance) -> String {
    let mut text = format!("{} {}", instance.id, instance.socket());
    let _ = match instance.weight {
        Some(weight) => write!(text, " weight {weight}"),
        None => Ok(()),
    };
    let _ = match &instance.zone {
        Some(zone) => write!(text, " zone {zone}"),
        None => Ok(()),
    };
    text.push_str(match (instance.is_draining, instance.is_ready) {
        (true, _) => " draining",
        (false, true) => " ready",
        (false, false) => " not-ready",
    });
    for (name, value) in &*instance.labels {
        let _ = write!(text, " {name}={value}");
    }
    text
}

/// All lists, one JSON object in a line for each, which a successor of this process reads (`show discovery json`).
pub fn json(view: &ConfigView) -> String {
    let mut out = String::new();
    for source in &view.discovery {
        for feed in source.feeds() {
            let Some(list) = feed.list() else { continue };
            let instances: Vec<Value> = list.iter().map(instance).collect();
            let line = json!({
                "section": source.name, "source": source.line, "query": feed.query, "instances": instances,
            });
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

fn instance(own: &Instance) -> Value {
    json!({
        "id": own.id, "address": own.socket().to_string(), "weight": own.weight, "zone": own.zone,
        "ready": own.is_ready, "draining": own.is_draining, "labels": *own.labels,
    })
}

/// The metrics: object, name, type, description, labels.
pub(crate) fn described() -> impl Iterator<Item = DescribedMetric> {
    ROWS.iter().map(|(name, kind, help, _)| {
        ("discovery", metric_name(name, kind), *kind, *help, &["section", "query"][..])
    })
}

/// The metrics; `wanted` selects them by object kind and name.
pub(crate) fn metrics(view: &ConfigView, wanted: impl Fn(&str, &str) -> bool) -> String {
    let mut out = String::new();
    let feeds: Vec<Arc<Feed>> = view.discovery.iter().flat_map(|source| source.feeds()).collect();
    if feeds.is_empty() {
        return out;
    }
    let now = now_ms();
    for (name, kind, help, value) in ROWS {
        let name = metric_name(name, kind);
        if !wanted("discovery", &name) {
            continue;
        }
        let _ = writeln!(out, "# HELP weir_discovery_{name} {help}\n# TYPE weir_discovery_{name} {kind}");
        for feed in &feeds {
            let Some(value) = value(feed, now) else { continue };
            let (section, query) = (&feed.section, feed.query.replace('\\', "\\\\").replace('"', "\\\""));
            let _ = writeln!(out, "weir_discovery_{name}{{section=\"{section}\",query=\"{query}\"}} {value}");
        }
    }
    out
}
