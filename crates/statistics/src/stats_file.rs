//! Counters that outlive a process (management manual, 9.5): `dump stats-file` writes those of every object with a globally unique
//! identifier, and the binary restores them at startup (`stats-file`). The columns and their order are HAProxy's.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use runtime::{Count, LazySharded};
use state::counters::{BackendCounters, FrontendCounters, ListenerCounters, Traffic};

use crate::config_view::ConfigView;
use crate::identified::{self, CountedObject, ProxySide};

/// The columns of frontends and their listeners. Columns for which Weir has no counter are 0.
const FRONTEND: &[&str] = &[
    "stot",
    "bin",
    "bout",
    "dreq",
    "dresp",
    "ereq",
    "rate",
    "hrsp_1xx",
    "hrsp_2xx",
    "hrsp_3xx",
    "hrsp_4xx",
    "hrsp_5xx",
    "hrsp_other",
    "req_rate",
    "req_tot",
    "comp_in",
    "comp_out",
    "comp_byp",
    "comp_rsp",
    "conn_rate",
    "conn_tot",
    "intercepted",
    "dcon",
    "dses",
    "wrew",
    "cache_lookups",
    "cache_hits",
    "eint",
    "h1sess",
    "h2sess",
    "h3sess",
    "req_other",
    "h1req",
    "h2req",
    "h3req",
    "reqbin",
    "reqbout",
    "resbin",
    "resbout",
    "cache_hint_hits",
];

/// The columns of backends and of their servers.
const BACKEND: &[&str] = &[
    "stot",
    "bin",
    "bout",
    "dreq",
    "dresp",
    "econ",
    "eresp",
    "wretr",
    "wredis",
    "chkfail",
    "chkdown",
    "lastchg",
    "lbtot",
    "rate",
    "hrsp_1xx",
    "hrsp_2xx",
    "hrsp_3xx",
    "hrsp_4xx",
    "hrsp_5xx",
    "hrsp_other",
    "hanafail",
    "req_tot",
    "cli_abrt",
    "srv_abrt",
    "comp_in",
    "comp_out",
    "comp_byp",
    "comp_rsp",
    "lastsess",
    "wrew",
    "connect",
    "reuse",
    "cache_lookups",
    "cache_hits",
    "eint",
    "reqbin",
    "reqbout",
    "resbin",
    "resbout",
    "cache_hint_hits",
];

/// The counter of a column that all objects have. The request and response bytes on either side are `bin` and `bout`.
fn of_traffic<'c>(traffic: &'c Traffic, column: &str) -> Option<&'c Count> {
    let class = ["hrsp_1xx", "hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_5xx", "hrsp_other"];
    if let Some(class) = class.iter().position(|name| *name == column) {
        return Some(&traffic.responses.0[class]);
    }
    Some(match column {
        "stot" => &traffic.sessions_total,
        "bin" => &traffic.bytes_in,
        "bout" => &traffic.bytes_out,
        "dreq" => &traffic.denied_requests,
        "dresp" => &traffic.denied_responses,
        "ereq" => &traffic.request_errors,
        "wrew" => &traffic.failed_rewrites,
        "eint" => &traffic.internal_errors,
        _ => return None,
    })
}

fn of_frontend<'c>(counters: &'c FrontendCounters, column: &str) -> Option<&'c Count> {
    Some(match column {
        "req_tot" => &counters.requests_total,
        "conn_tot" => &counters.connections_total,
        "intercepted" => &counters.intercepted,
        "dcon" => &counters.denied_connections,
        "dses" => &counters.denied_sessions,
        _ => return of_traffic(&counters.traffic, column),
    })
}

fn of_listener<'c>(counters: &'c ListenerCounters, column: &str) -> Option<&'c Count> {
    Some(match column {
        "dcon" => &counters.denied_connections,
        "dses" => &counters.denied_sessions,
        _ => return of_traffic(&counters.traffic, column),
    })
}

fn of_backend<'c>(counters: &'c BackendCounters, column: &str) -> Option<&'c Count> {
    Some(match column {
        "econ" => &counters.connection_errors,
        "eresp" => &counters.response_errors,
        "wretr" => &counters.retries,
        "wredis" => &counters.redispatches,
        "lbtot" => &counters.chosen,
        "req_tot" => &counters.requests_total,
        "cli_abrt" => &counters.client_aborts,
        "srv_abrt" => &counters.server_aborts,
        "connect" => &counters.connects,
        "reuse" => &counters.reuses,
        _ => return of_traffic(&counters.traffic, column),
    })
}

/// A column's counter name in the statistics: several columns share a counter.
fn counter_name(column: &str) -> &str {
    match column {
        "reqbin" | "reqbout" => "bin",
        "resbin" | "resbout" => "bout",
        "h1req" => "req_tot",
        "h1sess" => "stot",
        other => other,
    }
}

fn shards<'c, T>(shards: &'c LazySharded<T>, of: impl Fn(&'c T) -> Option<&'c Count>) -> Vec<&'c Count> {
    shards.with_others().filter_map(of).collect()
}

impl CountedObject {
    /// The per-worker counters of a column.
    fn counts(&self, column: &str) -> Vec<&Count> {
        match self {
            Self::Frontend(proxy) => shards(&proxy.frontend, |shard| of_frontend(shard, column)),
            Self::Listener(listener) => {
                let own = listener.counters.get();
                own.map(|own| shards(own, |shard| of_listener(shard, column))).unwrap_or_default()
            }
            Self::Backend(proxy) => shards(&proxy.backend, |shard| of_backend(shard, column)),
            Self::Server(server) => shards(&server.counters, |shard| of_backend(shard, column)),
        }
    }

    /// Creates the counters of the first worker. Called before the workers start.
    fn create_counters(&self) {
        match self {
            Self::Frontend(proxy) => drop(proxy.frontend.mine()),
            Self::Listener(listener) => drop(listener.counters.get().map(LazySharded::mine)),
            Self::Backend(proxy) => drop(proxy.backend.mine()),
            Self::Server(server) => drop(server.counters.mine()),
        }
    }

    /// A column with a single counter for all workers.
    fn single(&self, column: &str) -> Option<&AtomicU32> {
        match (self, column) {
            (Self::Backend(proxy), "chkdown") => Some(&proxy.downs),
            (Self::Server(server), "chkdown") => Some(&server.downs),
            (Self::Server(server), "chkfail") => Some(&server.health.failed),
            (Self::Server(server), "hanafail") => Some(&server.health.observed),
            _ => None,
        }
    }

    fn value(&self, column: &str) -> u64 {
        match self.single(column) {
            Some(number) => number.load(Relaxed).into(),
            None => self.counts(counter_name(column)).into_iter().map(Count::get).sum(),
        }
    }

    /// Adds the values of an earlier process. Called before the workers start, so there is no other writer.
    fn preload(&self, column: &str, value: u64) {
        // A counter with several columns is restored from the column that has its name.
        if counter_name(column) != column {
            return;
        }
        if let Some(number) = self.single(column) {
            number.store(value as u32, Relaxed);
            return;
        }
        if value == 0 {
            return;
        }
        self.create_counters();
        if let Some(count) = self.counts(column).first() {
            count.add(value);
        }
    }
}

/// The contents of the file.
pub fn text(view: &ConfigView) -> String {
    let mut out = String::new();
    for (side, title, columns) in
        [(ProxySide::Frontends, "fe", FRONTEND), (ProxySide::Backends, "be", BACKEND)]
    {
        let _ = writeln!(out, "#{title} guid,{},", columns.join(","));
        for (guid, object) in identified::objects(view.states(), side) {
            let _ = write!(out, "{guid},");
            for column in columns {
                let _ = write!(out, "{},", object.value(column));
            }
            out.push('\n');
        }
        out.push('\n');
    }
    out
}

/// Restores the counters in `text` to the objects with the same identifiers in `view`; to be called before the workers start.
/// Unknown objects are ignored.
///
/// # Errors
/// The line numbers of malformed lines, which were skipped.
pub fn load(text: &str, view: &ConfigView) -> Result<(), Vec<usize>> {
    let known = |side| identified::objects(view.states(), side).into_iter().collect::<HashMap<_, _>>();
    let (frontends, backends) = (known(ProxySide::Frontends), known(ProxySide::Backends));
    let mut section: Option<StatsPart<'_>> = None;
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        if let Some(header) = line.strip_prefix('#') {
            match parse_header(header) {
                Some(parsed) => section = parsed,
                None => wrong.push(number),
            }
            continue;
        }
        let mut values = line.split(',');
        let guid = values.next().unwrap_or_default();
        if guid.is_empty() || guid.len() > 127 {
            wrong.push(number);
            continue;
        }
        let Some((side, columns)) = &section else { continue };
        let objects = if *side == ProxySide::Frontends { &frontends } else { &backends };
        let Some(object) = objects.get(guid) else { continue };
        for (column, value) in columns.iter().zip(values) {
            if let Ok(value) = value.parse() {
                object.preload(column, value);
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// A section of the file with its columns.
type StatsPart<'t> = (ProxySide, Vec<&'t str>);

/// Parses a header like `fe guid,…,`. Returns the section that follows, `Some(None)` if it is unknown and skipped, or `None` if the
/// line is not a header.
fn parse_header(header: &str) -> Option<Option<StatsPart<'_>>> {
    let (title, columns) = header.split_once(' ')?;
    let columns = columns.strip_suffix(',').filter(|_| !title.is_empty())?;
    let side = match title {
        "fe" => ProxySide::Frontends,
        "be" => ProxySide::Backends,
        _ => return Some(None),
    };
    let mut columns = columns.split(',');
    if columns.next() != Some("guid") {
        return None;
    }
    Some(Some((side, columns.collect())))
}
