//! `show mirror`, and the same values in the exporter (docs/beyond-haproxy.md): copies of requests sent to backends (`http-request
//! mirror`). HAProxy has no equivalent.

use std::fmt::Write;

use runtime::Count;
use state::Mirror;
use state::mirror::MirrorCounters;

use crate::config_view::ConfigView;
use crate::field::DescribedMetric;

/// A counter of copies: the name of its metric and column, its description, and its getter.
type MirrorMetric = (&'static str, &'static str, fn(&MirrorCounters) -> &Count);

#[rustfmt::skip]
const ROWS: &[MirrorMetric] = &[
    ("begun",        "Number of mirrored requests in flight.",                                     |own| &own.begun),
    ("answered",     "Total number of mirrored requests that a server answered.",                  |own| &own.answered),
    ("failed",       "Total number of mirrored requests that failed.",                             |own| &own.failed),
    ("dropped",      "Total number of requests not mirrored because too many were in flight.",     |own| &own.dropped),
    ("cut",          "Total number of mirrored requests with a truncated body, because it was too large or the mirror too slow.", |own| &own.cut),
];

/// The backends that receive copies.
fn backends(view: &ConfigView) -> impl Iterator<Item = (&str, &Mirror)> {
    view.proxies.iter().filter_map(|proxy| Some((&*proxy.state.name, proxy.state.mirror()?)))
}

/// The response to `show mirror`: the backend `wanted`, or all that receive copies if that is empty.
///
/// # Errors
/// The message for the client if the backend receives no copies.
pub fn show(view: &ConfigView, wanted: &str) -> Result<String, String> {
    let chosen: Vec<_> = backends(view).filter(|(name, _)| wanted.is_empty() || *name == wanted).collect();
    if chosen.is_empty() && !wanted.is_empty() {
        return Err(format!("No rule mirrors requests to backend '{wanted}'."));
    }
    let mut out = "# be_name".to_owned();
    for (name, ..) in ROWS {
        let _ = write!(out, " {name}");
    }
    out.push('\n');
    for (name, own) in chosen {
        out.push_str(name);
        for (.., count) in ROWS {
            let _ = write!(out, " {}", own.sum(count));
        }
        out.push('\n');
    }
    Ok(out)
}

/// The metrics: object, name, type, description, labels.
pub(crate) fn described() -> impl Iterator<Item = DescribedMetric> {
    ROWS.iter()
        .map(|(name, help, _)| ("backend", format!("mirror_{name}_total"), "counter", *help, &["proxy"][..]))
}

/// The metrics; `wanted` selects them by object kind and name.
pub(crate) fn metrics(view: &ConfigView, wanted: impl Fn(&str, &str) -> bool) -> String {
    let mut out = String::new();
    if backends(view).next().is_none() {
        return out;
    }
    for (name, help, count) in ROWS {
        let name = format!("mirror_{name}_total");
        if !wanted("backend", &name) {
            continue;
        }
        let _ = writeln!(out, "# HELP weir_backend_{name} {help}\n# TYPE weir_backend_{name} counter");
        for (proxy, own) in backends(view) {
            let _ = writeln!(out, "weir_backend_{name}{{proxy=\"{proxy}\"}} {}", own.sum(count));
        }
    }
    out
}
