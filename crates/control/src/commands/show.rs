//! Commands that only read.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::{WallTime, now_ms};
use runtime::{shard, topology, worker};
use state::counters;
use state::server::{Health, ServerAddress};
use state::{Admin, Server};
use statistics::ProxyView;
use statistics::info::{self, InfoFormat};
use statistics::pieces::{self, StatPieces};
use statistics::resolvers;
use statistics::stat::{RowFilter, Show};

use crate::access::AccessLevel;
use crate::anonymous::Anonymous;
use crate::invocation::{self, Call, CommandReply, error};

pub(crate) fn version(call: &mut Call<'_>) -> CommandReply {
    invocation::info(call.runtime.statistics.version)
}

pub(crate) fn echo(call: &mut Call<'_>) -> CommandReply {
    invocation::info(call.args.join(" "))
}

pub(crate) fn cli_level(call: &mut Call<'_>) -> CommandReply {
    CommandReply::Text(call.settings.level.name().into())
}

pub(crate) fn cli_sockets(call: &mut Call<'_>) -> CommandReply {
    let mut out = "# socket lvl processes\n".to_owned();
    for socket in &call.runtime.view().sockets {
        let _ = writeln!(out, "{} {} all", socket.address, socket.level);
    }
    CommandReply::Text(out)
}

pub(crate) fn startup_logs(call: &mut Call<'_>) -> CommandReply {
    CommandReply::Text(call.runtime.view().startup_log.clone())
}

pub(crate) fn backend(call: &mut Call<'_>) -> CommandReply {
    let mut out = "# name\n".to_owned();
    for proxy in call.runtime.view().proxies.iter().filter(|proxy| proxy.state.is_backend) {
        let _ = writeln!(out, "{}", proxy.state.name);
    }
    CommandReply::Text(out)
}

pub(crate) fn env(call: &mut Call<'_>) -> CommandReply {
    let view = call.runtime.view();
    let name = call.arg(0);
    let mut out = String::new();
    for (key, value) in view.environment.iter().filter(|(key, _)| name.is_empty() || name == key) {
        let _ = writeln!(out, "{key}={value}");
    }
    if out.is_empty() && !name.is_empty() { error("Variable not found") } else { CommandReply::Text(out) }
}

pub(crate) fn info(call: &mut Call<'_>) -> CommandReply {
    let (format, describe) = stat_format(call.args);
    let precise = call.args.iter().any(|word| word == "float");
    CommandReply::Text(info::show_info(&call.runtime.statistics, format, describe, precise))
}

pub(crate) fn stat(call: &mut Call<'_>) -> CommandReply {
    if call.arg(0) == "domain" && call.arg(1) == "resolvers" {
        let (format, describe) = stat_format(&call.args[2..]);
        return CommandReply::Text(resolvers::statistics(&call.runtime.view(), format, describe));
    }
    let (filter, format, describe) = match stat_arguments(call) {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    let show = Show::now(&call.runtime.statistics, call.settings.level >= AccessLevel::Operator);
    CommandReply::Pieces(Box::new(StatPieces::new(call.runtime.view(), filter, show, format, describe)))
}

/// The output format for statistics. HAProxy ignores unknown words here.
fn stat_format(words: &[String]) -> (InfoFormat, bool) {
    let (mut format, mut describe) = (InfoFormat::Plain, false);
    for word in words {
        match word.as_str() {
            "typed" => format = InfoFormat::Typed,
            "json" => format = InfoFormat::Json,
            "desc" => describe = true,
            _ => {}
        }
    }
    (format, describe)
}

fn stat_arguments(call: &Call<'_>) -> Result<(RowFilter, InfoFormat, bool), CommandReply> {
    let mut filter = RowFilter::default();
    let mut args = call.args;
    match args {
        [domain, kind, rest @ ..] if domain == "domain" && kind == "proxy" => args = rest,
        [domain, ..] if domain == "domain" => return Err(error("Invalid statistics domain.")),
        _ => {}
    }
    if let [proxy, kind, server, rest @ ..] = args
        && let (Ok(kind), Ok(server)) = (kind.parse::<i32>(), server.parse::<i32>())
    {
        filter.proxy = match proxy.parse::<i64>() {
            Ok(-1) => None,
            Ok(id) => Some(id as u32),
            Err(_) => match call.runtime.view().proxy(proxy, |_| true) {
                Some(proxy) => Some(proxy.state.id),
                None => return Err(error("No such proxy.")),
            },
        };
        filter.kinds = u32::try_from(kind).ok();
        filter.server = u32::try_from(server).ok().filter(|&id| id > 0);
        args = rest;
    }
    for word in args {
        match word.as_str() {
            "up" => filter.up = true,
            "no-maint" => filter.no_maintenance = true,
            _ => {}
        }
    }
    let (format, describe) = stat_format(args);
    Ok((filter, format, describe))
}

pub(crate) fn schema(_: &mut Call<'_>) -> CommandReply {
    CommandReply::Text(pieces::schema_text())
}

/// The backends selected by the first argument: one, or all.
fn backends(call: &Call<'_>) -> Result<Vec<ProxyView>, CommandReply> {
    let view = call.runtime.view();
    if call.arg(0).is_empty() {
        let all = view.proxies.iter().filter(|proxy| proxy.state.is_backend);
        return Ok(all.cloned().collect());
    }
    match view.backend(call.arg(0)) {
        Some(proxy) => Ok(vec![proxy.clone()]),
        None => Err(error("Can't find backend.")),
    }
}

/// One output piece per backend, after a title.
fn by_backend(
    call: &Call<'_>,
    title: String,
    line: impl Fn(&ProxyView, &Server) -> String + 'static,
) -> CommandReply {
    match backends(call) {
        Ok(proxies) => {
            let body = proxies.into_iter().map(move |proxy| {
                let servers = proxy.state.servers.load();
                servers.iter().map(|server| line(&proxy, server)).collect::<String>()
            });
            CommandReply::Pieces(Box::new(std::iter::once(title).chain(body)))
        }
        Err(reply) => reply,
    }
}

const STATE_TITLE: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight \
srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state \
srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr \
srv_agent_addr srv_agent_port\n";

pub(crate) fn servers_state(call: &mut Call<'_>) -> CommandReply {
    let anonymous = call.settings.anonymous;
    by_backend(call, STATE_TITLE.to_owned(), move |proxy, server| server_state(proxy, server, anonymous))
}

/// The IP address of a server.
fn ip(address: &ServerAddress) -> Option<SocketAddr> {
    match address {
        ServerAddress::Ip(address) => Some(*address),
        _ => None,
    }
}

/// The full `show servers state` as one text, which a reload or `server-state-file` reads back.
pub(crate) fn server_state(proxy: &ProxyView, server: &Server, anonymous: Anonymous) -> String {
    let address = server.address.load();
    let ip = ip(&address);
    let last = server.health.last.load();
    let &(_, _, status, passed) = last.meaning();
    let result = match last.status {
        "" | "UNK" | "INI" => 0,
        "CHECKED" => 1,
        "L7OKC" => 4,
        _ if passed => 3,
        _ => 2,
    };
    let configured = server.health.configured.load(Relaxed);
    // Checks of a server that started in maintenance are marked as paused even if the server has none.
    let rests = match configured {
        true => server.admin().in_maintenance(),
        false => server.admin().0 & Admin::CONFIGURED_MAINT != 0,
    };
    let state = u32::from(server.health.running.load(Relaxed))
        | if configured { 2 } else { 0 }
        | if server.checked.load(Relaxed) { 4 } else { 0 }
        | if rests { 8 } else { 0 };
    // 16 distinguishes an agent's state from a check's.
    let agent = match (server.agent.is_configured(), server.agent_checked.load(Relaxed)) {
        (false, _) => 0,
        (true, enabled) => {
            16 | 2 | if enabled { 4 } else { 0 } | u32::from(server.agent.running.load(Relaxed))
        }
    };
    let place = |of: Option<&Health>| {
        let ip = of.and_then(|of| of.address.load_full()).map_or_else(|| "-".to_owned(), |ip| ip.to_string());
        (anonymous.address(&ip).into_owned(), of.map_or(0, |of| of.port.load(Relaxed)))
    };
    let ((check_address, check_port), (agent_address, agent_port)) =
        (place(Some(&server.health)), place(server.agent.get()));
    let since = server.changed.age(now_ms()) / 1000;
    // Checks are paused in maintenance, so the server's health is unknown.
    let level = if server.admin().in_maintenance() { 0 } else { server.health.level.load(Relaxed) };
    let fqdn = server.fqdn.load();
    let fqdn = fqdn.as_ref().map_or("-".into(), |name| anonymous.word(name));
    let record = server.srv_record.get().map_or("-", |name| name);
    format!(
        "{} {} {} {} {} {} {} {} {} {since} {status} {result} {} {state} {agent} {} {} {fqdn} {} {record} {} {check_port} {check_address} \
         {agent_address} {agent_port}\n",
        proxy.state.id,
        anonymous.word(&proxy.state.name),
        server.id,
        anonymous.word(&server.name),
        anonymous.address(&ip.map_or_else(|| "-".to_owned(), |ip| ip.ip().to_string())),
        if server.admin().in_maintenance() { 0 } else { server.operational() as u8 },
        server.admin().0,
        server.user_weight(),
        server.initial_weight(),
        level,
        u8::from(proxy.state.forced_id.load(Relaxed)),
        u8::from(server.forced_id.load(Relaxed)),
        // For a server without a fixed port, this is the offset to the client's port.
        server.port_offset().map_or(server.port(), |offset| offset.rem_euclid(1 << 16) as u16),
        server.secured().number(),
    )
}

pub(crate) fn servers_conn(call: &mut Call<'_>) -> CommandReply {
    let title = format!(
        "# bkname/svname bkid/svid addr port - purge_delay served used_cur used_max need_est idle_sess unsafe_nb \
         safe_nb idle_lim idle_cur idle_per_thr[{}]\n",
        shard::workers()
    );
    let anonymous = call.settings.anonymous;
    by_backend(call, title, move |proxy, server| {
        let address = server.address.load();
        let ip = ip(&address);
        let view = proxy.server(server.id);
        let served = server.serving();
        let idle = counters::current(&server.counters, |s| s.idle.get());
        // In HAProxy's terms, a connection is safe once it was reused.
        let unproven = counters::current(&server.counters, |s| s.idle_unproven.get()).min(idle);
        let mut out = format!(
            "{}/{} {}/{} {} {} - {} {served} {served} {} {served} 0 {unproven} {} {} {idle}",
            anonymous.word(&proxy.state.name),
            anonymous.word(&server.name),
            proxy.state.id,
            server.id,
            anonymous.address(&ip.map_or_else(|| "-".to_owned(), |ip| ip.ip().to_string())),
            ip.map_or(0, |ip| ip.port()),
            view.map_or(5000, |view| view.pool_purge.as_millis()),
            server.served_max.load(Relaxed),
            idle - unproven,
            view.map_or(-1, |view| view.pool_max),
        );
        for worker in 0..shard::workers() {
            let idle = server.counters.of_worker(worker).map_or(0, |own| own.idle.get());
            let _ = write!(out, " {}", idle.max(0));
        }
        out.push('\n');
        out
    })
}

pub(crate) fn activity(call: &mut Call<'_>) -> CommandReply {
    let column = call.arg(0).parse::<i64>().unwrap_or(-1);
    let workers = shard::workers();
    if column > workers as i64 {
        return error("Thread ID number must be between -1 and nbthread");
    }
    let now = WallTime::now();
    let mut out = format!("thread_id: 1 (1..{workers})\ndate_now: {}.{:06}\n", now.seconds, now.micros());
    let process: Vec<_> = call.runtime.statistics.process.counters.all().collect();
    let mut line = |name: &str, values: Vec<u64>| {
        let total: u64 = values.iter().sum();
        let _ = match column {
            0 => writeln!(out, "{name}: {total}"),
            1.. => writeln!(out, "{name}: {}", values.get(column as usize - 1).copied().unwrap_or(0)),
            _ if workers == 1 => writeln!(out, "{name}: {total}"),
            _ => {
                let each: Vec<_> = values.iter().map(ToString::to_string).collect();
                writeln!(out, "{name}: {total} [ {} ]", each.join(" "))
            }
        };
    };
    let activity: Vec<_> = (0..workers).map(worker::activity).collect();
    line("loops_slept", activity.iter().map(|a| a.sleeps).collect());
    line("busy_ms", activity.iter().map(|a| a.busy.as_millis() as u64).collect());
    line("tasks", activity.iter().map(|a| a.tasks as u64).collect());
    line("queued", activity.iter().map(|a| a.queued as u64).collect());
    line("messages", activity.iter().map(|a| a.messages).collect());
    line("accepted", process.iter().map(|c| c.connections.get()).collect());
    line("requests", process.iter().map(|c| c.requests.get()).collect());
    line("connections", (0..workers).map(|worker| worker::connections(worker) as u64).collect());
    line("panics", process.iter().map(|c| c.panics.get()).collect());
    line("accept_failures", process.iter().map(|c| c.accept_failures.get()).collect());
    line("dropped_logs", process.iter().map(|c| c.dropped_logs.get()).collect());
    let checks: Vec<_> = call.runtime.statistics.process.checks.all().collect();
    line("check_started", checks.iter().map(|c| c.started.get()).collect());
    line("check_adopted", checks.iter().map(|c| c.adopted.get()).collect());
    line("check_active", checks.iter().map(|c| u64::from(c.present())).collect());
    line("check_running", checks.iter().map(|c| c.running.get().max(0) as u64).collect());
    CommandReply::Text(out)
}

pub(crate) fn threads(call: &mut Call<'_>) -> CommandReply {
    let placement = call.runtime.view().placement.clone();
    let uptime = now_ms().saturating_sub(call.runtime.statistics.started_ms).max(1);
    let mut out = format!("Thread count: {} in {} group(s)\n", shard::workers(), placement.groups.len());
    for index in 0..shard::workers() {
        let own = if index == shard::current_worker() { '*' } else { ' ' };
        let counters = call.runtime.statistics.process.counters.all().nth(index);
        let (accepted, requests) = counters.map_or((0, 0), |c| (c.connections.get(), c.requests.get()));
        let activity = worker::activity(index);
        let idle = 100u64.saturating_sub(activity.busy.as_millis() as u64 * 100 / uptime);
        let polls = placement.busy_polling.get(index).copied().unwrap_or_default();
        let cpus = placement.cpus.get(index).and_then(Option::as_ref);
        let cpus = cpus.map_or_else(|| "any".to_owned(), topology::show_list);
        let _ = writeln!(
            out,
            "{own} Thread {} : group={} cpus={cpus} polling={} idle={idle}% connections={} tasks={} queued={} sleeps={} messages={} accepted={accepted} requests={requests}",
            index + 1,
            placement.group_index(index) + 1,
            if polls { "busy" } else { "sleeping" },
            worker::connections(index),
            activity.tasks,
            activity.queued,
            activity.sleeps,
            activity.messages,
        );
    }
    CommandReply::Text(out)
}

pub(crate) fn dev(call: &mut Call<'_>) -> CommandReply {
    if !call.args.is_empty() {
        return error("This command takes no argument.");
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let mut out = "Platform info\n".to_owned();
    let facts = [
        ("OS name", read("/proc/sys/kernel/ostype")),
        ("OS release", read("/proc/sys/kernel/osrelease")),
        ("OS version", read("/proc/sys/kernel/version")),
        ("OS architecture", std::env::consts::ARCH.to_owned()),
        ("node name", call.settings.anonymous.word(&call.runtime.view().node).into_owned()),
    ];
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = writeln!(out, "  {name}: {value}");
    }
    let _ = writeln!(out, "Process info\n  pid: {}", std::process::id());
    let _ = writeln!(out, "  fd limit (soft): {}", call.runtime.view().open_files);
    CommandReply::Text(out)
}
