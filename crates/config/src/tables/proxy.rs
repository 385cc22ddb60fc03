//! The basic keywords of proxies (manual, section 4.2): mode, limits, binds, servers, captures.

use std::rc::Rc;
use std::time::Duration;

use base::raw::bytes_of;
use base::units::DefaultUnit::{Milliseconds, Seconds};
use diag::Diagnostic;
use plan::proxy::{CookieCapture, RetryOn, Reuse, StateFile};
use state::Mode;

use crate::draft::SectionKind;
use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, proxy, removed, removed_since};
use crate::draft::row::Outcome;
use crate::draft::row::places::{DFL, DFL_FORWARD, DFLB, DLB, FL, FL_FORWARD, FLB, FLB_RING, LB, LB_RING};
use crate::draft::settings::{DeclaredCapture, ProxySettings};
use crate::tables::{server, server_address};

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    // name where arguments description setting
    proxy("mode",                 DFLB, "{ tcp | http | haterm | log | spop }", "protocol of the proxy",                  mode),
    proxy("id",                   FLB,  "<value>",               "numeric identifier in the statistics",                  id).lenient_numbers().or_udp(),
    proxy("disabled",             DFLB, "",                      "disables the proxy",                                    |s, a| { s.disabled = true; a.finish() }).or_udp(),
    proxy("enabled",              DFLB, "",                      "enables the proxy, the default",                        |s, a| { s.disabled = false; a.finish() }).or_udp(),
    proxy("be-unpublished",       LB,   "",                      "prevents rules of other proxies from selecting it",     |s, a| { s.unpublished = true; a.finish() }),
    proxy("description",          FLB_RING,  "<string>",              "description in the statistics",                         description).or_udp(),
    proxy("guid",                 FLB,  "<string>",              "globally unique identifier",                            guid).lenient_words().or_udp(),
    proxy("bind",                 FL_FORWARD,   "[<address>]:<port_range> [, ...] [param*]", "address to listen on",              |s, a| { s.binds.push(a.statement); a.rest(); Ok(()) }),
    proxy("ssl-f-use",            FL,   "crt <file> [key <file>] [ocsp <file>] [<sslbindconf> ...]", "certificate for all TLS bind lines of this frontend", |s, a| { s.certificates.push(a.statement); a.rest(); Ok(()) }),
    proxy("server",               LB_RING,   "<name> <address>[:[port]] [param*]", "defines a server",                                 server_line).or_udp(),
    proxy("server-template",      LB,   "<prefix> <num | range> <fqdn>[:<port>] [params*]", "series of similar servers",  server_line).or_udp(),
    proxy("servers from",         LB,   "<section> [<selector>] [param*]", "adds the servers that a `discovery` section finds", server_line).or_udp(),
    proxy("default-server",       DLB,  "[name <name>] [from <origin>] [param*]", "default parameters of servers",                         default_server)
        .partial("`from` accepts only default servers of the same backend").or_udp(),
    proxy("default_backend",      DFL,  "<backend>",             "backend to use if no rule selects one",                 default_backend).or_udp(),
    proxy("maxconn",              DFL_FORWARD,  "<conns>",               "maximum number of concurrent connections",              maxconn).lenient_numbers().or_udp(),
    proxy("fullconn",             DLB,  "<conns>",               "number of connections that count as full load, for `minconn`", |s, a| number(&mut s.fullconn, a, 0, u32::MAX)).lenient_numbers(),
    proxy("backlog",              DFL_FORWARD,  "<conns>",               "length of the accept queue",                            |s, a| number(&mut s.backlog, a, 0, u32::MAX)).lenient_numbers(),
    proxy("rate-limit sessions",  DFL,  "<rate>",                "maximum number of new sessions per second",             |s, a| number(&mut s.session_limit, a, 0, u32::MAX)).lenient_words().or_udp(),
    proxy("retries",              DLB,  "<value>",               "number of connection retries",                          |s, a| number(&mut s.retries, a, 0, i32::MAX as u32)).lenient_numbers(),
    proxy("retry-delay",          LB,   "<time>",                "least time between a failure and the next attempt",     retry_delay),
    proxy("retry-on",             DLB,  "[space-delimited list of keywords]", "conditions under which a request is retried", retry_on),
    proxy("http-reuse",           DLB,  "{ never | safe | aggressive | always }", "when idle connections of other sessions may be reused", http_reuse),
    proxy("http-send-name-header", DLB, "<header>",              "header in which servers receive their name",            http_send_name_header).lenient_words(),
    proxy("max-keep-alive-queue", DLB,  "<value>",               "queue length above which a kept-alive client moves to another server", |s, a| number(&mut s.max_keep_alive_queue, a, -1, i32::MAX)),
    proxy("max-session-srv-conns", DFL, "<nb>",                  "maximum number of idle server connections kept per session", |s, a| number(&mut s.max_session_server_connections, a, 0, i32::MAX)).lenient_numbers(),
    proxy("monitor-uri",          DFL,  "<uri>",                 "URI answered by the proxy itself to report that it is alive", monitor_uri),
    proxy("capture request header",  FL, "<name> len <length>",  "captures a request header for the log",                 capture_request_header),
    proxy("capture response header", FL, "<name> len <length>",  "captures a response header for the log",                capture_response_header),
    proxy("capture cookie",       FL,   "<name> len <length>",   "captures a cookie for the log",                         capture_cookie),
    proxy("declare capture",      FL,   "{ request | response } len <length>", "declares a capture slot for rules",       declare_capture),
    proxy("clitcpka-cnt",         DFL,  "<count>",               "number of keep-alive probes before a client connection is dead", |s, a| some(&mut s.options.tcp_keepalive_client.count, a)),
    proxy("clitcpka-idle",        DFL,  "<timeout>",             "idle time before the first keep-alive probe of a client", |s, a| seconds(&mut s.options.tcp_keepalive_client.idle, a)),
    proxy("clitcpka-intvl",       DFL,  "<timeout>",             "time between keep-alive probes of a client",            |s, a| seconds(&mut s.options.tcp_keepalive_client.interval, a)),
    proxy("srvtcpka-cnt",         DLB,  "<count>",               "number of keep-alive probes before a server connection is dead", |s, a| some(&mut s.options.tcp_keepalive_server.count, a)),
    proxy("srvtcpka-idle",        DLB,  "<timeout>",             "idle time before the first keep-alive probe of a server", |s, a| seconds(&mut s.options.tcp_keepalive_server.idle, a)),
    proxy("srvtcpka-intvl",       DLB,  "<timeout>",             "time between keep-alive probes of a server",            |s, a| seconds(&mut s.options.tcp_keepalive_server.interval, a)),
    proxy("load-server-state-from-file", DLB, "{ global | local | none }", "loads server states saved by an earlier process", load_server_state),
    proxy("server-state-file-name", DLB, "[ { use-backend-name | <file> } ]", "file with the states of its servers", server_state_file_name),
    proxy("source",               DLB,  "<addr>[:<port>] [usesrc { <addr2>[:<port2>] | client | clientip | hdr_ip(<hdr>[,<occ>]) } ] [interface <name>]", "source address of connections to servers", source).or_udp(),
    proxy("persist rdp-cookie",   DLB,  "",                      "selects the server named by an RDP cookie",             |s, a| { s.rdp_persistence = Some(RDP_TOKEN); a.finish() }),
    proxy("persist",              DLB,  "rdp-cookie(<name>)",    "selects the server named by an RDP cookie with this name",                         persist),

    proxy("stick-table",          FLB,  "type <type> size <size> [expire <expire>] [nopurge] [recv-only] [write-to <wtable>] [srvkey <srvkey>] [store <data_type>]* [brates-factor <factor>] [peers <peersect> [aggregate [every <time>]]]", "table of counters and tags per key", stick_table).or_udp(),

    removed("appsession",  DLB, "Use 'stick' or 'cookie insert'"),
    removed("block",       DFLB, "Use 'http-request deny'"),
    removed("monitor-net", DFL, "Use 'http-request return' with an ACL"),
    removed_since("dispatch", LB, "3.5", "Use a 'server' line with that address"),
    removed_since("transparent", DLB, "3.5", "Use a 'server' line with the address 0.0.0.0"),
    removed("redisp",      DLB, "Use 'option redispatch'"),
    removed("redispatch",  DLB, "Use 'option redispatch'"),
    removed("reqadd",      DFLB, "Use 'http-request add-header'"),
    removed("reqallow",    DFLB, "Use 'http-request allow'"),
    removed("reqdel",      DFLB, "Use 'http-request del-header'"),
    removed("reqdeny",     DFLB, "Use 'http-request deny'"),
    removed("reqiallow",   DFLB, "Use 'http-request allow'"),
    removed("reqidel",     DFLB, "Use 'http-request del-header'"),
    removed("reqideny",    DFLB, "Use 'http-request deny'"),
    removed("reqipass",    DFLB, "Use 'http-request allow'"),
    removed("reqirep",     DFLB, "Use 'http-request replace-header' or 'http-request replace-path'"),
    removed("reqisetbe",   DFLB, "Use 'use_backend'"),
    removed("reqitarpit",  DFLB, "Use 'http-request tarpit'"),
    removed("reqpass",     DFLB, "Use 'http-request allow'"),
    removed("reqrep",      DFLB, "Use 'http-request replace-header' or 'http-request replace-path'"),
    removed("reqsetbe",    DFLB, "Use 'use_backend'"),
    removed("reqtarpit",   DFLB, "Use 'http-request tarpit'"),
    removed("rspadd",      DFLB, "Use 'http-response add-header'"),
    removed("rspdel",      DFLB, "Use 'http-response del-header'"),
    removed("rspdeny",     DFLB, "Use 'http-response deny'"),
    removed("rspidel",     DFLB, "Use 'http-response del-header'"),
    removed("rspideny",    DFLB, "Use 'http-response deny'"),
    removed("rspirep",     DFLB, "Use 'http-response replace-header'"),
    removed("rsprep",      DFLB, "Use 'http-response replace-header'"),
    removed("bind-process", DFLB, "There is only one process; use 'thread' on bind lines"),
];

fn number<T>(value: &mut T, args: &mut Args<'_, '_>, low: T, high: T) -> Outcome
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    *value = args.integer("an integer", low, high)?;
    args.finish()
}

fn some(value: &mut Option<u32>, args: &mut Args<'_, '_>) -> Outcome {
    *value = Some(args.integer("an integer", 1, 127)?);
    args.finish()
}

fn seconds(value: &mut Option<Duration>, args: &mut Args<'_, '_>) -> Outcome {
    *value = Some(args.duration(Seconds)?);
    args.finish()
}

fn mode<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("'http', 'tcp', 'log', 'spop' or 'haterm'")?;
    settings.is_haterm = word.as_str() == "haterm";
    settings.mode = match word.as_str() {
        "tcp" => Mode::Tcp,
        "http" => Mode::Http,
        "haterm" if settings.kind == SectionKind::Backend => {
            return Err(args
                .wrong("`mode haterm` is only for proxies that accept connections")
                .haproxy("mode haterm is only applicable on proxies with frontend capability."));
        }
        "haterm" => Mode::Http,
        "log" => Mode::Log,
        "spop" => Mode::Spop,
        "health" => {
            return Err(args
                .wrong("`mode health` does not exist any more")
                .help("`http-request return status 200` answers health checks")
                .haproxy(
                    "'mode health' doesn't exist anymore. Please use 'http-request return status 200' instead.",
                ));
        }
        other => {
            let meant = diag::suggest(other, ["tcp", "http", "haterm", "log", "spop"]);
            // The mode that was probably meant, so that no message about the other lines follows from this error.
            settings.mode = match meant {
                Some("tcp") => Mode::Tcp,
                Some("log") => Mode::Log,
                Some("spop") => Mode::Spop,
                _ => Mode::Http,
            };
            return Err(args
                .wrong(format!("unknown proxy mode `{other}`"))
                .did_you_mean(meant)
                .haproxy(format!("unknown proxy mode '{other}'.")));
        }
    };
    args.finish()
}

fn id<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let value = args.integer("an integer argument", 1, i32::MAX as u32)?;
    settings.id = Some(value);
    args.finish()
}

fn description<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    args.required("a text")?;
    let words: Vec<&str> = args.statement.arguments().iter().map(|word| word.as_str()).collect();
    args.rest();
    settings.description = Some(words.join(" ").into());
    Ok(())
}

fn guid<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a globally unique identifier")?;
    args.check_guid(word)?;
    settings.guid = Some(word);
    args.finish()
}

/// `server`, and `peer`.
pub(crate) fn server_line<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    args.rest();
    settings.servers.push((args.statement, settings.default_servers.clone()));
    Ok(())
}

/// `default-server`.
pub(crate) fn default_server<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let words: Vec<String> =
        args.statement.arguments().iter().map(|word| crate::draft::section::quoted(word.as_str())).collect();
    Rc::make_mut(&mut settings.default_server_lines).push(words.join(" "));
    let name = if args.take("name") { Some(args.required("a name")?.as_str()) } else { None };
    let mut draft = match name {
        Some(name) => settings.default_servers.named.get(name).cloned().unwrap_or_default(),
        None => settings.default_servers.unnamed.as_ref().clone(),
    };
    if let Some(origin) = server::origin(args, settings.name, &settings.default_servers)? {
        draft = origin;
    }
    server::parse_params(&mut draft, args, "default-server")?;
    match name {
        Some(name) => {
            Rc::make_mut(&mut settings.default_servers.named).insert(name, draft);
        }
        None => settings.default_servers.unnamed = Rc::new(draft),
    }
    Ok(())
}

fn stick_table<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    args.rest();
    if let Some(first) = settings.stick_table {
        return Err(Diagnostic::alert("a proxy can have only one stick table")
            .at(args.statement.keyword_span())
            .related(first.keyword_span(), "the first one is here")
            .help("put other tables in separate backends"));
    }
    settings.stick_table = Some(args.statement);
    Ok(())
}

fn default_backend<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.default_backend = Some(args.required("a backend name")?);
    args.finish()
}

fn maxconn<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.maxconn = Some(args.integer("an integer argument", 0, u32::MAX)?);
    args.finish()
}

fn retry_delay(settings: &mut ProxySettings<'_>, args: &mut Args<'_, '_>) -> Outcome {
    let word = args.required("a time")?;
    settings.retry_delay = Some(args.time(word, Milliseconds)?);
    args.finish()
}

fn retry_on<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let mut on = RetryOn { conn_failure: false, ..RetryOn::default() };
    args.required("at least one of: none, conn-failure, empty-response, junk-response, response-timeout, 0rtt-rejected, grpc-unavailable, all-retryable-errors, or a status")?;
    let words = args.statement.arguments();
    if let Some(none) = words.iter().find(|word| **word == "none").filter(|_| words.len() > 1) {
        return Err(Diagnostic::alert("`none` cannot be combined with other conditions")
            .at(none.span())
            .haproxy("'retry-on' 'none' keyword only usable alone"));
    }
    for word in words {
        match word.as_str() {
            "none" => on = RetryOn { conn_failure: false, ..RetryOn::default() },
            "conn-failure" => on.conn_failure = true,
            "empty-response" => on.empty_response = true,
            "junk-response" => on.junk_response = true,
            "response-timeout" => on.response_timeout = true,
            "0rtt-rejected" => on.zero_rtt_rejected = true,
            "grpc-unavailable" => on.grpc_unavailable = true,
            "all-retryable-errors" => {
                on.conn_failure = true;
                on.empty_response = true;
                on.junk_response = true;
                on.response_timeout = true;
                on.zero_rtt_rejected = true;
                on.statuses.extend([500, 502, 503, 504]);
            }
            // HAProxy knows only some of these statuses.
            status if let Some(status) = error_status(status) => on.statuses.push(status),
            other => {
                const KNOWN: &[&str] = &[
                    "none",
                    "conn-failure",
                    "empty-response",
                    "junk-response",
                    "response-timeout",
                    "0rtt-rejected",
                    "grpc-unavailable",
                    "all-retryable-errors",
                ];
                return Err(Diagnostic::alert(format!("unknown condition `{other}` for `retry-on`"))
                    .at(word.span())
                    .did_you_mean(diag::suggest(other, KNOWN.iter().copied()))
                    .haproxy(format!("'retry-on': unknown keyword '{other}'")));
            }
        }
    }
    args.rest();
    settings.retry_on = Some(Rc::new(on));
    Ok(())
}

/// The status of an error response.
fn error_status(text: &str) -> Option<u16> {
    text.parse().ok().filter(|status| (400..600).contains(status) && text.len() == 3)
}

fn http_reuse<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.reuse = args.one_of(&[
        ("never", Reuse::Never),
        ("safe", Reuse::Safe),
        ("aggressive", Reuse::Aggressive),
        ("always", Reuse::Always),
    ])?;
    args.finish()
}

fn http_send_name_header<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.required("a header name")?;
    // The header is added after framing and routing of the message, so it cannot affect them.
    let refused = ["connection", "content-length", "host", "transfer-encoding"];
    if refused.iter().any(|known| name.as_str().eq_ignore_ascii_case(known)) {
        let text = name.as_str();
        return Err(Diagnostic::alert(format!("`http-send-name-header` cannot set `{text}`"))
            .at(name.span())
            .label("this header controls framing or routing")
            .haproxy(format!(
                "'{text}' cannot be used as header name for 'http-send-name-header' directive."
            )));
    }
    settings.send_name_header = Some(name.as_str());
    args.finish()
}

fn monitor_uri<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.monitor_uri = Some(args.required("an URI")?);
    args.finish()
}

fn capture_request_header<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.required("<header_name> and 'len'")?;
    let length = length(args)?;
    declare_request_capture(settings, Some(name), length);
    args.finish()
}

fn capture_response_header<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.required("<header_name> and 'len'")?;
    let length = length(args)?;
    settings.response_captures.push((Some(name), length));
    args.finish()
}

fn declare_request_capture<'a>(settings: &mut ProxySettings<'a>, header: Option<&'a str>, length: usize) {
    let rules_before = settings.all_rules().count();
    settings.request_captures.push(DeclaredCapture { header, length, rules_before });
}

fn length(args: &mut Args<'_, '_>) -> Result<usize, Diagnostic> {
    let word = args.required("'len' <len>")?;
    if word != "len" {
        let keyword = args.keyword();
        return Err(args.wrong(format!("`{keyword}` requires `len`, not `{word}`")));
    }
    args.integer("a length", 1, 65_535)
}

fn capture_cookie<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.required("<cookie_name> and 'len'")?;
    let length = length(args)?;
    // `name=` means exactly this cookie; `name` means any cookie that begins with it.
    let exact = name.strip_suffix('=');
    settings.cookie_capture =
        Some(CookieCapture { name: bytes_of(exact.unwrap_or(name)).into(), prefix: exact.is_none(), length });
    args.finish()
}

fn declare_capture<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let request = args.one_of(&[("request", true), ("response", false)])?;
    let length = length(args)?;
    if request {
        declare_request_capture(settings, None, length);
    } else {
        settings.response_captures.push((None, length));
    }
    args.finish()
}

fn load_server_state<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("'global', 'local' or 'none'")?;
    let choice = args.choice(word, &[("none", 0), ("global", 1), ("local", 2)])?;
    settings.server_state = match choice {
        0 => StateFile::None,
        1 => StateFile::Global,
        _ => StateFile::Local(Default::default()),
    };
    args.finish()
}

fn server_state_file_name<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.server_state_name =
        args.next().map(|word| word.as_str()).filter(|name| *name != "use-backend-name");
    args.finish()
}

fn source<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.source = Some(Rc::new(server_address::parse_source(args)?));
    args.finish()
}

/// The cookie that terminal servers set in token redirection mode.
const RDP_TOKEN: &str = "msts";

fn persist<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let method = args.required("`rdp-cookie`")?;
    let Some(inside) = method.as_str().strip_prefix("rdp-cookie(") else {
        return Err(args
            .wrong(format!("`persist` supports `rdp-cookie` and `rdp-cookie(<name>)`, not `{method}`"))
            .haproxy("unknown persist method."));
    };
    let name = inside.strip_suffix(')').filter(|name| !name.is_empty()).ok_or_else(|| {
        args.wrong("`rdp-cookie(` expects the name of a cookie and `)`")
            .haproxy("persist rdp-cookie(name)' requires an rdp cookie name.")
    })?;
    settings.rdp_persistence = Some(name);
    args.finish()
}
