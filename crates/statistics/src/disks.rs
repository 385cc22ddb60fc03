//! `show cache disk`, and the same values in the exporter (docs/beyond-haproxy.md): the files of caches (`disk` in a `cache`
//! section). HAProxy has no equivalent.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cache::StoreFiles;

use crate::config_view::ConfigView;
use crate::field::DescribedMetric;

/// A value of a cache's files: the name of its column and metric, its description, and its getter.
type DiskMetric = (&'static str, &'static str, fn(&StoreFiles) -> u64);

#[rustfmt::skip]
const STATES: &[DiskMetric] = &[
    ("in_use",  "Whether the directory of a cache is ready for use by this process.",           |own| own.is_open().into()),
    ("files",   "Number of responses of a cache in files, including those being written.",       |own| own.count() as u64),
    ("bytes",   "Size of the files of a cache in bytes.",                                        |own| own.bytes()),
    ("size",    "Maximum size of the files of a cache in bytes.",                                |own| own.settings.size),
];

#[rustfmt::skip]
const COUNTS: &[DiskMetric] = &[
    ("hits",    "Total number of responses that a cache read from files.",                       |own| get(&own.counts.hits)),
    ("written", "Total number of responses that a cache wrote to files.",                        |own| get(&own.counts.written)),
    ("evicted", "Total number of files that a cache evicted.",                                   |own| get(&own.counts.evicted)),
    ("passed",  "Total number of responses that a cache did not write because its write queue was full.", |own| get(&own.counts.passed)),
    ("wrong",   "Total number of damaged files that a cache removed.",                           |own| get(&own.counts.wrong)),
    ("errors",  "Total number of I/O errors of a cache.",                                        |own| get(&own.counts.errors)),
];

fn get(count: &AtomicU64) -> u64 {
    count.load(Relaxed)
}

/// The caches that have files.
fn disks(view: &ConfigView) -> impl Iterator<Item = &Arc<StoreFiles>> {
    view.caches.iter().filter_map(|store| store.files.as_ref())
}

/// The response to `show cache disk`: the cache `wanted`, or all of them if that is empty.
///
/// # Errors
/// The message for the client if the cache does not exist or has no files.
pub fn show(view: &ConfigView, wanted: &str) -> Result<String, String> {
    let chosen: Vec<_> = disks(view).filter(|own| wanted.is_empty() || *own.name == *wanted).collect();
    if chosen.is_empty() && !wanted.is_empty() {
        return Err(format!("No cache '{wanted}' has a 'disk'."));
    }
    let mut out = "# cache".to_owned();
    for (name, ..) in STATES.iter().chain(COUNTS) {
        let _ = write!(out, " {name}");
    }
    out.push_str(" directory\n");
    for own in chosen {
        out.push_str(&own.name);
        for (.., value) in STATES.iter().chain(COUNTS) {
            let _ = write!(out, " {}", value(own));
        }
        let _ = writeln!(out, " {}", own.settings.directory);
    }
    Ok(out)
}

/// The metrics: object, name, type, description, labels.
pub(crate) fn described() -> impl Iterator<Item = DescribedMetric> {
    let states = STATES.iter().map(|(name, help, _)| (format!("disk_{name}"), "gauge", *help));
    let counts = COUNTS.iter().map(|(name, help, _)| (format!("disk_{name}_total"), "counter", *help));
    states.chain(counts).map(|(name, kind, help)| ("cache", name, kind, help, &["cache"][..]))
}

/// The metrics; `wanted` selects them by object kind and name.
pub(crate) fn metrics(view: &ConfigView, wanted: impl Fn(&str, &str) -> bool) -> String {
    let mut out = String::new();
    if disks(view).next().is_none() {
        return out;
    }
    for (rows, kind) in [(STATES, "gauge"), (COUNTS, "counter")] {
        for (name, help, value) in rows {
            let name = format!("disk_{name}{}", if kind == "counter" { "_total" } else { "" });
            if !wanted("cache", &name) {
                continue;
            }
            let _ = writeln!(out, "# HELP weir_cache_{name} {help}\n# TYPE weir_cache_{name} {kind}");
            for own in disks(view) {
                let _ = writeln!(out, "weir_cache_{name}{{cache=\"{}\"}} {}", own.name, value(own));
            }
        }
    }
    out
}
