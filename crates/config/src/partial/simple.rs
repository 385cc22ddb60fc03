//! The lines that affect nothing outside their section, and depend only on the `defaults` sections.
//!
//! The lists name the simple lines; all others count as complex. Not listed are, in particular, all expressions (which may use
//! lists, variables and tables), IDs, everything that names another object, and everything that reads a file.

use std::net::SocketAddr;

use plan::Plan;
use syntax::Word;

use crate::draft::keyword::{Apply, apply_of};
use crate::draft::{Draft, Section, SectionKind, Statement};

/// Parameters of servers without a value.
const FLAGS: &[&str] = &["backup", "check", "disabled", "enabled", "no-check", "send-proxy", "send-proxy-v2"];
/// Parameters of servers with a value.
const VALUES: &[&str] = &[
    "cookie",
    "downinter",
    "error-limit",
    "fall",
    "fastinter",
    "inter",
    "max-reuse",
    "maxconn",
    "maxqueue",
    "minconn",
    "on-marked-down",
    "on-marked-up",
    "pool-low-conn",
    "pool-max-conn",
    "pool-purge-delay",
    "port",
    "rise",
    "slowstart",
    "weight",
];
/// Options of backends, which may have arguments without expressions.
const OPTIONS: &[&str] = &[
    "option abortonclose",
    "option allbackups",
    "option forwardfor",
    "option http-keep-alive",
    "option http-no-delay",
    "option http-server-close",
    "option httpchk",
    "option httpclose",
    "option log-health-checks",
    "option persist",
    "option prefer-last-server",
    "option redispatch",
    "option srvtcpka",
    "option tcpka",
];
/// Other lines of backends.
const LINES: &[&str] = &["cookie", "description", "fullconn", "hash-type", "http-reuse", "mode", "retries"];
/// Balancing algorithms without expressions.
const ALGORITHMS: &[&str] = &["first", "leastconn", "random", "roundrobin", "source", "static-rr"];
/// Further lines of `defaults` sections: they do not change, and a backend that is resolved again uses them as before.
const INHERITED: &[&str] =
    &["backlog", "errorfile", "error-log-format", "log", "log-format", "log-tag", "maxconn", "retry-on"];

/// Whether single sections of a configuration may be resolved, if they are separate.
pub(super) fn is_divisible(draft: &Draft, plan: &Plan) -> bool {
    // These are created again with each plan, or change while the process runs.
    let is_plain = draft.engines.is_empty()
        && plan.lua.is_none()
        && plan.acme.is_empty()
        && plan.discovery.is_empty()
        && plan.traces.is_empty()
        && plan.global.chroot.is_none()
        && plan.global.server_state_file.is_none()
        && !plan.tls.has_updates();
    let first = draft.sections.iter().position(|section| section.kind.is_proxy());
    let sections = draft.sections.iter().enumerate();
    is_plain
        && sections.into_iter().all(|(index, section)| {
            let precedes = first.is_none_or(|first| index < first);
            section.statements.iter().all(|line| is_constant(line, precedes))
        })
}

/// Whether a line has the same effect whenever it is resolved.
fn is_constant(line: &Statement, precedes_proxies: bool) -> bool {
    let name = line.keyword.name;
    let changes_list = |word: &Word| {
        ["add-acl(", "del-acl(", "set-map(", "del-map("].iter().any(|action| word.starts_with(action))
    };
    // An environment variable can differ between the sections.
    let is_early = precedes_proxies || !matches!(apply_of(line), Apply::Environment(_));
    is_early
        && !name.starts_with("ssl-passphrase")
        && name != "load-server-state-from-file"
        && !line.words.iter().any(changes_list)
}

/// Whether a section can be resolved separately.
pub(super) fn is_separate(section: &Section) -> bool {
    section.kind == SectionKind::Backend && section.statements.iter().all(is_simple)
}

/// Whether a backend that is resolved separately may inherit from a `defaults` section.
pub(super) fn is_inheritable(section: &Section) -> bool {
    section.statements.iter().all(|line| {
        let name = line.keyword.name;
        is_simple(line) || name.starts_with("option ") && !has_format(line) || INHERITED.contains(&name)
    })
}

/// Whether an argument may contain an expression.
fn has_format(line: &Statement) -> bool {
    line.words.iter().any(|word| word.contains(['%', '{']))
}

fn is_simple(line: &Statement) -> bool {
    let name = line.keyword.name;
    if has_format(line) {
        return false;
    }
    match name {
        "server" => is_simple_server(line.arguments()),
        "default-server" => are_simple_parameters(line.arguments()),
        "balance" => line.arguments().first().is_none_or(|word| ALGORITHMS.contains(&word.as_str())),
        _ => OPTIONS.contains(&name) || LINES.contains(&name) || name.starts_with("timeout "),
    }
}

/// `server name address parameters…`, with an IP address and a port.
fn is_simple_server(words: &[Word]) -> bool {
    let [_, address, parameters @ ..] = words else { return false };
    address.parse::<SocketAddr>().is_ok() && are_simple_parameters(parameters)
}

fn are_simple_parameters(words: &[Word]) -> bool {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if VALUES.contains(&word.as_str()) {
            words.next();
        } else if !FLAGS.contains(&word.as_str()) {
            return false;
        }
    }
    true
}
