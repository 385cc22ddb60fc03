//! The table of actions, one row each. Parsing, errors, suggestions and dumps use it.

use base::keyword_support::Support;
use diag::{Diagnostic, suggest};
use sample::{Scope, Word};

use crate::binary;
use crate::context::{ActionRow, Parse, Ruleset};
use crate::parse::{self, table};
use crate::wording;

const CON: u16 = Ruleset::TcpConnection as u16;
const SES: u16 = Ruleset::TcpSession as u16;
const CNT: u16 = Ruleset::TcpRequest as u16;
const RCN: u16 = Ruleset::TcpResponse as u16;
const REQ: u16 = Ruleset::HttpRequest as u16;
const RES: u16 = Ruleset::HttpResponse as u16;
const AFT: u16 = Ruleset::HttpAfterResponse as u16;
const QIC: u16 = Ruleset::QuicInitial as u16;
const UDP: u16 = Ruleset::UdpRequest as u16;
const TCP: u16 = CON | SES | CNT | RCN;
const HTTP: u16 = REQ | RES | AFT;

const fn row(
    name: &'static str,
    arguments: &'static str,
    sets: u16,
    doc: &'static str,
    parse: Parse,
) -> ActionRow {
    ActionRow { name, arguments, sets, doc, parse, prefix: false, support: Support::Full }
}

impl ActionRow {
    /// Parsed, but without effect.
    const fn without_effect(self, reason: &'static str) -> Self {
        Self { support: Support::None(reason), ..self }
    }
}

/// All actions of HAProxy 3.5, and the additional ones of Weir.
#[rustfmt::skip]
pub static ACTIONS: &[ActionRow] = &[
    // name arguments sets description
    row("accept",              "",                                    TCP | QIC | UDP,   "stops evaluating the rules and accepts", parse::accept),
    row("add-acl",             "(<file>) <key fmt>",                  REQ | RES,         "adds an entry to an ACL pattern list", parse::pattern_change),
    row("add-header",          "<name> <fmt>",                        HTTP,              "adds a header", parse::header_format),
    row("add-headers-bin",     "<expr> [prefix <str>]",               HTTP,              "adds headers from a binary value", binary::parse),
    row("allow",               "",                                    HTTP,              "stops evaluating the rules and accepts", parse::accept),
    row("attach-srv",          "<backend>/<server> [name <expr>]",    SES,               "attaches the connection to a server for reverse HTTP", parse::attach_srv),
    row("auth",                "[realm <realm>]",                     REQ,               "requests basic authentication", parse::auth),
    row("cache-purge",         "<name> { key | prefix | tag } <fmt>", REQ | RES,         "removes responses from a cache", parse::cache_purge),
    row("cache-store",         "<name>",                              RES,               "stores the response in a cache", parse::cache_store),
    row("cache-use",           "<name> [no-early-hints]",             REQ,               "serves the response from a cache if possible", parse::cache_use),
    row("capture",             "<sample> [len <length> | id <id>]",   CNT | HTTP,        "captures a value for the log", parse::capture),
    row("close",               "",                                    RCN,               "closes the server's connection", parse::close),
    row("del-acl",             "(<file>) <key fmt>",                  HTTP,              "removes entries from an ACL pattern list", parse::pattern_change),
    row("del-header",          "<name> [-m <method>]",                HTTP,              "removes headers", parse::del_header),
    row("del-headers-bin",     "<expr> [-m <method>]",                HTTP,              "removes the headers listed in a binary value", binary::parse),
    row("del-map",             "(<file>) <key fmt>",                  HTTP,              "removes entries from a map", parse::pattern_change),
    row("deny",                "[status <code>] [<reply>]",           REQ | RES,         "rejects the request or response", parse::deny),
    row("dgram-drop",          "",                                    QIC,               "drops the datagram without an answer", parse::silent_drop),
    row("disable-l7-retry",    "",                                    REQ,               "disables retries after the request has been sent", parse::disable_retry),
    row("do-log",              "[profile <name>]",                    TCP | HTTP | QIC | UDP, "logs a message immediately", parse::do_log),
    row("do-resolve",          "(<var>,<resolvers>[,ipv4|ipv6]) <expr>", CNT | REQ,   "resolves a name and stores the address in a variable", parse::do_resolve),
    row("drop",                "",                                    UDP,               "drops the datagram", parse::reject),
    row("early-hint",          "<name> <fmt>",                        REQ,               "adds a header to a 103 (Early Hints) response", parse::early_hint),
    row("expect-netscaler-cip", "layer4",                             CON,               "expects a NetScaler Client IP header", parse::expect_netscaler),
    row("expect-proxy",        "layer4",                              CON,               "expects a PROXY protocol header", parse::expect_proxy),
    row("jump",                "<label fmt>",                         TCP | HTTP,        "continues at a label further down", parse::jump),
    row("label",               "<name>",                              TCP | HTTP,        "marks a place for `jump`", parse::label),
    ActionRow { prefix: true, ..row("lua.", "<name> <argument>*",       CNT | RCN | HTTP,    "calls a Lua function", parse::script::action) },
    row("mirror",              "<backend> [sample <percent>]",        REQ,               "sends a copy of the request to another backend and ignores its response", parse::mirror),
    row("normalize-uri",       "<normalizer>",                        REQ,               "normalizes the URI", parse::normalize_uri),
    row("pause",               "{ <timeout> | <expr> }",              REQ | RES,         "waits", parse::pause),
    row("redirect",            "<rule>",                              REQ | RES,         "redirects", parse::redirect),
    row("reject",              "",                                    TCP | REQ | QIC | UDP, "closes the connection", parse::reject),
    row("replace-header",      "<name> <regex> <fmt>",                HTTP,              "rewrites header values", parse::replace_header),
    row("replace-path",        "<regex> <fmt>",                       REQ,               "rewrites the path", parse::replace_uri_part),
    row("replace-pathq",       "<regex> <fmt>",                       REQ,               "rewrites the path and the query", parse::replace_uri_part),
    row("replace-uri",         "<regex> <fmt>",                       REQ,               "rewrites the URI", parse::replace_uri_part),
    row("replace-value",       "<name> <regex> <fmt>",                HTTP,              "rewrites the comma-separated values of headers", parse::replace_header),
    row("return",              "[status <code>] [<reply>]",           REQ | RES,         "answers", parse::return_),
    row("sc-add-gpc",          "(<idx>,<sc-id>) { <int> | <expr> }",  TCP | HTTP | UDP,  "adds to a counter of the tracked entry", table::add_counter),
    row("sc-inc-gpc",          "(<idx>,<sc-id>)",                     TCP | HTTP | UDP,  "increments a counter of the tracked entry", table::increment_counter),
    row("sc-inc-gpc0",         "(<sc-id>)",                           TCP | HTTP | UDP,  "increments the first counter of the tracked entry", table::increment_counter),
    row("sc-inc-gpc1",         "(<sc-id>)",                           TCP | HTTP | UDP,  "increments the second counter of the tracked entry", table::increment_counter),
    row("sc-set-gpt",          "(<idx>,<sc-id>) { <int> | <expr> }",  TCP | HTTP | UDP,  "sets a tag of the tracked entry", table::set_tag),
    row("sc-set-gpt0",         "(<sc-id>) { <int> | <expr> }",        TCP | HTTP | UDP,  "sets the first tag of the tracked entry", table::set_tag),
    row("send-retry",          "",                                    QIC,               "requires the client to validate its address", parse::send_retry),
    row("send-spoe-group",     "<engine-name> <group-name>",          CNT | RCN | REQ | RES, "sends a group of messages to an agent and waits for its response", parse::send_spoe_group),
    row("set-bandwidth-limit", "<name> [limit {<expr> | <size>}] [period {<expr> | <time>}]", CNT | RCN | REQ | RES, "limits the bandwidth of this stream with a filter", parse::set_bandwidth_limit),
    row("set-bc-mark",         "{ <mark> | <expr> }",                 CNT | REQ,         "sets the mark of packets to the server", parse::set_server_mark),
    row("set-bc-tos",          "{ <tos> | <expr> }",                  CNT | REQ,         "sets the type of service to the server", parse::set_server_tos),
    row("set-dst",             "<expr>",                              CON | SES | CNT | REQ, "sets the destination address", parse::set_address),
    row("set-dst-port",        "<expr>",                              CON | SES | CNT | REQ, "sets the destination port", parse::set_address),
    row("set-fc-mark",         "{ <mark> | <expr> }",                 TCP | REQ | RES,   "sets the mark of packets to the client", parse::set_mark),
    row("set-fc-tos",          "{ <tos> | <expr> }",                  TCP | REQ | RES,   "sets the type of service to the client", parse::set_tos),
    row("set-header",          "<name> <fmt>",                        HTTP,              "sets a header", parse::header_format),
    row("set-headers-bin",     "<expr> [prefix <str>]",               HTTP,              "sets headers from a binary value", binary::parse),
    row("set-log-level",       "<level>",                             CNT | RCN | HTTP | UDP, "sets the log level", parse::set_log_level),
    row("set-map",             "(<file>) <key fmt> <value fmt>",      HTTP,              "sets an entry of a map", parse::pattern_change),
    row("set-mark",            "<mark>",                              TCP | REQ | RES,   "sets the mark of packets to the client", parse::set_mark),
    row("set-method",          "<fmt>",                               REQ,               "sets the method", parse::set_part),
    row("set-nice",            "<nice>",                              CNT | RCN | REQ | RES, "sets the processing priority", parse::set_nice).without_effect("a worker schedules its tasks round-robin"),
    row("set-path",            "<fmt>",                               REQ,               "sets the path", parse::set_part),
    row("set-pathq",           "<fmt>",                               REQ,               "sets the path and the query", parse::set_part),
    row("set-priority-class",  "<expr>",                              CNT | REQ,         "sets the priority class in queues", parse::set_priority),
    row("set-priority-offset", "<expr>",                              CNT | REQ,         "sets the priority offset in queues", parse::set_priority),
    row("set-query",           "<fmt>",                               REQ,               "sets the query", parse::set_part),
    row("set-retries",         "{ <int> | <expr> }",                  CNT | REQ,         "sets the number of connection retries", parse::set_retries),
    row("set-src",             "<expr>",                              CON | SES | CNT | REQ, "sets the source address", parse::set_address),
    row("set-src-port",        "<expr>",                              CON | SES | CNT | REQ, "sets the source port", parse::set_address),
    row("set-status",          "<status> [reason <str>]",             RES | AFT,         "sets the status", parse::set_status),
    row("set-timeout",         "<which> { <timeout> | <expr> }",      REQ | RES,         "sets a timeout of this request", parse::set_timeout),
    row("set-tos",             "<tos>",                               TCP | REQ | RES,   "sets the type of service to the client", parse::set_tos),
    row("set-uri",             "<fmt>",                               REQ,               "sets the URI", parse::set_part),
    row("set-var",             "(<var>[,<cond>…]) <expr>",            TCP | HTTP | UDP,  "sets a variable", parse::set_var),
    row("set-var-fmt",         "(<var>[,<cond>…]) <fmt>",             TCP | HTTP | UDP,  "sets a variable from a format string", parse::set_var),
    row("silent-drop",         "[rst-ttl <ttl>]",                     TCP | REQ | RES,   "drops the connection without notifying the client", parse::silent_drop),
    row("strict-mode",         "{ on | off }",                        HTTP,              "enables or disables errors on failed rewrites", parse::strict_mode),
    row("switch-mode",         "http [proto <name>]",                 CNT,               "switches the connection to HTTP mode", parse::switch_mode),
    row("tarpit",              "[status <code>] [<reply>]",           REQ,               "delays the response, then rejects the request", parse::deny),
    ActionRow { prefix: true, ..row("track-sc", "<n> <key> [table <table>]", CON | SES | CNT | REQ | RES | UDP, "tracks an entry of a stick table; the name ends with the counter's number", table::track) },
    row("unset-var",           "(<var>)",                             TCP | HTTP | UDP,  "unsets a variable", parse::unset_var),
    row("use-service",         "<name>",                              CNT | REQ,         "lets a service handle the request", parse::use_service),
    row("wait-for-body",       "time <time> [at-least <bytes>] [use-large-buffer]", REQ | RES, "waits for the body", parse::wait_for_body),
    row("wait-for-handshake",  "",                                    REQ,               "waits for the TLS handshake", parse::wait_for_handshake),

];

/// The row of the action named by `word`, if `set` allows the action.
pub(crate) fn find(
    set: Ruleset,
    word: Word<'_>,
    scope: &Scope<'_>,
) -> Result<&'static ActionRow, Diagnostic> {
    let name = word.text.split('(').next().unwrap_or_default();
    let begins = |row: &&ActionRow| row.prefix && name.starts_with(row.name);
    let named = ACTIONS.iter().find(|row| row.name == name).or_else(|| ACTIONS.iter().find(begins));
    let Some(row) = named else {
        let allowed = ACTIONS.iter().filter(|row| row.sets & set as u16 != 0).map(|row| row.name);
        let near = suggest(name, allowed);
        return Err(Diagnostic::alert(format!("unknown action `{name}` in `{}`", set.name()))
            .at(word.span)
            .did_you_mean(near)
            .haproxy(unknown(set, name, near, scope)));
    };
    if row.sets & set as u16 == 0 {
        let sets: Vec<&str> = Ruleset::ALL
            .into_iter()
            .filter(|other| row.sets & *other as u16 != 0)
            .map(Ruleset::name)
            .collect();
        return Err(Diagnostic::alert(format!("action `{name}` is not allowed in `{}`", set.name()))
            .at(word.span)
            .help(format!("it is only allowed in {}", sets.join(", ")))
            .haproxy(unknown(set, name, None, scope)));
    }
    Ok(row)
}

/// The message for an action that is unknown in `set`. `got` is empty without a word.
pub(crate) fn unknown(set: Ruleset, got: &str, near: Option<&str>, scope: &Scope<'_>) -> String {
    // Scripts may add any actions; HAProxy's message only lists the built-in ones.
    let allowed = ACTIONS.iter().filter(|row| row.sets & set as u16 != 0 && row.name != "lua.");
    let known: Vec<String> = allowed
        .map(|row| match (row.arguments.starts_with('('), row.prefix) {
            (false, false) => format!("'{}'", row.name),
            _ => format!("'{}(*)'", row.name),
        })
        .collect();
    let (known, is_http, set) = (known.join(", "), set.is_http(), set.name());
    let near = near.map_or_else(String::new, |near| format!(" (did you mean '{near}' maybe ?)"));
    if is_http {
        let missing = if got.is_empty() { " (missing argument)" } else { "" };
        return format!(": '{set}' expects {known}, but got '{got}'{missing}{near}.");
    }
    format!("'{set}' expects {known} in {} (got '{got}'){near}.", wording::owner(scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_unique_and_allowed_somewhere() {
        let mut names: Vec<&str> = ACTIONS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
        assert!(ACTIONS.iter().all(|row| row.sets != 0));
    }
}
