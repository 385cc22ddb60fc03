//! The metrics: names, sources and types.

use std::sync::LazyLock;

use crate::column::{C, COLUMNS, ObjectKind};
use crate::pieces::COMMON_COLUMNS;
use crate::prometheus::Tally;

/// The conversion of a value to samples.
#[derive(Clone, Copy)]
pub(super) enum As {
    /// Unchanged.
    Number,
    /// From milliseconds to seconds.
    Millis,
    /// One sample per state, 1 for the current one: `UP`, `DOWN` …
    Status,
    /// One sample per check status.
    Check,
    /// With a label `code`.
    Code(&'static str),
    /// A counter of a module, with the label `mod`.
    Module(&'static str),
    /// One sample per state, with the number of the backend's servers in it.
    Tally(fn(&Tally) -> &[(&'static str, u32)]),
}

/// A metric of proxies and servers: its name after `haproxy_<object>_`, its column, its conversion, and whether it is a counter.
#[derive(Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    /// The number of the column.
    pub(super) column: usize,
    pub(super) form: As,
    counter: bool,
}

impl Metric {
    /// The metric's type in the format.
    pub(super) fn kind(&self) -> &'static str {
        if self.counter { "counter" } else { "gauge" }
    }

    /// Whether the metric exists for an object kind even if no object has a value.
    pub(super) fn is_always(&self, of: ObjectKind) -> bool {
        const SERVER: [usize; 7] = [
            C::slim as usize,
            C::chkfail as usize,
            C::chkdown as usize,
            C::downtime as usize,
            C::qlimit as usize,
            C::throttle as usize,
            C::src_ilim as usize,
        ];
        of == ObjectKind::Server && SERVER.contains(&self.column)
    }

    /// Whether only HTTP proxies and their servers have it.
    pub(super) fn is_of_http(&self) -> bool {
        self.name.starts_with("http_") || self.name == "intercepted_requests_total"
    }
}

const fn gauge(name: &'static str, column: C) -> Metric {
    Metric { name, column: column as usize, form: As::Number, counter: false }
}

const fn total(name: &'static str, column: C) -> Metric {
    Metric { name, column: column as usize, form: As::Number, counter: true }
}

const fn millis(name: &'static str, column: C) -> Metric {
    Metric { name, column: column as usize, form: As::Millis, counter: false }
}

const fn responses(code: &'static str, column: C) -> Metric {
    Metric { name: "http_responses_total", column: column as usize, form: As::Code(code), counter: true }
}

/// Metrics in output order; objects without a value are skipped.
#[rustfmt::skip]
pub(super) const METRICS: &[Metric] = &[
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
    Metric { name: "status", column: C::status as usize, form: As::Status, counter: false },
    gauge ("weight",                            C::weight),
    // The state of one server, not a number of servers.
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
    Metric { name: "check_status", column: C::check_status as usize, form: As::Check, counter: false },
    gauge ("check_code",                        C::check_code),
    millis("check_duration_seconds",            C::check_duration),
    responses("1xx",                            C::hrsp_1xx),
    responses("2xx",                            C::hrsp_2xx),
    responses("3xx",                            C::hrsp_3xx),
    responses("4xx",                            C::hrsp_4xx),
    responses("5xx",                            C::hrsp_5xx),
    responses("other",                          C::hrsp_other),
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
    Metric { name: "agent_status", column: C::agent_status as usize, form: As::Check, counter: false },
    gauge ("agent_code",                        C::agent_code),
    millis("agent_duration_seconds",            C::agent_duration),
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
    Metric { name: "agg_server_status", column: C::agg_server_status as usize, form: As::Tally(Tally::status), counter: false },
    Metric { name: "agg_server_check_status", column: C::agg_server_check_status as usize, form: As::Tally(Tally::status), counter: false },
    Metric { name: "agg_check_status", column: C::agg_check_status as usize, form: As::Tally(Tally::check), counter: false },
    gauge ("private_idle_connections_current",  C::priv_idle_cur),
    total ("req_bytes_in_total",                C::reqbin),
    total ("req_bytes_out_total",               C::reqbout),
    total ("res_bytes_in_total",                C::resbin),
    total ("res_bytes_out_total",               C::resbout),
    total ("http_cache_hint_hits_total",        C::cache_hint_hits),
];

/// With the module counters (`extra-counters`): the columns after those present in every version.
pub(super) static WITH_MODULES: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    let of_modules = COLUMNS.iter().enumerate().skip(COMMON_COLUMNS).map(|(column, known)| {
        let module = known.name.split('_').next().unwrap_or_default();
        Metric { name: known.name, column, form: As::Module(module), counter: true }
    });
    METRICS.iter().copied().chain(of_modules).collect()
});

/// Process metrics: the `show info` field, the name after `haproxy_process_`, whether it is a counter.
#[rustfmt::skip]
pub(super) const PROCESS: &[(&str, &str, bool)] = &[
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
    ("PipesUsed",            "pipes_used_total",         false),
    ("PipesFree",            "pipes_free_total",         false),
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
    ("ZlibMemUsage",         "current_zlib_memory",      false),
    ("MaxZlibMemUsage",      "max_zlib_memory",          false),
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
    ("BytesOutRate",         "bytes_out_rate",           false),
    ("CumRecvLogs",          "recv_logs_total",          true),
    ("Build info",           "build_info",               false),
    ("Memmax_bytes",         "max_memory_bytes",         false),
    ("PoolAlloc_bytes",      "pool_allocated_bytes",     false),
    ("PoolUsed_bytes",       "pool_used_bytes",          false),
    ("Start_time_sec",       "start_time_seconds",       false),
    ("TotalWarnings",        "total_warnings",           true),
    ("PatternsAdded",        "patterns_added_total",     false),
    ("PatternsFreed",        "patterns_freed_total",     false),
    ("NbThreadGroups",       "nb_thread_groups",         false),
];
