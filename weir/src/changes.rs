//! The effects of a reload other than changed lines: settings that a running process cannot change, objects added at run time
//! that will be lost, and pattern lists and certificates that differ from their files.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plan::Plan;
use plan::bind::BindAddress;
use plan::global::LatencyHistograms;
use plan::ring::RingPeer;

use crate::differences::{Changed, Difference, How};

/// Global keywords that a reload applies; all others belong to the process.
const GLOBAL: &[&str] = &[
    "log",
    "log-tag",
    "log-send-hostname",
    "stats socket",
    "stats timeout",
    "stats maxconn",
    "spread-checks",
    "max-spread-checks",
    "ca-base",
    "crt-base",
    "ssl-default-bind-ciphers",
    "ssl-default-bind-ciphersuites",
    "ssl-default-bind-options",
    "ssl-default-bind-curves",
    "ssl-default-server-ciphers",
    "ssl-default-server-ciphersuites",
    "ssl-default-server-options",
    "ssl-default-server-curves",
    "ssl-server-verify",
    "localpeer",
    "setenv",
    "presetenv",
    "unsetenv",
    "resetenv",
    "description",
    "node",
    "server-state-base",
    "server-state-file",
    "maxconnrate",
    "maxsessrate",
    "maxsslrate",
    "reload",
    "set-var",
    "set-var-fmt",
    "default-path",
    "unix-bind",
    "zero-warning",
    "latency-histograms",
    "h1-case-adjust",
    "lua-load",
    "lua-load-per-thread",
    "lua-prepend-path",
    "tune.idle-pool.shared",
    "tune.http.logurilen",
    "tune.lua.bool-sample-conversion",
    "tune.lua.burst-timeout",
    "tune.lua.forced-yield",
    "tune.lua.log.loggers",
    "tune.lua.log.stderr",
    "tune.lua.maxmem",
    "tune.lua.openlibs",
    "tune.lua.service-timeout",
    "tune.lua.session-timeout",
    "tune.lua.task-timeout",
    "tune.pattern.cache-size",
];

/// Returns the changes in the new plan that cannot be made in a running process.
pub(crate) fn refused(old: &Plan, new: &Plan) -> Vec<String> {
    let global = |plan: &Plan| -> Vec<(String, String)> {
        let sections = plan.source.iter().filter(|section| &*section.kind == "global");
        let lines = sections.flat_map(|section| &section.lines);
        let own = lines.filter(|line| !GLOBAL.contains(&line.keyword));
        own.map(|line| (line.keyword.to_owned(), line.text.to_string())).collect()
    };
    let (before, now) = (global(old), global(new));
    let mut all: Vec<String> = Vec::new();
    let mut add = |what: &str| {
        if !all.iter().any(|known| known == what) {
            all.push(what.to_owned());
        }
    };
    for (one, other) in [(&before, &now), (&now, &before)] {
        one.iter().filter(|line| !other.contains(line)).for_each(|(keyword, _)| add(&format!("`{keyword}`")));
    }
    let rings = |plan: &Plan| -> Vec<String> {
        let peer = |peer: &RingPeer| match peer {
            RingPeer::Address(address) => format!("{address:?}"),
            RingPeer::Server(server) => format!("{} {}", server.state.name, server.print),
        };
        let all = plan.ring_servers.iter();
        all.map(|one| format!("{} {} {:?}", one.ring.name, peer(&one.peer), one.proto)).collect()
    };
    if rings(old) != rings(new) {
        add("log targets and ring servers over stream connections");
    }
    let files = |plan: &Plan| -> Vec<_> {
        let rings = plan.proxies.iter().filter_map(|proxy| proxy.ring.as_ref());
        rings.filter_map(|ring| ring.backing_file.clone()).collect()
    };
    if files(old) != files(new) {
        add("backing files of rings");
    }
    if peers(old) != peers(new) {
        add("`peers` sections, their tables and how they are shared");
    }
    if reversed(old) != reversed(new) {
        add("reverse HTTP listeners (`bind rhttp@`) and their servers");
    }
    let is_native = |plan: &Plan| plan.global.latency_histograms == LatencyHistograms::Native;
    if is_native(old) != is_native(new) {
        add("`latency-histograms native`, because the counts are kept");
    }
    if old.global.chroot.is_some() {
        add("anything while `chroot` is in use, because the files are not accessible");
    }
    all
}

/// Describes the `peers` sections, which exist as long as the process.
fn peers(plan: &Plan) -> Vec<String> {
    let lines = plan.source.iter().filter(|section| &*section.kind == "peers");
    let lines = lines.map(|section| format!("{} {:?}", section.title(), section.lines));
    let sections = plan.proxies.iter().filter_map(|proxy| Some((proxy, proxy.peers.as_ref()?)));
    let made = sections.flat_map(|(proxy, peers)| {
        let name = &proxy.state.name;
        let tables = peers.tables.iter().map(move |shared| {
            // A table to which another one is written is created again with each plan.
            let target = shared.table.write_to.get().map(|table| table.name());
            format!("{name} {} {:?} {target:?}", shared.name, shared.table.settings)
        });
        let servers = peers.peers.iter().filter_map(|peer| peer.server.as_ref());
        tables.chain(servers.map(move |server| format!("{name} {} {}", server.state.name, server.print)))
    });
    lines.chain(made).collect()
}

/// Describes listeners that open their connections themselves, and their targets.
fn reversed(plan: &Plan) -> Vec<String> {
    let all = plan.proxies.iter().flat_map(|proxy| proxy.binds.iter().map(move |bind| (proxy, bind)));
    let found = all.filter_map(|(proxy, bind)| {
        let BindAddress::Reverse(target) = bind.address else { return None };
        let backend = &plan.proxies[target.backend];
        let server = backend.servers.get(target.server)?;
        let listener = &bind.listener;
        Some(format!(
            "{} {} {} {}/{} {} {} {:?}",
            proxy.state.name,
            listener.id,
            listener.name,
            backend.state.name,
            server.state.name,
            server.print,
            target.connections,
            bind.workers
        ))
    });
    found.collect()
}

/// Reports servers and backends that were added at run time and are not in the files. The reload removes them.
pub(crate) fn add_lost(old: &Plan, new: &Plan, differences: &mut Vec<Changed>) {
    for proxy in old.proxies.iter().filter(|proxy| proxy.state.is_backend) {
        let removed = proxy.state.removed.load(Relaxed);
        let title = |kind: &str| format!("{kind} {}", proxy.state.name);
        if proxy.index >= old.configured_proxies() && !removed && new.backend(&proxy.state.name).is_none() {
            differences.push(Changed {
                title: format!("{}, added at run time,", title("backend")),
                how: How::Removed,
                changes: Vec::new(),
            });
            continue;
        }
        let Some(now) = new.backend(&proxy.state.name) else { continue };
        let states = proxy.state.servers.load();
        let has = |name: &str| now.servers.iter().any(|server| *server.state.name == *name);
        let lost = states.iter().filter(|server| server.dynamic.load(Relaxed) && !has(&server.name));
        let change = |server: &Arc<state::Server>| Difference {
            how: How::Removed,
            what: format!("server {}, added at run time,", server.name),
            values: None,
        };
        let changes: Vec<Difference> = lost.map(change).collect();
        if changes.is_empty() {
            continue;
        }
        let title = title(if proxy.state.is_frontend { "listen" } else { "backend" });
        match differences.iter_mut().find(|one| one.title == title) {
            Some(one) => one.changes.extend(changes),
            None => differences.push(Changed { title, how: How::Changed, changes }),
        }
    }
}

/// A pattern and its value.
type ChangedEntry = (Box<[u8]>, Option<Box<[u8]>>);

/// Reports pattern lists that differ from their files, whether the list or the file was changed.
pub(crate) fn add_lists(
    old: &sample::pattern::PatternSets,
    new: &sample::pattern::PatternSets,
    differences: &mut Vec<Changed>,
) {
    let entries = |list: &sample::pattern::List| -> Vec<ChangedEntry> {
        let lines = list.lines(&list.ids());
        lines
            .iter()
            .map(|line| (line.key.to_vec().into(), line.value.as_ref().map(|value| value.to_vec().into())))
            .collect()
    };
    for list in new.lists().iter().filter(|list| !list.name().is_empty()) {
        let Some(before) = old.lists().iter().find(|one| one.name() == list.name()) else { continue };
        let (before, now) = (entries(before), entries(list));
        if before == now {
            continue;
        }
        let (was, is): (HashSet<_>, HashSet<_>) = (before.iter().collect(), now.iter().collect());
        let mut changes = Vec::new();
        for (how, count) in
            [(How::Added, is.difference(&was).count()), (How::Removed, was.difference(&is).count())]
        {
            if count > 0 {
                let what = if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") };
                changes.push(Difference { how, what, values: None });
            }
        }
        if changes.is_empty() {
            changes.push(Difference {
                how: How::Changed,
                what: "the order of entries".to_owned(),
                values: None,
            });
        }
        let kind = if list.is_map { "map" } else { "list" };
        differences.push(Changed { title: format!("{kind} {}", list.name()), how: How::Changed, changes });
    }
}

/// Reports certificates that differ from their files, whether the certificate or the file was changed.
pub(crate) fn add_certificates(old: &Plan, new: &Plan, differences: &mut Vec<Changed>) {
    for name in new.tls.certificates() {
        let pem = |plan: &Plan| plan.tls.show(&name, false).map(|shown| shown.contents.to_pem());
        let Some(before) = pem(old) else { continue };
        if pem(new).is_some_and(|now| now != before) {
            differences.push(Changed {
                title: format!("certificate {name}"),
                how: How::Changed,
                changes: Vec::new(),
            });
        }
    }
}
