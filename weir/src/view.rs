//! Converts the plan to the types of the runtime socket and the statistics page.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use balance::hedge::After;
use base::raw::text_of;
use plan::Plan;
use plan::bind::{AccessLevel, BindAddress, SeverityOutput};
use plan::proxy::StatsPage;
use plan::{Proxy, ServerSettings};
use statistics::config_view::{ConfigView, PoliciesView, ProxyView, ServerView, SocketView};
use statistics::page::PageSettings;

use crate::system::ProcessLimits;

/// Returns the view of a plan.
pub(crate) fn of(plan: &Plan, limits: &ProcessLimits) -> ConfigView {
    let global = &plan.global;
    let own_name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut proxies = Vec::with_capacity(plan.proxies.len());
    let shown = plan.proxies.iter().filter(|proxy| !proxy.disabled && !proxy.is_hidden());
    proxies.extend(shown.map(proxy_view));
    ConfigView {
        node: global.node.as_deref().map_or_else(own_name, str::to_owned),
        description: global.description.as_deref().map(str::to_owned),
        proxies,
        disabled_backends: plan
            .proxies
            .iter()
            .filter(|proxy| proxy.disabled && proxy.state.is_backend)
            .map(|proxy| proxy.state.name.to_string())
            .collect(),
        sockets: global.stats_sockets.iter().map(|bind| socket(&bind.address, bind.level)).collect(),
        timeout: global.stats_timeout,
        max_sessions: global.stats_maxconn,
        line_length: global.tune.bufsize,
        payload_length: global.tune.cli_payload,
        environment: plan.environment.clone(),
        startup_log: crate::messages::log(),
        patterns: plan.patterns.clone(),
        certificates: plan.certificates.clone(),
        tables: plan.tables.clone(),
        caches: plan.caches.clone(),
        tls: plan.tls.clone(),
        resolvers: plan.resolvers.iter().map(|section| section.state.clone()).collect(),
        rings: plan.rings.clone(),
        discovery: plan.discovery.iter().map(|section| section.state.clone()).collect(),
        collectors: plan.telemetry.iter().map(|section| section.collector.clone()).collect(),
        orders: plan.acme.iter().map(|order| order.state.clone()).collect(),
        busy_polling: global.placement.busy_polling.iter().any(|polls| *polls),
        open_files: limits.open_files,
        memory_limit: limits.memory,
        compression_memory: global.compression.memory as u64,
        placement: global.placement.clone(),
    }
}

/// Converts a proxy to the type of `statistics`.
pub(crate) fn proxy_view(proxy: &Arc<Proxy>) -> ProxyView {
    ProxyView {
        state: proxy.state.clone(),
        algorithm: proxy.balance.algorithm.name(),
        dynamic_weights: proxy.balance.algorithm.is_dynamic(proxy.balance.hash),
        cookie: proxy.cookie.as_ref().map(|cookie| text_of(&cookie.name).into()),
        description: proxy.description.clone(),
        listeners: proxy.options.socket_stats,
        policies: policies(proxy),
        servers: servers(proxy),
    }
}

fn policies(proxy: &Proxy) -> PoliciesView {
    let balance = &proxy.balance;
    PoliciesView {
        outliers: balance.outliers.is_some(),
        budget: balance.budget.map(|budget| (budget.share, budget.min)),
        hedge: balance.hedge.map(|hedge| {
            let (after, delay) = match hedge.after {
                After::Time(ms) => (format!("{ms}ms"), Some(u64::from(ms) * 1000)),
                After::Quantile(quantile) => (format!("p{}", (quantile * 1e4).round() / 100.0), None),
            };
            (after.into(), delay, hedge.share)
        }),
    }
}

/// Returns the servers of a backend that were not removed, in the order of their ids.
pub(crate) fn servers(proxy: &Proxy) -> Box<[ServerView]> {
    let here = proxy.servers.iter().filter(|server| !server.state.removed.load(Relaxed));
    let mut views: Vec<ServerView> = here.map(|server| server_view(&server)).collect();
    views.sort_by_key(|view| view.state.id);
    views.into()
}

fn server_view(server: &ServerSettings) -> ServerView {
    ServerView {
        state: server.state.clone(),
        cookie: server.cookie.as_deref().map(|value| text_of(value).into()),
        pool_max: server.pool_max_conn,
        pool_purge: server.pool_purge_delay,
    }
}

fn socket(address: &BindAddress, level: AccessLevel) -> SocketView {
    let address = match address {
        BindAddress::Ip(address) if address.is_ipv4() => format!("ipv4@{address}"),
        BindAddress::Ip(address) => format!("ipv6@{address}"),
        BindAddress::Udp(_) | BindAddress::Quic(_) | BindAddress::InheritedQuic(_) => address.to_string(),
        BindAddress::Unix(path) => format!("unix@{}", path.display()),
        BindAddress::Abstract { name, .. } => format!("abns@{}", String::from_utf8_lossy(name)),
        BindAddress::Inherited(number) => format!("fd@{number}"),
        BindAddress::SocketPair(number) => format!("sockpair@{number}"),
        BindAddress::Reverse(_) => "rev".to_owned(),
    };
    SocketView { address, level: self::level(level).name() }
}

/// Converts the access level to `control`'s type.
pub(crate) fn level(level: AccessLevel) -> control::AccessLevel {
    match level {
        AccessLevel::User => control::AccessLevel::User,
        AccessLevel::Operator => control::AccessLevel::Operator,
        AccessLevel::Admin => control::AccessLevel::Admin,
    }
}

/// Converts the severity output to `control`'s type.
pub(crate) fn severity(output: SeverityOutput) -> control::SeverityOutput {
    match output {
        SeverityOutput::None => control::SeverityOutput::None,
        SeverityOutput::Number => control::SeverityOutput::Number,
        SeverityOutput::String => control::SeverityOutput::String,
    }
}

/// Converts the settings of a statistics page to the type of `statistics`.
pub(crate) fn page(page: &StatsPage) -> PageSettings {
    PageSettings {
        uri: text_of(&page.uri).into(),
        refresh: page.refresh,
        scope: page.scope.clone(),
        hide_version: page.hide_version,
        show_legends: page.show_legends,
        frame_ancestors: page.frame_ancestors.clone(),
        node: page.node.clone(),
        description: page.description.clone(),
    }
}
