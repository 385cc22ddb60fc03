//! Metrics of stick tables that add up what several processes count (`aggregate`; docs/fleet-tables.md). HAProxy has no equivalent.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use state::table::{MemberState, Table};

use crate::config_view::ConfigView;
use crate::field::DescribedMetric;

/// A value of a member: the name of its metric, its type, its description, and its getter.
type MemberMetric = (&'static str, &'static str, &'static str, fn(&MemberState) -> f64);

#[rustfmt::skip]
const MEMBERS: &[MemberMetric] = &[
    ("member_up",            "gauge",   "Whether there is a session with the member.",                          |own| f64::from(u8::from(own.is_present))),
    ("member_lag_seconds",   "gauge",   "Time from sending a change to a member until its acknowledgement, as last measured.", |own| f64::from(own.delay_ms) / 1e3),
    ("member_owner_ratio",   "gauge",   "Share of the keys of which the member is an owner; 0 in groups without owners.", |own| f64::from(own.owner_share) / 1e3),
    ("member_sent_bytes_total",     "counter", "Total size of the messages with counts of this process sent to a member.",     |own| own.sent as f64),
    ("member_received_bytes_total", "counter", "Total size of the messages with counts received from a member.", |own| own.received as f64),
];

const EXCESS: (&str, &str) = (
    "excess_seconds",
    "Time for which a request may be unknown to another member: the interval and the longest lag; +Inf while a member that counts is not connected.",
);

const SERVERS: (&str, &str) = (
    "fleet_requests",
    "Requests that all members have at a server with a limit for all of them (`maxconn … fleet`).",
);

/// The metrics: object, name, type, description, labels.
pub(crate) fn described() -> impl Iterator<Item = DescribedMetric> {
    let of_table = ("table", format!("aggregate_{}", EXCESS.0), "gauge", EXCESS.1, &["table"][..]);
    let members = MEMBERS.iter().map(|(name, kind, help, _)| {
        ("table", format!("aggregate_{name}"), *kind, *help, &["table", "member"][..])
    });
    let of_server = ("server", SERVERS.0.to_owned(), "gauge", SERVERS.1, &["proxy", "server"][..]);
    std::iter::once(of_table).chain(members).chain([of_server])
}

/// The metrics; `wanted` selects them by name.
pub(crate) fn metrics(view: &ConfigView, wanted: impl Fn(&str) -> bool) -> String {
    let mut out = String::new();
    let tables = || view.tables.iter().filter_map(|table| Some((&**table, table.aggregate()?)));
    if tables().next().is_none() {
        return out;
    }
    let head = |out: &mut String, name: &str, kind: &str, help: &str| {
        let is_wanted = wanted(&format!("weir_table_aggregate_{name}"));
        if is_wanted {
            let _ = writeln!(
                out,
                "# HELP weir_table_aggregate_{name} {help}\n# TYPE weir_table_aggregate_{name} {kind}"
            );
        }
        is_wanted
    };
    if head(&mut out, EXCESS.0, "gauge", EXCESS.1) {
        for (table, _) in tables() {
            let excess = table.excess_ms().map_or("+Inf".to_owned(), |ms| (ms as f64 / 1e3).to_string());
            let _ = writeln!(out, "weir_table_aggregate_{}{{table=\"{}\"}} {excess}", EXCESS.0, table.name());
        }
    }
    for (name, kind, help, value) in MEMBERS {
        if !head(&mut out, name, kind, help) {
            continue;
        }
        for (table, aggregate) in tables() {
            for (member, state) in aggregate.members.iter().zip(states(table)) {
                let _ = writeln!(
                    out,
                    "weir_table_aggregate_{name}{{table=\"{}\",member=\"{member}\"}} {}",
                    table.name(),
                    value(&state)
                );
            }
        }
    }
    out
}

/// The metrics of servers with a limit for all members.
pub(crate) fn of_servers(view: &ConfigView, wanted: impl Fn(&str, &str) -> bool) -> String {
    let mut out = String::new();
    if !wanted("server", SERVERS.0) {
        return out;
    }
    let name = format!("weir_server_{}", SERVERS.0);
    for proxy in &view.proxies {
        for server in proxy.state.servers.load().iter().filter(|server| server.fleet_room().is_some()) {
            if out.is_empty() {
                let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} gauge", SERVERS.1);
            }
            let count = u64::from(server.serving()) + u64::from(server.elsewhere.load(Relaxed));
            let _ =
                writeln!(out, "{name}{{proxy=\"{}\",server=\"{}\"}} {count}", proxy.state.name, server.name);
        }
    }
    out
}

/// The states of the other members, by slot.
fn states(table: &Table) -> impl Iterator<Item = MemberState> {
    (0..table.own_number()).map_while(|slot| table.member(slot))
}
