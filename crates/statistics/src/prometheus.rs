//! The Prometheus exporter (`http-request use-service prometheus-exporter`): the statistics as metrics, with the names that
//! dashboards for HAProxy use. A pure function, like the statistics page.

mod listing;
mod query;
mod tables;

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use state::table::Table;

use crate::aggregates;
use crate::certificates;
use crate::column::{C, COLUMNS, ObjectKind, ObjectRow};
use crate::config_view::ConfigView;
use crate::discovery;
use crate::disks;
use crate::durations;
use crate::exposition::{self, ExpositionFormat};
use crate::faults;
use crate::field::StatValue;
use crate::info;
use crate::mirrors;
use crate::page::PageResponse;
use crate::pieces::StatPieces;
use crate::policies;
use crate::process::Statistics;
use crate::stat::{RowFilter, Show};
use crate::telemetry;
pub use listing::{MetricSeries, series};
use query::MetricsQuery;
use tables::{As, METRICS, Metric, PROCESS, WITH_MODULES};

/// The number of a backend's servers in each state, and with each check status.
#[derive(Default)]
struct Tally {
    status: Vec<(&'static str, u32)>,
    check: Vec<(&'static str, u32)>,
}

impl Tally {
    fn status(&self) -> &[(&'static str, u32)] {
        &self.status
    }

    fn check(&self) -> &[(&'static str, u32)] {
        &self.check
    }

    /// Counts a server by its row.
    fn add(&mut self, row: &ObjectRow) {
        if self.status.is_empty() {
            let (names, _) = states(ObjectKind::Server, "");
            self.status = names.iter().map(|name| (*name, 0)).collect();
            self.check = results().map(|name| (name, 0)).collect();
        }
        let text = row.text(C::status);
        let checked = row.text(C::check_status);
        let (_, status) = states(ObjectKind::Server, &text);
        let check = checked.trim_start_matches("* ");
        for (counts, name) in [(&mut self.status, status), (&mut self.check, check)] {
            if let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == name) {
                *count += 1;
            }
        }
    }
}

/// The object kinds of `scope=`, in output order.
const SCOPES: &[(&str, ObjectKind)] = &[
    ("frontend", ObjectKind::Frontend),
    ("listener", ObjectKind::Listener),
    ("backend", ObjectKind::Backend),
    ("server", ObjectKind::Server),
];

/// A scrape.
#[derive(Debug, Clone, Copy)]
pub struct MetricsRequest<'a> {
    /// The method.
    pub method: http::Method,
    /// The URI with its parameters.
    pub uri: &'a str,
    /// The values of `Accept`, separated by commas; empty without the header.
    pub accept: &'a [u8],
}

/// Answers a scrape with GET or HEAD. The parameters are those of HAProxy's exporter: `scope=global|frontend|listener|
/// backend|server|resolver`, `metrics=`, `no-maint`, `desc-labels`, `extra-counters`, and
/// `no-histograms`. `Accept` selects the text format, OpenMetrics or the protobuf format. Pieces of the body may be empty.
pub fn respond(statistics: &Arc<Statistics>, request: &MetricsRequest<'_>) -> PageResponse {
    let headers =
        |kind: &str| vec![("cache-control", "no-cache".to_owned()), ("content-type", kind.to_owned())];
    let refuse = |status: u16, text: &str| PageResponse {
        status,
        headers: headers("text/plain"),
        body: Box::new(std::iter::once(format!("{text}\n").into_bytes())),
    };
    if !matches!(request.method, http::Method::Get | http::Method::Head) {
        return refuse(405, "Only GET and HEAD are supported.");
    }
    let query = request.uri.split_once('?').map_or("", |(_, query)| query);
    let wanted = match MetricsQuery::read(query) {
        Ok(wanted) => wanted,
        Err(text) => return refuse(400, text),
    };
    let format = exposition::choose(request.accept);
    let filter = RowFilter { no_maintenance: wanted.no_maintenance, ..RowFilter::default() };
    let kinds: Vec<ObjectKind> = SCOPES.iter().filter(|row| wanted.scope(row.0)).map(|row| row.1).collect();
    let process = wanted.scope("global").then(|| process_metrics(statistics, &wanted).into_bytes());
    let view = statistics.view();
    let resolvers = wanted.scope("resolver").then(|| {
        let text = crate::resolvers::metrics(&view, |name| wanted.metric("resolver", name));
        text.into_bytes()
    });
    let tables = wanted.scope(query::TABLES).then(|| table_metrics(&view, &wanted).into_bytes());
    let is_wanted =
        |object: &str, name: &str| wanted.scope(object) && wanted.named(&format!("weir_{object}_{name}"));
    let is_of_proxies = faults::is_wanted(|scope| wanted.scope(scope), |name| wanted.named(name));
    let faults = if is_of_proxies { faults::metrics(&view) } else { String::new() };
    let policies = faults
        + &policies::metrics(&view, is_wanted)
        + &mirrors::metrics(&view, is_wanted)
        + &disks::metrics(&view, is_wanted)
        + &aggregates::metrics(&view, |name| wanted.scope(query::TABLES) && wanted.named(name))
        + &aggregates::of_servers(&view, is_wanted)
        + &telemetry::metrics(&view, is_wanted)
        + &discovery::metrics(&view, is_wanted);
    let is_measured = |object: &str, name: &str| !wanted.no_histograms && is_wanted(object, name);
    let histograms = durations::metrics(view.clone(), durations::selected(is_measured), format);
    let certificates =
        certificates::metrics(view.clone(), is_wanted(certificates::SCOPE, certificates::NAME));
    let described = view.proxies.iter().filter(|_| wanted.describe);
    let descriptions =
        described.filter_map(|proxy| Some((proxy.state.name.clone(), proxy.description.clone()?))).collect();
    let rows = StatPieces::new(view, filter, Show::now(statistics, false), info::InfoFormat::Plain, false);
    let body: Box<dyn Iterator<Item = Vec<u8>>> = if request.method == http::Method::Head {
        Box::new(std::iter::empty())
    } else {
        let objects = Exporter {
            rows: Some(rows),
            found: Vec::new(),
            servers: Tally::default(),
            kinds,
            metrics: if wanted.modules { &WITH_MODULES } else { METRICS },
            wanted,
            descriptions,
            at: (0, 0, 0),
            shown: false,
        };
        let policies = std::iter::once(policies.into_bytes());
        let samples = process
            .into_iter()
            .chain(objects)
            .chain(tables)
            .chain(resolvers)
            .chain(policies)
            .chain(certificates);
        let end = (format == ExpositionFormat::OpenMetrics).then(|| b"# EOF\n".to_vec());
        Box::new(exposition::convert(format, samples).chain(histograms).chain(end))
    };
    PageResponse { status: 200, headers: headers(format.content_type()), body }
}

fn process_metrics(statistics: &Statistics, wanted: &MetricsQuery) -> String {
    let mut out = String::new();
    let described = statistics.view().description.as_deref().filter(|_| wanted.describe).map(escape);
    let labels = described.as_ref().map_or_else(String::new, |text| format!("{{desc=\"{text}\"}}"));
    let more = described.as_ref().map_or_else(String::new, |text| format!(",desc=\"{text}\""));
    let values = info::values(statistics, false);
    for (field, name, counter) in PROCESS {
        let Some(position) = info::FIELDS.iter().position(|known| known.name == *field) else { continue };
        if !wanted.metric("process", name) {
            continue;
        }
        let found = values.iter().find(|(at, _)| *at == position);
        // An unset description is not a missing value.
        if found.is_none() && *field == "description" {
            continue;
        }
        let kind = if *counter { "counter" } else { "gauge" };
        write_help(&mut out, "process", name, info::FIELDS[position].text, kind);
        let Some((_, value)) = found else {
            let _ = writeln!(out, "haproxy_process_{name}{labels} NaN");
            continue;
        };
        // Texts become labels of a metric with value 1.
        let label = match *name {
            "build_info" => "version",
            "node" => "node",
            "description" => "desc",
            _ => {
                let _ = write!(out, "haproxy_process_{name}{labels} ");
                value.write(&mut out);
                out.push('\n');
                continue;
            }
        };
        let mut text = String::new();
        value.write(&mut text);
        let more = if label == "desc" { "" } else { &more };
        let _ = writeln!(out, "haproxy_process_{name}{{{label}=\"{}\"{more}}} 1", escape(&text));
    }
    out
}

/// The metrics of stick tables and their descriptions.
const TABLES: [(&str, &str); 3] = [
    ("size", "Stick table size."),
    ("used", "Number of entries used in this stick table."),
    (
        "local_updates",
        "Total number of stick table updates announced to peers by this process. Wraps around after 4294967295.",
    ),
];

/// The metrics of stick tables, the last table first, as in HAProxy.
fn table_metrics(view: &ConfigView, wanted: &MetricsQuery) -> String {
    let mut out = String::new();
    let value = |name: &str, table: &Table| match name {
        "size" => table.settings.size,
        "used" => table.used(),
        _ => table.local_updates(),
    };
    if view.tables.is_empty() {
        return out;
    }
    for (name, text) in TABLES {
        if !wanted.metric("sticktable", name) {
            continue;
        }
        write_help(&mut out, "sticktable", name, text, "gauge");
        for table in view.tables.iter().rev() {
            let (own, kind) = (escape(table.name()), table.settings.kind.name());
            let _ = writeln!(
                out,
                "haproxy_sticktable_{name}{{name=\"{own}\",type=\"{kind}\"}} {}",
                value(name, table)
            );
        }
    }
    out
}

fn write_help(out: &mut String, object: &str, name: &str, text: &str, kind: &str) {
    let _ = writeln!(out, "# HELP haproxy_{object}_{name} {text}\n# TYPE haproxy_{object}_{name} {kind}");
}

/// The stored part of a row: kind, labels, and one value per metric.
struct MetricRow {
    kind: ObjectKind,
    labels: String,
    /// The values: `None` if an object of this kind never has the value, empty if it only has none at present.
    values: Box<[Option<StatValue>]>,
    /// For a backend with servers.
    servers: Tally,
}

/// Collects the rows in batches, then writes metric by metric, as the format requires.
struct Exporter {
    rows: Option<StatPieces>,
    found: Vec<MetricRow>,
    kinds: Vec<ObjectKind>,
    metrics: &'static [Metric],
    wanted: MetricsQuery,
    /// The servers read since the last backend.
    servers: Tally,
    /// The descriptions of proxies, if requested.
    descriptions: HashMap<Box<str>, Box<str>>,
    /// The kind, the metric and the row at which to continue.
    at: (usize, usize, usize),
    /// Whether the current metric is written: it is requested, and an object of this kind has it.
    shown: bool,
}

/// The number of rows read or samples written at a time.
const A_PIECE: usize = 64;

impl Iterator for Exporter {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(rows) = &mut self.rows {
            for _ in 0..A_PIECE {
                let Some(row) = rows.next_row() else {
                    self.rows = None;
                    break;
                };
                // A backend's row follows the rows of its servers.
                let servers = match row.kind {
                    ObjectKind::Backend => std::mem::take(&mut self.servers),
                    _ => Tally::default(),
                };
                if row.kind == ObjectKind::Server {
                    self.servers.add(&row);
                }
                if self.kinds.contains(&row.kind) {
                    self.found.push(keep(&row, servers, self.metrics, &self.descriptions));
                }
            }
            return Some(Vec::new());
        }
        let mut out = String::new();
        let kind = *self.kinds.get(self.at.0)?;
        let (_, index, start) = self.at;
        let metric = &self.metrics[index];
        if start == 0 {
            let has = |found: &MetricRow| match metric.form {
                As::Tally(of) => found.kind == kind && !of(&found.servers).is_empty(),
                _ => {
                    let has = |value: &StatValue| *value != StatValue::Empty || metric.is_always(kind);
                    found.kind == kind && found.values[index].as_ref().is_some_and(has)
                }
            };
            self.shown = self.wanted.metric(object(kind), metric.name) && self.found.iter().any(has);
            // Several metrics may share a name and differ in a label. Their help text is written once.
            let first = index == 0 || self.metrics[index - 1].name != metric.name;
            if self.shown && first {
                let text = COLUMNS[metric.column].text;
                write_help(&mut out, object(kind), metric.name, text, metric.kind());
            }
        }
        let end = if self.shown { (start + A_PIECE * 4).min(self.found.len()) } else { self.found.len() };
        if self.shown {
            for found in self.found[start..end].iter().filter(|found| found.kind == kind) {
                if let Some(value) = &found.values[index] {
                    write_sample(&mut out, metric, found, value);
                }
            }
        }
        self.at = match (end < self.found.len(), index + 1 < self.metrics.len()) {
            (true, _) => (self.at.0, index, end),
            (false, true) => (self.at.0, index + 1, 0),
            (false, false) => (self.at.0 + 1, 0, 0),
        };
        Some(out.into_bytes())
    }
}

fn object(kind: ObjectKind) -> &'static str {
    SCOPES.iter().find(|row| row.1 == kind).map_or("", |row| row.0)
}

fn keep(
    row: &ObjectRow,
    servers: Tally,
    metrics: &[Metric],
    descriptions: &HashMap<Box<str>, Box<str>>,
) -> MetricRow {
    let proxy = escape(&row.text(C::pxname));
    let own = escape(&row.text(C::svname));
    let mut labels = format!("proxy=\"{proxy}\"");
    if let Some(description) = descriptions.get(&*row.text(C::pxname)) {
        let _ = write!(labels, ",desc=\"{}\"", escape(description));
    }
    let _ = match row.kind {
        ObjectKind::Server => write!(labels, ",server=\"{own}\""),
        ObjectKind::Listener => write!(labels, ",listener=\"{own}\""),
        _ => Ok(()),
    };
    let is_http = row.text(C::mode) == state::Mode::Http.name();
    let values = metrics.iter().map(|metric| value(row, metric, is_http));
    MetricRow { kind: row.kind, labels, values: values.collect(), servers }
}

/// The value of a metric for an object.
fn value(row: &ObjectRow, metric: &Metric, is_http: bool) -> Option<StatValue> {
    let own = || row.values[metric.column].clone();
    // Without checks nothing is known. Before the first result, the value is 0.
    let of = |result: C| match (row.get(result), own()) {
        (StatValue::Empty, _) => None,
        (_, StatValue::Empty) => Some(StatValue::U32(0)),
        (_, own) => Some(own),
    };
    match (row.kind, metric.name) {
        (ObjectKind::Server, "active_servers" | "backup_servers")
        | (ObjectKind::Backend, "active" | "backup") => None,
        (ObjectKind::Server, "check_status" | "check_code" | "check_duration_seconds") => of(C::check_status),
        (ObjectKind::Server, "agent_status" | "agent_code" | "agent_duration_seconds") => of(C::agent_status),
        _ if metric.is_of_http() && !is_http => None,
        _ => Some(own()).filter(|own| !matches!(metric.form, As::Module(_)) || *own != StatValue::Empty),
    }
}

fn write_sample(out: &mut String, metric: &Metric, found: &MetricRow, value: &StatValue) {
    let (object, labels, name) = (object(found.kind), &found.labels, metric.name);
    let mut text = String::new();
    value.write(&mut text);
    if *value == StatValue::Empty && !matches!(metric.form, As::Status | As::Check) {
        // Other objects of the same kind have this value, but this one does not.
        text.push_str("NaN");
    }
    // Writing into a String cannot fail.
    let _ = match metric.form {
        As::Number => writeln!(out, "haproxy_{object}_{name}{{{labels}}} {text}"),
        As::Millis => {
            // NaN parses as a number, too.
            let ms = text.parse::<f64>().unwrap_or(0.0);
            writeln!(out, "haproxy_{object}_{name}{{{labels}}} {:.6}", ms / 1000.0)
        }
        As::Tally(of) => {
            for (state, count) in of(&found.servers) {
                let _ = writeln!(out, "haproxy_{object}_{name}{{{labels},state=\"{state}\"}} {count}");
            }
            return;
        }
        As::Module(module) => writeln!(out, "haproxy_{object}_{name}{{{labels},mod=\"{module}\"}} {text}"),
        As::Code(code) => writeln!(out, "haproxy_{object}_{name}{{{labels},code=\"{code}\"}} {text}"),
        As::Status => {
            let (states, present) = states(found.kind, &text);
            return write_states(out, &format!("haproxy_{object}_{name}"), labels, states, present);
        }
        As::Check => {
            let present = text.trim_start_matches("* ");
            let names: Vec<&str> = results().collect();
            return write_states(out, &format!("haproxy_{object}_{name}"), labels, &names, present);
        }
    };
}

/// The names of final check results, without those for checks in progress.
fn results() -> impl Iterator<Item = &'static str> {
    state::server::CHECK_STATUSES
        .iter()
        .map(|row| row.0)
        .filter(|name| !matches!(*name, "UNK" | "INI" | "CHECKED"))
}

fn write_states(out: &mut String, name: &str, labels: &str, states: &[&str], present: &str) {
    for state in states {
        let _ = writeln!(out, "{name}{{{labels},state=\"{state}\"}} {}", u8::from(*state == present));
    }
}

/// The possible states of an object of this kind, and the state that matches a status.
fn states(kind: ObjectKind, status: &str) -> (&'static [&'static str], &'static str) {
    match kind {
        ObjectKind::Frontend => (&["DOWN", "UP"], if status == "STOP" { "DOWN" } else { "UP" }),
        ObjectKind::Listener => {
            let state = match status {
                "FULL" => "FULL",
                "STOP" => "WAITING",
                _ => "OPEN",
            };
            (&["WAITING", "OPEN", "FULL"], state)
        }
        ObjectKind::Backend => (&["DOWN", "UP"], if status.starts_with("UP") { "UP" } else { "DOWN" }),
        ObjectKind::Server => {
            const STATES: [&str; 5] = ["DOWN", "UP", "MAINT", "DRAIN", "NOLB"];
            let state = STATES.into_iter().find(|state| status.starts_with(state));
            (&STATES, state.unwrap_or("UP"))
        }
    }
}

/// Escapes a label value.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
