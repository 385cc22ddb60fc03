//! Makes control's view of a resolved plan.

use std::time::Duration;

use balance::Algorithm;
use config::Plan;
use config::plan::bind::{self, BindAddress};
use config::plan::proxy::StatsPage;

use crate::statistics::PageSettings;
use crate::view::{Level, ProxyView, ServerView, SeverityOutput, SocketView, View};

impl From<bind::Level> for Level {
    fn from(level: bind::Level) -> Self {
        match level {
            bind::Level::User => Self::User,
            bind::Level::Operator => Self::Operator,
            bind::Level::Admin => Self::Admin,
        }
    }
}

impl From<bind::SeverityOutput> for SeverityOutput {
    fn from(output: bind::SeverityOutput) -> Self {
        match output {
            bind::SeverityOutput::None => Self::None,
            bind::SeverityOutput::Number => Self::Number,
            bind::SeverityOutput::String => Self::String,
        }
    }
}

impl From<&StatsPage> for PageSettings {
    fn from(page: &StatsPage) -> Self {
        Self {
            uri: page.uri.clone(),
            refresh: page.refresh,
            scope: page.scope.clone(),
            hide_version: page.hide_version,
            show_legends: page.show_legends,
            node: page.node.clone(),
            description: page.description.clone(),
        }
    }
}

/// `balance` as the statistics name it.
fn algorithm(algorithm: &Algorithm) -> &'static str {
    match algorithm {
        Algorithm::RoundRobin => "roundrobin",
        Algorithm::StaticRr => "static-rr",
        Algorithm::LeastConn => "leastconn",
        Algorithm::First => "first",
        Algorithm::Random { .. } => "random",
        Algorithm::Source => "source",
        Algorithm::Uri { .. } => "uri",
        Algorithm::UrlParam { .. } => "url_param",
        Algorithm::Header { .. } => "hdr",
        Algorithm::RdpCookie { .. } => "rdp-cookie",
        Algorithm::Hash(_) => "hash",
    }
}

fn socket_address(address: &BindAddress) -> String {
    match address {
        BindAddress::Ip(address) if address.is_ipv4() => format!("ipv4@{address}"),
        BindAddress::Ip(address) => format!("ipv6@{address}"),
        BindAddress::Unix(path) => format!("unix@{}", path.display()),
        BindAddress::Abstract { name, .. } => format!("abns@{}", String::from_utf8_lossy(name)),
        BindAddress::Inherited(fd) => format!("fd@{fd}"),
        BindAddress::SocketPair(fd) => format!("sockpair@{fd}"),
    }
}

fn proxy(proxy: &config::plan::Proxy) -> ProxyView {
    let servers = proxy.servers.iter().map(|server| {
        let check_port = server.check.as_ref().and_then(|check| check.port);
        let view = ServerView {
            state: server.state.clone(),
            cookie: server.cookie.clone(),
            tracks: server.track.as_ref().map(|(_, tracked)| tracked.clone()),
            check_port,
            pool_max: server.pool_max_conn,
            pool_purge: server.pool_purge_delay,
        };
        (server.state.id, view)
    });
    ProxyView {
        servers: servers.collect(),
        state: proxy.state.clone(),
        algorithm: algorithm(&proxy.balance.algorithm),
        cookie: proxy.cookie.as_ref().map(|cookie| cookie.name.clone()),
        description: proxy.description.clone(),
        fullconn: proxy.fullconn,
        listeners: proxy.options.socket_stats,
    }
}

impl View {
    /// What control needs to know of `plan`. `open_files` is the limit of the process, `startup_log` what was said
    /// while loading.
    pub fn from_plan(plan: &Plan, open_files: u64, startup_log: String) -> Self {
        let global = &plan.global;
        let host =
            || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        let timeout = global.stats_timeout;
        Self {
            node: global.node.as_ref().map_or_else(host, ToString::to_string),
            description: global.description.as_ref().map(ToString::to_string),
            proxies: plan.proxies.iter().filter(|p| !p.disabled).map(|p| proxy(p)).collect(),
            sockets: global
                .stats_sockets
                .iter()
                .map(|bind| SocketView { address: socket_address(&bind.address), level: bind.level.into() })
                .collect(),
            timeout: if timeout.is_zero() { Duration::from_secs(10) } else { timeout },
            max_sessions: if global.stats_maxconn == 0 { 10 } else { global.stats_maxconn },
            line_length: global.tune.bufsize,
            environment: plan.environment.clone(),
            startup_log,
            busy_polling: global.busy_polling,
            open_files,
            patterns: plan.patterns.clone(),
            thread_groups: global.thread_groups.unwrap_or(1),
        }
    }
}
