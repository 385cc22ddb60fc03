//! `show info`: facts and counters of the process, in HAProxy's order and numbering.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use runtime::shard;
use state::process::ProcessCounters;

use crate::field::{StatColumn, StatValue};
use crate::process::Statistics;

const fn row(name: &'static str, tags: &'static str, text: &'static str) -> StatColumn {
    StatColumn { name, tags, text }
}

/// Positions are part of the interface: an unavailable field is left out, but its number stays reserved.
#[rustfmt::skip]
pub(crate) const FIELDS: &[StatColumn] = &[
    row("Name",                        "POS", "Product name"),
    row("Version",                     "POS", "Product version"),
    row("Release_date",                "POS", "Date of latest source code update"),
    row("Nbthread",                    "CGS", "Number of started threads (global.nbthread)"),
    row("Nbproc",                      "CGS", "Number of started worker processes (historical, always 1)"),
    row("Process_num",                 "KGP", "Relative worker process number (1)"),
    row("Pid",                         "SGP", "This worker process identifier for the system"),
    row("Uptime",                      "MDP", "How long ago this worker process was started (days+hours+minutes+seconds)"),
    row("Uptime_sec",                  "MDP", "How long ago this worker process was started (seconds)"),
    row("Memmax_MB",                   "CLP", "Worker process's hard limit on memory usage in MB (-m on command line)"),
    row("PoolAlloc_MB",                "MGP", "Amount of memory allocated in pools (in MB)"),
    row("PoolUsed_MB",                 "MGP", "Amount of pool memory currently used (in MB)"),
    row("PoolFailed",                  "MCPV", "Number of failed pool allocations since this worker was started"),
    row("Ulimit-n",                    "CLP", "Hard limit on the number of per-process file descriptors"),
    row("Maxsock",                     "CLP", "Hard limit on the number of per-process sockets"),
    row("Maxconn",                     "CLP", "Hard limit on the number of per-process connections (configured or imposed by Ulimit-n)"),
    row("Hard_maxconn",                "CLP", "Hard limit on the number of per-process connections (imposed by Memmax_MB or Ulimit-n)"),
    row("CurrConns",                   "MGP", "Current number of connections on this worker process"),
    row("CumConns",                    "MCPV", "Total number of connections on this worker process since started"),
    row("CumReq",                      "MCPV", "Total number of requests on this worker process since started"),
    row("MaxSslConns",                 "MMP", "Hard limit on the number of per-process SSL endpoints (front+back), 0=unlimited"),
    row("CurrSslConns",                "MGP", "Current number of SSL endpoints on this worker process (front+back)"),
    row("CumSslConns",                 "MCPV", "Total number of SSL endpoints on this worker process since started (front+back)"),
    row("Maxpipes",                    "CLP", "Hard limit on the number of pipes for splicing, 0=unlimited"),
    row("PipesUsed",                   "MGP", "Current number of pipes in use in this worker process"),
    row("PipesFree",                   "MGP", "Current number of allocated and available pipes in this worker process"),
    row("ConnRate",                    "MRPV", "Number of front connections created on this worker process over the last second"),
    row("ConnRateLimit",               "CLP", "Hard limit for ConnRate (global.maxconnrate)"),
    row("MaxConnRate",                 "MMP", "Highest ConnRate reached on this worker process since started (in connections per second)"),
    row("SessRate",                    "MRPV", "Number of sessions created on this worker process over the last second"),
    row("SessRateLimit",               "CLP", "Hard limit for SessRate (global.maxsessrate)"),
    row("MaxSessRate",                 "MRPV", "Highest SessRate reached on this worker process since started (in sessions per second)"),
    row("SslRate",                     "MRPV", "Number of SSL connections created on this worker process over the last second"),
    row("SslRateLimit",                "CLP", "Hard limit for SslRate (global.maxsslrate)"),
    row("MaxSslRate",                  "MMP", "Highest SslRate reached on this worker process since started (in connections per second)"),
    row("SslFrontendKeyRate",          "MGPV", "Number of SSL keys created on frontends in this worker process over the last second"),
    row("SslFrontendMaxKeyRate",       "MMP", "Highest SslFrontendKeyRate reached on this worker process since started"),
    row("SslFrontendSessionReuse_pct", "MGP", "Percent of frontend SSL connections which did not require a new key"),
    row("SslBackendKeyRate",           "MRPV", "Number of SSL keys created on backends in this worker process over the last second"),
    row("SslBackendMaxKeyRate",        "MMP", "Highest SslBackendKeyRate reached on this worker process since started"),
    row("SslCacheLookups",             "MCPV", "Total number of SSL session ID lookups in the SSL session cache on this worker since started"),
    row("SslCacheMisses",              "MCPV", "Total number of SSL session ID lookups that didn't find a session in the cache"),
    row("CompressBpsIn",               "MRPV", "Number of bytes submitted to the HTTP compressor in this worker process over the last second"),
    row("CompressBpsOut",              "MRPV", "Number of bytes emitted by the HTTP compressor in this worker process over the last second"),
    row("CompressBpsRateLim",          "CLP", "Limit of CompressBpsOut beyond which HTTP compression is automatically disabled"),
    row("ZlibMemUsage",                "MGP", "Amount of memory currently used by HTTP compression on the current worker process"),
    row("MaxZlibMemUsage",             "CLP", "Limit on the amount of memory used by HTTP compression"),
    row("Tasks",                       "MGP", "Total number of tasks in the current worker process (active + sleeping)"),
    row("Run_queue",                   "MGP", "Total number of active tasks+tasklets in the current worker process"),
    row("Idle_pct",                    "MaP", "Percentage of time spent waiting since the last reading, over all threads"),
    row("node",                        "COS", "Node name (global.node)"),
    row("description",                 "COS", "Node description (global.description)"),
    row("Stopping",                    "MGP", "1 if the worker process is currently stopping, otherwise zero"),
    row("Jobs",                        "MGP", "Current number of active jobs on the current worker process (frontend connections, listeners)"),
    row("Unstoppable Jobs",            "MGP", "Current number of unstoppable jobs on the current worker process (master connections)"),
    row("Listeners",                   "MGP", "Current number of active listeners on the current worker process"),
    row("ActivePeers",                 "MGP", "Current number of verified active peers connections on the current worker process"),
    row("ConnectedPeers",              "MGP", "Current number of peers having passed the connection step on the current worker process"),
    row("DroppedLogs",                 "MGPV", "Total number of dropped logs for current worker process since started"),
    row("BusyPolling",                 "MGP", "1 if busy-polling is currently in use on the worker process, otherwise zero"),
    row("FailedResolutions",           "MGPV", "Total number of failed DNS resolutions in current worker process since started"),
    row("TotalBytesOut",               "MGPV", "Total number of bytes emitted by current worker process since started"),
    row("TotalSplicedBytesOut",        "MGPV", "Total number of bytes emitted by current worker process through a kernel pipe since started"),
    row("BytesOutRate",                "MRPV", "Number of bytes emitted by current worker process over the last second"),
    row("DebugCommandsIssued",         "MGPV", "Number of debug commands issued on this process (anything > 0 is unsafe)"),
    row("CumRecvLogs",                 "MCPV", "Total number of log messages received by log-forwarding listeners"),
    row("Build info",                  "POS", "Build info"),
    row("Memmax_bytes",                "CLP", "Worker process's hard limit on memory usage in bytes (-m on command line)"),
    row("PoolAlloc_bytes",             "MGP", "Amount of memory allocated in pools (in bytes)"),
    row("PoolUsed_bytes",              "MGP", "Amount of pool memory currently used (in bytes)"),
    row("Start_time_sec",              "MDP", "Start time in seconds"),
    row("Tainted",                     "SGP", "Experimental features used"),
    row("TotalWarnings",               "MCPV", "Total warnings issued"),
    row("MaxconnReached",              "MCPV", "Number of times an accepted connection resulted in Maxconn being reached"),
    row("BootTime_ms",                 "MDP", "How long ago it took to parse and process the config before being ready (milliseconds)"),
    row("Niced_tasks",                 "MGP", "Total number of active tasks+tasklets in the current worker process (Run_queue) that are niced"),
    row("CurrStreams",                 "MGP", "Current number of streams on this worker process"),
    row("CumStreams",                  "MGP", "Total number of streams created on this worker process since started"),
    row("BlockedTrafficWarnings",      "MGP", "Total number of warnings issued about traffic being blocked by too slow a task"),
    row("PatternsAdded",               "MGP", "Total number of patterns added (acl/map entries)"),
    row("PatternsFreed",               "MGP", "Total number of patterns freed (acl/map entries)"),
    row("NbThreadGroups",              "CGS", "Number of started thread groups (global.thread-groups)"),
];

/// The values, by name. Values of features that Weir does not have are zero, as in a process that never used them. With `precise`,
/// times have fractions (`float`).
pub(crate) fn values(statistics: &Statistics, precise: bool) -> Vec<(usize, StatValue)> {
    let view = statistics.view();
    let process = &statistics.process;
    let now = now_ms();
    let uptime = statistics.uptime();
    let total = |of: fn(&ProcessCounters) -> u64| process.counters.all().map(of).sum::<u64>();
    let rate = |of: fn(&ProcessCounters) -> &runtime::Rate| {
        let now = process.counters.all().fold(0, |sum: u32, c| sum.saturating_add(of(c).per_second(now)));
        (now, process.counters.all().map(|c| of(c).max()).sum::<u32>().max(now))
    };
    let (connection_rate, connection_rate_max) = rate(|c| &c.connection_rate);
    let (session_rate, session_rate_max) = rate(|c| &c.session_rate);
    let listeners: usize = view
        .proxies
        .iter()
        .filter(|p| p.state.is_frontend && p.state.admission() == state::proxy::Admission::Open)
        .map(|p| p.state.listeners.load().len())
        .sum::<usize>()
        + view.sockets.len();
    let attached = |p: &crate::config_view::ProxyView| {
        state::counters::current(&p.state.backend, |shard| shard.traffic.sessions.get())
    };
    let streams: u64 = view.proxies.iter().map(attached).sum();
    let spliced: u64 = view.proxies.iter().map(|p| spliced_bytes(&p.state)).sum();
    let connections = process.connections.load(Relaxed);
    // Connections to the runtime socket are also streams, with one request each.
    let (commanders, commanded) = (statistics.commanders.load(Relaxed), process.commanded.load(Relaxed));
    let (patterns_added, patterns_freed) = crate::patterns::totals(statistics);
    let memory = resident_bytes();
    let pipes = (statistics.pipes)();
    let (tls_now, tls_ever) = tls::limit::counts();
    let (cache_lookups, cache_misses) = tls::tickets::lookups();
    let (tls_rate, tls_rate_max) = rate(|c| &c.tls_rate);
    let (client_keys, client_keys_max) = rate(|c| &c.client_key_rate);
    let (server_keys, server_keys_max) = rate(|c| &c.server_key_rate);
    let zero = StatValue::U32(0);
    let value = |name: &str| -> StatValue {
        match name {
            "Name" => statistics.name.into(),
            "Version" | "Build info" => statistics.version.into(),
            "Release_date" => statistics.date.into(),
            "Nbthread" => (shard::workers() as u32).into(),
            "Nbproc" | "Process_num" => 1u32.into(),
            "Pid" => std::process::id().into(),
            "Uptime" => uptime_text(uptime).into(),
            "Uptime_sec" if precise => {
                StatValue::F64(now.saturating_sub(statistics.started_ms) as f64 / 1000.0)
            }
            "Uptime_sec" => (uptime as u32).into(),
            "PoolAlloc_MB" | "PoolUsed_MB" => ((memory >> 20) as u32).into(),
            "PoolAlloc_bytes" | "PoolUsed_bytes" => memory.into(),
            "Maxpipes" => (pipes[0] as u32).into(),
            "PipesUsed" => (pipes[1] as u32).into(),
            "PipesFree" => (pipes[2] as u32).into(),
            "Memmax_MB" => ((view.memory_limit >> 20) as u32).into(),
            "Memmax_bytes" => narrow(view.memory_limit),
            "Ulimit-n" | "Maxsock" => (view.open_files as u32).into(),
            "Maxconn" => process.maxconn.load(Relaxed).into(),
            "Hard_maxconn" => process.hard_maxconn.load(Relaxed).into(),
            "CurrConns" => connections.into(),
            "CumConns" => narrow(total(|c| c.connections.get()) + commanded),
            "CumReq" => narrow(total(|c| c.requests.get()) + commanded),
            "ConnRate" => connection_rate.into(),
            "ConnRateLimit" => process.connection_limit.load(Relaxed).into(),
            "MaxConnRate" => connection_rate_max.into(),
            "SessRate" => session_rate.into(),
            "SessRateLimit" => process.session_limit.load(Relaxed).into(),
            "MaxSessRate" => session_rate_max.into(),
            "MaxSslConns" => tls::limit::limit().into(),
            "SslRateLimit" => process.tls_limit.load(Relaxed).into(),
            "CurrSslConns" => tls_now.into(),
            "CumSslConns" => narrow(tls_ever),
            "SslRate" => tls_rate.into(),
            "MaxSslRate" => tls_rate_max.into(),
            "SslFrontendKeyRate" => client_keys.into(),
            "SslFrontendMaxKeyRate" => client_keys_max.into(),
            "SslFrontendSessionReuse_pct" => reused(tls_rate, client_keys).into(),
            "SslBackendKeyRate" => server_keys.into(),
            "SslBackendMaxKeyRate" => server_keys_max.into(),
            "SslCacheLookups" => narrow(cache_lookups),
            "SslCacheMisses" => narrow(cache_misses),
            "Idle_pct" => idle_percent(statistics, now).into(),
            "node" => view.node.clone().into(),
            "description" => view.description.clone().into(),
            "Stopping" => u32::from(process.stopping.load(Relaxed)).into(),
            "Jobs" => (connections + listeners as u32 + commanders).into(),
            "Tasks" => (connections + listeners as u32 + commanders).into(),
            "Listeners" => (listeners as u32).into(),
            "ActivePeers" => process.active_peers.load(Relaxed).into(),
            "ConnectedPeers" => process.connected_peers.load(Relaxed).into(),
            "DroppedLogs" => narrow(total(|c| c.dropped_logs.get())),
            "CumRecvLogs" => narrow(total(|c| c.received_logs.get())),
            "BusyPolling" => u32::from(view.busy_polling).into(),
            "TotalBytesOut" => total(|c| c.bytes_out.get()).into(),
            "TotalSplicedBytesOut" => spliced.into(),
            "BytesOutRate" => ProcessCounters::bytes_of_units(rate(|c| &c.bytes_out_rate).0).into(),
            "BootTime_ms" => (statistics.started_ms as u32).into(),
            "BlockedTrafficWarnings" => process.held_up.load(Relaxed).into(),
            "MaxconnReached" => (total(|c| c.maxconn_reached.get()) as u32).into(),
            "Start_time_sec" if precise => StatValue::F64(
                statistics.started.seconds as f64 + f64::from(statistics.started.nanos / 1000) / 1e6,
            ),
            "Start_time_sec" => (statistics.started.seconds as u32).into(),
            "Tainted" => "0".into(),
            "CurrStreams" => (streams + u64::from(commanders)).into(),
            "CumStreams" => (total(|c| c.requests.get()) + commanded).into(),
            "TotalWarnings" => narrow((statistics.warnings)()),
            "PatternsAdded" => patterns_added.into(),
            "PatternsFreed" => patterns_freed.into(),
            "NbThreadGroups" => (view.placement.groups.len().max(1) as u32).into(),
            "CompressBpsIn" => ProcessCounters::bytes_of_units(rate(|c| &c.compressed_in_rate).0).into(),
            "CompressBpsOut" => ProcessCounters::bytes_of_units(rate(|c| &c.compressed_out_rate).0).into(),
            "CompressBpsRateLim" => narrow(process.compression_limit.load(Relaxed)),
            "ZlibMemUsage" => narrow((statistics.compression_memory)()),
            "MaxZlibMemUsage" => narrow(view.compression_memory),
            _ => zero.clone(),
        }
    };
    FIELDS.iter().map(|field| value(field.name)).enumerate().filter(|(_, v)| *v != StatValue::Empty).collect()
}

/// The percentage of `connections` that did not need one of the `keys` new keys.
fn reused(connections: u32, keys: u32) -> u32 {
    let share = (u64::from(keys) * 100 + u64::from(connections) / 2).checked_div(connections.into());
    share.map_or(0, |share| 100 - share.min(100) as u32)
}

/// The number as a 32-bit value if it fits, otherwise as a larger one.
fn narrow(number: u64) -> StatValue {
    u32::try_from(number).map_or(StatValue::U64(number), StatValue::U32)
}

/// Bytes sent to a frontend's clients without passing through this process.
fn spliced_bytes(proxy: &state::Proxy) -> u64 {
    proxy.frontend.all().map(|shard| shard.traffic.spliced_out.get()).sum()
}

/// `0d 0h00m04s`.
pub(crate) fn uptime_text(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!("{days}d {hours}h{minutes:02}m{:02}s", seconds % 60)
}

/// The resident memory of this process in bytes, from the kernel's page counts.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// The CPU time used so far, in ms; the kernel's tick is a hundredth of a second.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    ticks * 10
}

/// The share of time since the last call in which the workers used no CPU.
fn idle_percent(statistics: &Statistics, now: u64) -> u32 {
    let cpu = cpu_ms();
    let mut seen = statistics.cpu_seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (cpu_before, then) = std::mem::replace(&mut *seen, (cpu, now));
    let room = (now.saturating_sub(then.max(statistics.started_ms))).max(1) * shard::workers() as u64;
    100 - (cpu.saturating_sub(cpu_before) * 100 / room).min(100) as u32
}

/// The format of `show info` and `show stat` (management manual, 9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InfoFormat {
    /// `name: value` lines, CSV for `show stat`.
    #[default]
    Plain,
    /// One line per value, with its position, tags and type (`typed`).
    Typed,
    /// JSON (`json`).
    Json,
}

/// The output of `show info`. With `describe`, the two text formats have a description of each field
/// (`desc`); with `precise`, times have fractions (`float`).
pub fn show_info(statistics: &Statistics, format: InfoFormat, describe: bool, precise: bool) -> String {
    let values = values(statistics, precise);
    let mut out = String::with_capacity(4096);
    if format == InfoFormat::Json {
        out.push('[');
        for (i, (position, value)) in values.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            FIELDS[*position].write_json("", *position, value, &mut out);
        }
        out.push_str("]\n");
        return out;
    }
    for (position, value) in &values {
        let field = &FIELDS[*position];
        if format == InfoFormat::Typed {
            let _ = write!(out, "{position}.{}.1", field.name);
            field.write_typed(value, describe, &mut out);
            continue;
        }
        let _ = write!(out, "{}: ", field.name);
        value.write(&mut out);
        if describe {
            let _ = write!(out, ":\"{}\"", field.text);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes_read_as_haproxy_writes_them() {
        assert_eq!(uptime_text(4), "0d 0h00m04s");
        assert_eq!(uptime_text(23 * 86_400 + 3 * 3600 + 34 * 60 + 39), "23d 3h34m39s");
    }

    #[test]
    fn field_numbers_used_by_tools_are_stable() {
        for (position, name) in [
            (6, "Pid"),
            (15, "Maxconn"),
            (47, "Tasks"),
            (49, "Idle_pct"),
            (61, "TotalBytesOut"),
            (71, "Tainted"),
        ] {
            assert_eq!(FIELDS[position].name, name);
        }
    }
}
