//! The histograms of durations in the exporter (`latency-histograms`, docs/metrics.md). HAProxy has no equivalent.

use std::fmt::Write;
use std::sync::Arc;

use state::durations::{BOUNDS_US, Durations, MeasuredTime};

use crate::config_view::ConfigView;
use crate::field::DescribedMetric;

/// The objects that have histograms, and their labels.
const OBJECTS: [(&str, &[&str]); 3] =
    [("frontend", &["proxy"]), ("backend", &["proxy"]), ("server", &["proxy", "server"])];

/// The description of a time.
fn help(time: MeasuredTime) -> &'static str {
    match time {
        MeasuredTime::Queue => "Time that requests waited for a free slot of a server.",
        MeasuredTime::Connect => "Time to connect to a server, almost 0 on a reused connection.",
        MeasuredTime::Response => "Time from the connection to the end of the response head.",
        MeasuredTime::Total => {
            "Time from the first byte of a request to the last byte of its response, or of a TCP stream."
        }
    }
}

/// The metrics: object, name, type, description, labels.
pub(crate) fn described() -> impl Iterator<Item = DescribedMetric> {
    OBJECTS.iter().flat_map(|(object, labels)| {
        MeasuredTime::ALL
            .map(|time| (*object, format!("{}_time_seconds", time.name()), "histogram", help(time), *labels))
    })
}

/// The number of objects in a piece.
const A_PIECE: usize = 32;

/// Returns the metrics that `wanted` selects by object kind and name.
pub(crate) fn selected(wanted: impl Fn(&str, &str) -> bool) -> Vec<(&'static str, MeasuredTime)> {
    let all = OBJECTS.iter().flat_map(|(object, _)| MeasuredTime::ALL.map(|time| (*object, time)));
    all.filter(|(object, time)| wanted(object, &format!("{}_time_seconds", time.name()))).collect()
}

/// Returns the text of the metrics in pieces.
pub(crate) fn metrics(
    view: Arc<ConfigView>,
    selected: Vec<(&'static str, MeasuredTime)>,
) -> impl Iterator<Item = Vec<u8>> {
    // A list of servers may change while the pieces are written.
    let mut servers: Vec<Arc<state::Server>> = Vec::new();
    if selected.iter().any(|(object, _)| *object == "server") {
        let all = view.proxies.iter().filter(|proxy| proxy.state.is_backend);
        all.for_each(|proxy| servers.extend_from_slice(&proxy.state.servers.load()));
    }
    let servers = Arc::new(servers);
    selected.into_iter().flat_map(move |(object, time)| {
        let (view, servers) = (view.clone(), servers.clone());
        let objects = if object == "server" { servers.len() } else { view.proxies.len() };
        let mut described = false;
        (0..objects.div_ceil(A_PIECE)).map(move |piece| {
            let mut out = String::new();
            for at in piece * A_PIECE..objects.min((piece + 1) * A_PIECE) {
                let (labels, durations) = match object {
                    "server" => {
                        let server = &servers[at];
                        let labels = format!("proxy=\"{}\",server=\"{}\"", server.proxy, server.name);
                        (labels, &server.durations)
                    }
                    _ => {
                        let proxy = &view.proxies[at].state;
                        let own = &proxy.durations;
                        let durations = if object == "frontend" { &own.frontend } else { &own.backend };
                        (format!("proxy=\"{}\"", proxy.name), durations)
                    }
                };
                write(&mut out, &mut described, (object, time), &labels, durations);
            }
            out.into_bytes()
        })
    })
}

/// Writes the histogram of an object if it has counted a request.
fn write(
    out: &mut String,
    described: &mut bool,
    (object, time): (&str, MeasuredTime),
    labels: &str,
    durations: &Durations,
) {
    let Some(histograms) = durations.read() else { return };
    let own = &histograms[time as usize];
    // TCP streams, for example, have no response time.
    if own.total() == 0 {
        return;
    }
    let name = format!("weir_{object}_{}_time_seconds", time.name());
    if !std::mem::replace(described, true) {
        let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} histogram", help(time));
    }
    let mut below = 0;
    for (at, count) in own.counts.iter().enumerate() {
        below += count;
        let _ = match BOUNDS_US.get(at) {
            Some(end) => writeln!(out, "{name}_bucket{{{labels},le=\"{}\"}} {below}", *end as f64 / 1e6),
            None => writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {below}"),
        };
    }
    let sum = own.sum_us as f64 / 1e6;
    let _ = writeln!(out, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {below}");
}
