//! The Prometheus exporter (`http-request use-service prometheus-exporter`): the statistics as metrics, under the
//! names that dashboards for HAProxy know. A pure function like the statistics page.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use crate::column::{C, COLUMNS, Kind, Row};
use crate::field::Value;
use crate::info;
use crate::shows::StatPieces;
use crate::stat::{Filter, Show};
use crate::statistics::{PageRequest, PageResponse};
use crate::view::Runtime;

/// How a value becomes a sample.
#[derive(Clone, Copy)]
enum As {
    /// As it is.
    Number,
    /// Milliseconds to seconds.
    Millis,
    /// One sample a state, 1 for the present one: `UP`, `DOWN` …
    Status,
    /// One sample a check status.
    Check,
    /// With a label `code`.
    Code(&'static str),
    /// One sample a state, with the number of the backend's servers in it.
    Tally(fn(&Tally) -> &[(&'static str, u32)]),
}

/// How many of a backend's servers are in each state, and have each check status.
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
    fn add(&mut self, row: &Row) {
        if self.status.is_empty() {
            let (names, _) = states(Kind::Server, "");
            self.status = names.iter().map(|name| (*name, 0)).collect();
            self.check = state::server::CHECK_STATUSES.iter().map(|row| (row.0, 0)).collect();
        }
        let text = row.text(C::status);
        let checked = row.text(C::check_status);
        let (_, status) = states(Kind::Server, &text);
        let check = checked.trim_start_matches("* ");
        for (counts, name) in [(&mut self.status, status), (&mut self.check, check)] {
            if let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == name) {
                *count += 1;
            }
        }
    }
}

/// A metric of proxies and servers: its name behind `haproxy_<object>_`, its column, its form, whether it counts.
struct Metric {
    name: &'static str,
    column: C,
    form: As,
    counter: bool,
}

const fn gauge(name: &'static str, column: C) -> Metric {
    Metric { name, column, form: As::Number, counter: false }
}

const fn total(name: &'static str, column: C) -> Metric {
    Metric { name, column, form: As::Number, counter: true }
}

const fn millis(name: &'static str, column: C) -> Metric {
    Metric { name, column, form: As::Millis, counter: false }
}

const fn responses(code: &'static str, column: C) -> Metric {
    Metric { name: "http_responses_total", column, form: As::Code(code), counter: true }
}

/// Metrics in the order they are written; those without a value for an object are left out for it.
#[rustfmt::skip]
const METRICS: &[Metric] = &[
    gauge ("current_queue",                     C::qcur),
    gauge ("max_queue",                         C::qmax),
    gauge ("current_sessions",                  C::scur),
    gauge ("max_sessions",                      C::smax),
    gauge ("limit_sessions",                    C::slim),
    total ("sessions_total",                    C::stot),
    total ("bytes_in_total",                    C::bin),
    total ("bytes_out_total",                   C::bout),
    total ("requests_denied_total",             C::dreq),
    total ("responses_denied_total",            C::dresp),
    total ("request_errors_total",              C::ereq),
    total ("connection_errors_total",           C::econ),
    total ("response_errors_total",             C::eresp),
    total ("retry_warnings_total",              C::wretr),
    total ("redispatch_warnings_total",         C::wredis),
    Metric { name: "status", column: C::status, form: As::Status, counter: false },
    gauge ("weight",                            C::weight),
    // A server is not a number of servers.
    gauge ("active_servers",                    C::act),
    gauge ("active",                            C::act),
    gauge ("backup_servers",                    C::bck),
    gauge ("backup",                            C::bck),
    total ("check_failures_total",              C::chkfail),
    total ("check_up_down_total",               C::chkdown),
    gauge ("check_last_change_seconds",         C::lastchg),
    total ("downtime_seconds_total",            C::downtime),
    gauge ("queue_limit",                       C::qlimit),
    gauge ("current_throttle",                  C::throttle),
    total ("loadbalanced_total",                C::lbtot),
    gauge ("current_session_rate",              C::rate),
    gauge ("limit_session_rate",                C::rate_lim),
    gauge ("max_session_rate",                  C::rate_max),
    Metric { name: "check_status", column: C::check_status, form: As::Check, counter: false },
    gauge ("check_code",                        C::check_code),
    millis("check_duration_seconds",            C::check_duration),
    responses("1xx",                            C::hrsp_1xx),
    responses("2xx",                            C::hrsp_2xx),
    responses("3xx",                            C::hrsp_3xx),
    responses("4xx",                            C::hrsp_4xx),
    responses("5xx",                            C::hrsp_5xx),
    responses("other",                          C::hrsp_other),
    gauge ("http_requests_rate_current",        C::req_rate),
    gauge ("http_requests_rate_max",            C::req_rate_max),
    total ("http_requests_total",               C::req_tot),
    total ("client_aborts_total",               C::cli_abrt),
    total ("server_aborts_total",               C::srv_abrt),
    total ("http_comp_bytes_in_total",          C::comp_in),
    total ("http_comp_bytes_out_total",         C::comp_out),
    total ("http_comp_bytes_bypassed_total",    C::comp_byp),
    total ("http_comp_responses_total",         C::comp_rsp),
    gauge ("last_session_seconds",              C::lastsess),
    millis("queue_time_average_seconds",        C::qtime),
    millis("connect_time_average_seconds",      C::ctime),
    millis("response_time_average_seconds",     C::rtime),
    millis("total_time_average_seconds",        C::ttime),
    gauge ("connections_rate_current",          C::conn_rate),
    gauge ("connections_rate_max",              C::conn_rate_max),
    total ("connections_total",                 C::conn_tot),
    total ("intercepted_requests_total",        C::intercepted),
    total ("denied_connections_total",          C::dcon),
    total ("denied_sessions_total",             C::dses),
    total ("failed_header_rewriting_total",     C::wrew),
    total ("connection_attempts_total",         C::connect),
    total ("connection_reuses_total",           C::reuse),
    total ("http_cache_lookups_total",          C::cache_lookups),
    total ("http_cache_hits_total",             C::cache_hits),
    gauge ("idle_connections_current",          C::srv_icur),
    gauge ("idle_connections_limit",            C::src_ilim),
    millis("max_queue_time_seconds",            C::qtime_max),
    millis("max_connect_time_seconds",          C::ctime_max),
    millis("max_response_time_seconds",         C::rtime_max),
    millis("max_total_time_seconds",            C::ttime_max),
    total ("internal_errors_total",             C::eint),
    gauge ("unsafe_idle_connections_current",   C::idle_conn_cur),
    gauge ("safe_idle_connections_current",     C::safe_conn_cur),
    gauge ("used_connections_current",          C::used_conn_cur),
    gauge ("need_connections_current",          C::need_conn_est),
    gauge ("uweight",                           C::uweight),
    Metric { name: "agg_server_status", column: C::agg_server_status, form: As::Tally(Tally::status), counter: false },
    Metric { name: "agg_server_check_status", column: C::agg_server_check_status, form: As::Tally(Tally::status), counter: false },
    Metric { name: "agg_check_status", column: C::agg_check_status, form: As::Tally(Tally::check), counter: false },
    gauge ("private_idle_connections_current",  C::priv_idle_cur),
    total ("req_bytes_in_total",                C::reqbin),
    total ("req_bytes_out_total",               C::reqbout),
    total ("res_bytes_in_total",                C::resbin),
    total ("res_bytes_out_total",               C::resbout),
    total ("http_cache_hint_hits_total",        C::cache_hint_hits),
];

/// Process metrics: field of `show info`, name behind `haproxy_process_`, whether it counts.
#[rustfmt::skip]
const PROCESS: &[(&str, &str, bool)] = &[
    ("Nbthread",             "nbthread",                 false),
    ("Nbproc",               "nbproc",                   false),
    ("Process_num",          "relative_process_id",      false),
    ("Uptime_sec",           "uptime_seconds",           false),
    ("PoolFailed",           "pool_failures_total",      true),
    ("Ulimit-n",             "max_fds",                  false),
    ("Maxsock",              "max_sockets",              false),
    ("Maxconn",              "max_connections",          false),
    ("Hard_maxconn",         "hard_max_connections",     false),
    ("CurrConns",            "current_connections",      false),
    ("CumConns",             "connections_total",        true),
    ("CumReq",               "requests_total",           true),
    ("MaxSslConns",          "max_ssl_connections",      false),
    ("CurrSslConns",         "current_ssl_connections",  false),
    ("CumSslConns",          "ssl_connections_total",    true),
    ("Maxpipes",             "max_pipes",                false),
    ("PipesUsed",            "pipes_used_total",         true),
    ("PipesFree",            "pipes_free_total",         true),
    ("ConnRate",             "current_connection_rate",  false),
    ("ConnRateLimit",        "limit_connection_rate",    false),
    ("MaxConnRate",          "max_connection_rate",      false),
    ("SessRate",             "current_session_rate",     false),
    ("SessRateLimit",        "limit_session_rate",       false),
    ("MaxSessRate",          "max_session_rate",         false),
    ("SslRate",              "current_ssl_rate",         false),
    ("SslRateLimit",         "limit_ssl_rate",           false),
    ("MaxSslRate",           "max_ssl_rate",             false),
    ("SslFrontendKeyRate",   "current_frontend_ssl_key_rate", false),
    ("SslFrontendMaxKeyRate", "max_frontend_ssl_key_rate", false),
    ("SslFrontendSessionReuse_pct", "frontend_ssl_reuse", false),
    ("SslBackendKeyRate",    "current_backend_ssl_key_rate", false),
    ("SslBackendMaxKeyRate", "max_backend_ssl_key_rate", false),
    ("SslCacheLookups",      "ssl_cache_lookups_total",  true),
    ("SslCacheMisses",       "ssl_cache_misses_total",   true),
    ("CompressBpsIn",        "http_comp_bytes_in_total", true),
    ("CompressBpsOut",       "http_comp_bytes_out_total", true),
    ("CompressBpsRateLim",   "limit_http_comp",          false),
    ("Tasks",                "current_tasks",            false),
    ("Run_queue",            "current_run_queue",        false),
    ("Idle_pct",             "idle_time_percent",        false),
    ("node",                 "node",                     false),
    ("description",          "description",              false),
    ("Stopping",             "stopping",                 false),
    ("Jobs",                 "jobs",                     false),
    ("Unstoppable Jobs",     "unstoppable_jobs",         false),
    ("Listeners",            "listeners",                false),
    ("ActivePeers",          "active_peers",             false),
    ("ConnectedPeers",       "connected_peers",          false),
    ("DroppedLogs",          "dropped_logs_total",       true),
    ("BusyPolling",          "busy_polling_enabled",     false),
    ("FailedResolutions",    "failed_resolutions",       true),
    ("TotalBytesOut",        "bytes_out_total",          true),
    ("TotalSplicedBytesOut", "spliced_bytes_out_total",  true),
    ("CumRecvLogs",          "recv_logs_total",          true),
    ("Build info",           "build_info",               false),
    ("Memmax_bytes",         "max_memory_bytes",         false),
    ("PoolAlloc_bytes",      "pool_allocated_bytes",     false),
    ("PoolUsed_bytes",       "pool_used_bytes",          false),
    ("Start_time_sec",       "start_time_seconds",       false),
    ("NbThreadGroups",       "nb_thread_groups",         false),
];

/// The objects whose metrics are asked for (`scope=`), in the order they are written.
const SCOPES: &[(&str, Kind)] = &[
    ("frontend", Kind::Frontend),
    ("listener", Kind::Listener),
    ("backend", Kind::Backend),
    ("server", Kind::Server),
];

/// Scopes that HAProxy knows and that are empty here.
const EMPTY_SCOPES: &[&str] = &["sticktable"];

/// What the query string asks for.
#[derive(Default)]
struct Wanted {
    /// The scopes; `None` for all.
    scopes: Option<Vec<String>>,
    no_maintenance: bool,
    /// `metrics=`: names to write alone, and names to leave out.
    only: Vec<String>,
    without: Vec<String>,
    /// `desc-labels`.
    describe: bool,
}

impl Wanted {
    /// Reads the parameters in their order: an empty scope forgets those before it.
    fn read(query: &str) -> Result<Self, &'static str> {
        let mut wanted = Self::default();
        for (name, value) in http::uri::params(query.as_bytes(), false, None) {
            let has_value = value.is_some();
            let value = std::str::from_utf8(value.unwrap_or_default()).map_err(|_| "Invalid parameter.")?;
            match (name, value) {
                (b"scope", "*") => wanted.scopes = None,
                (b"scope", "") if has_value => wanted.scopes = Some(Vec::new()),
                (b"scope", _) if !has_value => return Err("Missing scope."),
                (b"scope", scope) => {
                    let known = scope == "global"
                        || scope == "resolver"
                        || SCOPES.iter().any(|row| row.0 == scope)
                        || EMPTY_SCOPES.contains(&scope);
                    if !known {
                        return Err("Unknown scope.");
                    }
                    wanted.scopes.get_or_insert_default().push(scope.to_owned());
                }
                (b"metrics", names) => {
                    for name in names.split(',').filter(|name| !name.is_empty()) {
                        match name.strip_prefix('-') {
                            Some(name) => wanted.without.push(name.to_owned()),
                            None => wanted.only.push(name.to_owned()),
                        }
                    }
                }
                (b"no-maint", _) => wanted.no_maintenance = true,
                (b"desc-labels", _) => wanted.describe = true,
                // Nothing here has extra counters.
                _ => {}
            }
        }
        Ok(wanted)
    }

    fn scope(&self, name: &str) -> bool {
        self.scopes.as_ref().is_none_or(|scopes| scopes.iter().any(|scope| scope == name))
    }

    /// Whether the metric `name` of `object` is to be written.
    fn metric(&self, object: &str, name: &str) -> bool {
        if self.only.is_empty() && self.without.is_empty() {
            return true;
        }
        let full = format!("haproxy_{object}_{name}");
        (self.only.is_empty() || self.only.contains(&full)) && !self.without.contains(&full)
    }
}

/// Answers a scrape. GET and HEAD; the parameters are those of HAProxy's exporter: `scope=global|frontend|listener|
/// backend|server`, `metrics=`, `no-maint`, `desc-labels`. Pieces of the body may be empty.
pub fn respond(runtime: &Arc<Runtime>, request: &PageRequest<'_>) -> PageResponse {
    let headers =
        |kind: &str| vec![("cache-control", "no-cache".to_owned()), ("content-type", kind.to_owned())];
    let refuse = |status: u16, text: &str| PageResponse {
        status,
        headers: headers("text/plain"),
        body: Box::new(std::iter::once(format!("{text}\n").into_bytes())),
    };
    if !matches!(request.method, http::Method::Get | http::Method::Head) {
        return refuse(405, "Only GET and HEAD are answered here.");
    }
    let query = request.uri.split_once('?').map_or("", |(_, query)| query);
    let wanted = match Wanted::read(query) {
        Ok(wanted) => wanted,
        Err(text) => return refuse(400, text),
    };
    let filter = Filter { no_maintenance: wanted.no_maintenance, ..Filter::default() };
    let kinds: Vec<Kind> = SCOPES.iter().filter(|row| wanted.scope(row.0)).map(|row| row.1).collect();
    let process = wanted.scope("global").then(|| process_metrics(runtime, &wanted).into_bytes());
    let view = runtime.view();
    let resolvers = wanted.scope("resolver").then(|| {
        let text = crate::resolvers::metrics(&view, |name| wanted.metric("resolver", name));
        text.into_bytes()
    });
    let described = view.proxies.iter().filter(|_| wanted.describe);
    let descriptions =
        described.filter_map(|proxy| Some((proxy.state.name.clone(), proxy.description.clone()?))).collect();
    let rows = StatPieces::new(view, filter, Show::now(runtime, false), info::Format::Plain, false);
    let body: Box<dyn Iterator<Item = Vec<u8>>> = if request.method == http::Method::Head {
        Box::new(std::iter::empty())
    } else {
        let objects = Exporter {
            rows: Some(rows),
            found: Vec::new(),
            servers: Tally::default(),
            kinds,
            wanted,
            descriptions,
            at: (0, 0, 0),
            shown: false,
        };
        Box::new(process.into_iter().chain(objects).chain(resolvers))
    };
    PageResponse { status: 200, headers: headers("text/plain; version=0.0.4"), body }
}

fn process_metrics(runtime: &Runtime, wanted: &Wanted) -> String {
    let mut out = String::new();
    let labels = match runtime.view().description.as_deref().filter(|_| wanted.describe) {
        Some(description) => format!("{{desc=\"{}\"}}", escape(description)),
        None => String::new(),
    };
    let values = info::values(runtime, false);
    for (field, name, counter) in PROCESS {
        let Some((position, value)) = values.iter().find(|(p, _)| info::FIELDS[*p].name == *field) else {
            continue;
        };
        if !wanted.metric("process", name) {
            continue;
        }
        write_help(&mut out, "process", name, info::FIELDS[*position].text, *counter);
        // Texts are labels of a 1.
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
        let _ = writeln!(out, "haproxy_process_{name}{{{label}=\"{}\"}} 1", escape(&text));
    }
    out
}

fn write_help(out: &mut String, object: &str, name: &str, text: &str, counter: bool) {
    let kind = if counter { "counter" } else { "gauge" };
    let _ = writeln!(out, "# HELP haproxy_{object}_{name} {text}\n# TYPE haproxy_{object}_{name} {kind}");
}

/// What is kept of a row: kind, labels, and one value a metric.
struct Found {
    kind: Kind,
    labels: String,
    values: Box<[Value]>,
    /// Of a backend that has servers.
    servers: Tally,
}

/// Collects the rows, some at a time, then writes metric by metric, as the format demands.
struct Exporter {
    rows: Option<StatPieces>,
    found: Vec<Found>,
    kinds: Vec<Kind>,
    wanted: Wanted,
    /// The servers read since the last backend.
    servers: Tally,
    /// Of the proxies that have one, if they are asked for.
    descriptions: HashMap<Box<str>, Box<str>>,
    /// Kind, metric and row to go on with.
    at: (usize, usize, usize),
    /// Whether the present metric is written: it is asked for, and some object of the kind has it.
    shown: bool,
}

/// Rows read or samples written at a time.
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
                // A backend's row comes behind those of its servers.
                let servers = match row.kind {
                    Kind::Backend => std::mem::take(&mut self.servers),
                    _ => Tally::default(),
                };
                if row.kind == Kind::Server {
                    self.servers.add(&row);
                }
                if self.kinds.contains(&row.kind) {
                    self.found.push(keep(&row, servers, &self.descriptions));
                }
            }
            return Some(Vec::new());
        }
        let mut out = String::new();
        let kind = *self.kinds.get(self.at.0)?;
        let (_, index, start) = self.at;
        let metric = &METRICS[index];
        if start == 0 {
            let has = |found: &Found| match metric.form {
                As::Tally(of) => found.kind == kind && !of(&found.servers).is_empty(),
                _ => found.kind == kind && found.values[index] != Value::Empty,
            };
            self.shown = self.wanted.metric(object(kind), metric.name) && self.found.iter().any(has);
            // Several metrics may share one name, told apart by a label: their help is written once.
            let first = index == 0 || METRICS[index - 1].name != metric.name;
            if self.shown && first {
                let text = COLUMNS[metric.column as usize].text;
                write_help(&mut out, object(kind), metric.name, text, metric.counter);
            }
        }
        let end = if self.shown { (start + A_PIECE * 4).min(self.found.len()) } else { self.found.len() };
        if self.shown {
            for found in self.found[start..end].iter().filter(|found| found.kind == kind) {
                write_sample(&mut out, metric, found, &found.values[index]);
            }
        }
        self.at = match (end < self.found.len(), index + 1 < METRICS.len()) {
            (true, _) => (self.at.0, index, end),
            (false, true) => (self.at.0, index + 1, 0),
            (false, false) => (self.at.0 + 1, 0, 0),
        };
        Some(out.into_bytes())
    }
}

fn object(kind: Kind) -> &'static str {
    SCOPES.iter().find(|row| row.1 == kind).map_or("", |row| row.0)
}

fn keep(row: &Row, servers: Tally, descriptions: &HashMap<Box<str>, Box<str>>) -> Found {
    let proxy = escape(&row.text(C::pxname));
    let own = escape(&row.text(C::svname));
    let mut labels = match row.kind {
        Kind::Server => format!("proxy=\"{proxy}\",server=\"{own}\""),
        Kind::Listener => format!("proxy=\"{proxy}\",listener=\"{own}\""),
        _ => format!("proxy=\"{proxy}\""),
    };
    if let Some(description) = descriptions.get(&*row.text(C::pxname)) {
        labels.push_str(&format!(",desc=\"{}\"", escape(description)));
    }
    let values = METRICS.iter().map(|metric| match (row.kind, metric.name) {
        (Kind::Server, "active_servers" | "backup_servers") | (Kind::Backend, "active" | "backup") => {
            Value::Empty
        }
        _ => row.get(metric.column).clone(),
    });
    Found { kind: row.kind, labels, values: values.collect(), servers }
}

fn write_sample(out: &mut String, metric: &Metric, found: &Found, value: &Value) {
    let (object, labels, name) = (object(found.kind), &found.labels, metric.name);
    let mut text = String::new();
    value.write(&mut text);
    if *value == Value::Empty && !matches!(metric.form, As::Status | As::Check) {
        // What this object has no value of, others of its kind have.
        text.push_str("NaN");
    }
    // Writing into a String cannot fail.
    let _ = match metric.form {
        As::Number => writeln!(out, "haproxy_{object}_{name}{{{labels}}} {text}"),
        As::Millis => {
            // NaN is a number to parse as well.
            let ms = text.parse::<f64>().unwrap_or(0.0);
            writeln!(out, "haproxy_{object}_{name}{{{labels}}} {:.6}", ms / 1000.0)
        }
        As::Tally(of) => {
            for (state, count) in of(&found.servers) {
                let _ = writeln!(out, "haproxy_{object}_{name}{{{labels},state=\"{state}\"}} {count}");
            }
            return;
        }
        As::Code(code) => writeln!(out, "haproxy_{object}_{name}{{{labels},code=\"{code}\"}} {text}"),
        As::Status => {
            let (states, present) = states(found.kind, &text);
            return write_states(out, &format!("haproxy_{object}_{name}"), labels, states, present);
        }
        As::Check => {
            let present = text.trim_start_matches("* ");
            let names: Vec<&str> = state::server::CHECK_STATUSES.iter().map(|row| row.0).collect();
            return write_states(out, &format!("haproxy_{object}_{name}"), labels, &names, present);
        }
    };
}

fn write_states(out: &mut String, name: &str, labels: &str, states: &[&str], present: &str) {
    for state in states {
        let _ = writeln!(out, "{name}{{{labels},state=\"{state}\"}} {}", u8::from(*state == present));
    }
}

/// The states of a kind of object, and which of them a status is.
fn states(kind: Kind, status: &str) -> (&'static [&'static str], &'static str) {
    match kind {
        Kind::Frontend => (&["DOWN", "UP"], if status == "STOP" { "DOWN" } else { "UP" }),
        Kind::Listener => {
            let state = match status {
                "FULL" => "FULL",
                "STOP" => "WAITING",
                _ => "OPEN",
            };
            (&["OPEN", "FULL", "WAITING"], state)
        }
        Kind::Backend => (&["DOWN", "UP"], if status.starts_with("UP") { "UP" } else { "DOWN" }),
        Kind::Server => {
            const STATES: [&str; 5] = ["DOWN", "UP", "MAINT", "DRAIN", "NOLB"];
            let state = STATES.into_iter().find(|state| status.starts_with(state));
            (&STATES, state.unwrap_or("UP"))
        }
    }
}

/// A label's value.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
