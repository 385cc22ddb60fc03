//! `option …` (manual, section 4.2). Options without arguments set a single flag.

use std::rc::Rc;

use base::network::Network;
use diag::Diagnostic;
use plan::proxy::{ConnectionMode, ForwardFor, RestrictNames};

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, ineffective, proxy, removed, removed_since};
use crate::draft::row::places::{DFL, DFLB, DL, DLB};
use crate::draft::row::{Negation, Outcome};
use crate::draft::settings::{LogFormatChoice, ProxySettings};

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    // name where arguments description setting
    proxy("option abortonclose",                DFLB, "", "drops queued requests of clients that closed the connection",        |s, a| maybe(&mut s.options.abortonclose, a)).negatable(),
    proxy("option accept-unsafe-violations-in-http-request",  DFL, "", "accepts requests that violate the HTTP specification",   |s, a| flag(&mut s.options.accept_unsafe_request, a)).negatable(),
    proxy("option accept-unsafe-violations-in-http-response", DLB, "", "accepts responses that violate the HTTP specification",  |s, a| flag(&mut s.options.accept_unsafe_response, a)).negatable(),
    proxy("option accept-invalid-http-request", DFL,  "", "former name of accept-unsafe-violations-in-http-request",             unsafe_request).negatable(),
    proxy("option accept-invalid-http-response", DLB, "", "former name of accept-unsafe-violations-in-http-response",            unsafe_response).negatable(),
    proxy("option alt-svc",                     DFL,  "", "announces HTTP/3 on the port of the first QUIC listener (Alt-Svc); Weir extension", |s, a| flag(&mut s.alt_svc, a)).negatable(),
    proxy("option allbackups",                  DLB,  "", "balances over all backup servers, instead of using only the first",  |s, a| flag(&mut s.options.allbackups, a)).negatable().or_udp(),
    proxy("option checkcache",                  DLB,  "", "rejects cacheable responses that set a cookie",                      |s, a| flag(&mut s.options.checkcache, a)).negatable(),
    proxy("option clitcpka",                    DFL,  "", "enables TCP keep-alive on the client side",                          |s, a| flag(&mut s.options.clitcpka, a)).negatable(),
    proxy("option srvtcpka",                    DLB,  "", "enables TCP keep-alive on the server side",                          |s, a| flag(&mut s.options.srvtcpka, a)).negatable(),
    proxy("option tcpka",                       DFLB, "", "enables TCP keep-alive on both sides",                               tcpka),
    proxy("option contstats",                   DFL,  "", "updates counters during transfers, not only at the end",             |s, a| flag(&mut s.options.contstats, a)).negatable(),
    proxy("option dontlog-normal",              DFL,  "", "logs only abnormal connections",                                     |s, a| flag(&mut s.options.dontlog_normal, a)).negatable().or_udp(),
    proxy("option dontlognull",                 DFL,  "", "does not log connections that transfer no data",                     |s, a| flag(&mut s.options.dontlognull, a)).negatable(),
    proxy("option log-separate-errors",         DFL,  "", "raises the log level of failed requests to err",                     |s, a| flag(&mut s.options.log_separate_errors, a)).negatable().or_udp(),
    proxy("option logasap",                     DFL,  "", "logs without waiting for the end of the response",                   |s, a| flag(&mut s.options.logasap, a)).negatable(),
    proxy("option log-health-checks",           DLB,  "", "logs every change of a check result",                                |s, a| flag(&mut s.options.log_health_checks, a)).negatable().or_udp(),
    proxy("option h1-case-adjust-bogus-client", DFL,  "", "adjusts the case of header names sent to clients",                   |s, a| flag(&mut s.options.h1_case_adjust_bogus_client, a)).negatable(),
    proxy("option h1-case-adjust-bogus-server", DLB,  "", "adjusts the case of header names sent to servers",                   |s, a| flag(&mut s.options.h1_case_adjust_bogus_server, a)).negatable(),
    proxy("option http-buffer-request",         DFLB, "", "waits for the body, or a full buffer, before processing a request",  |s, a| flag(&mut s.options.http_buffer_request, a)).negatable(),
    proxy("option http-drop-request-trailers",  DLB,  "", "drops request trailers",                                             |s, a| flag(&mut s.options.http_drop_request_trailers, a)).negatable(),
    proxy("option http-drop-response-trailers", DL.or(crate::draft::row::Where::F), "", "drops response trailers",                 |s, a| flag(&mut s.options.http_drop_response_trailers, a)).negatable(),
    proxy("option http-ignore-probes",          DFL,  "", "ignores connections that close without a request",                   |s, a| flag(&mut s.options.http_ignore_probes, a)).negatable(),
    proxy("option http-pretend-keepalive",      DLB,  "", "asks servers for keep-alive even if the connection will be closed",  |s, a| flag(&mut s.options.http_pretend_keepalive, a)).negatable(),
    proxy("option http-use-proxy-header",       DFL,  "", "uses the Proxy-Connection header instead of Connection",             |s, a| flag(&mut s.options.http_use_proxy_header, a)).negatable(),
    proxy("option idle-close-on-response",      DFL,  "", "closes idle connections only after a response during a soft stop",   |s, a| flag(&mut s.options.idle_close_on_response, a)).negatable(),
    proxy("option independent-streams",         DFLB, "", "applies inactivity timeouts to each direction separately",           |s, a| flag(&mut s.options.independent_streams, a)).negatable(),
    proxy("option disable-h2-upgrade",          DFL,  "", "does not upgrade clients that send the HTTP/2 preface",               |s, a| flag(&mut s.options.disable_h2_upgrade, a)).negatable(),
    proxy("option nolinger",                    DFLB, "", "closes sockets with a reset",                                        nolinger).negatable(),
    proxy("option persist",                     DLB,  "", "uses a persistence cookie's server even if it is down",              |s, a| flag(&mut s.options.persist, a)).negatable(),
    proxy("option prefer-last-server",          DLB,  "", "reuses the server of the previous request on the same connection",   |s, a| flag(&mut s.options.prefer_last_server, a)).negatable(),
    proxy("option socket-stats",                DFL,  "", "counts statistics per listener",                                     |s, a| flag(&mut s.options.socket_stats, a)).negatable().or_udp(),
    proxy("option splice-auto",                 DFLB, "", "forwards inside the kernel if it is likely to be faster",            |s, a| flag(&mut s.options.splice_auto, a)).negatable(),
    proxy("option splice-request",              DFLB, "", "forwards requests inside the kernel",                                |s, a| flag(&mut s.options.splice_request, a)).negatable(),
    proxy("option splice-response",             DFLB, "", "forwards responses inside the kernel",                               |s, a| flag(&mut s.options.splice_response, a)).negatable(),
    proxy("option tcp-smart-accept",            DFL,  "", "saves an ACK when accepting",                                        |s, a| maybe(&mut s.options.tcp_smart_accept, a)).negatable(),
    proxy("option tcp-smart-connect",           DLB,  "", "saves an ACK when connecting; the default in HTTP mode",             |s, a| maybe(&mut s.options.tcp_smart_connect, a)).negatable(),
    proxy("option http-keep-alive",             DFLB, "", "keeps connections open on both sides",                               |s, a| connection(s, a, ConnectionMode::KeepAlive)).negatable(),
    proxy("option http-server-close",           DFLB, "", "closes the server connection after each response",                   |s, a| connection(s, a, ConnectionMode::ServerClose)).negatable(),
    proxy("option httpclose",                   DFLB, "", "closes both connections after each response",                        |s, a| connection(s, a, ConnectionMode::Close)).negatable(),
    proxy("option redispatch",                  DLB,  "[<interval>]", "retries on another server if the chosen one fails",      redispatch).negatable().lenient_words().lenient_numbers(),
    proxy("option http-restrict-req-hdr-names", DFLB, "{ preserve | delete | reject }", "handling of header names with unusual characters", restrict_names),
    proxy("option forwardfor",                  DFLB, "[ except <network> ] [ header <name> ] [ if-none ]", "adds X-Forwarded-For", forwardfor),
    proxy("option originalto",                  DFLB, "[ except <network> ] [ header <name> ] [ if-none ]", "adds X-Original-To",   originalto),
    proxy("option forwarded",                   DLB,  "[ proto ] [ host | host-expr <e> ] [ by … ] [ for … ]", "adds Forwarded (RFC 7239)", forwarded).negatable(),
    proxy("option httplog",                     DFL,  "[ clf ]", "logs each request in HAProxy's HTTP log format, or Apache's with `clf`", httplog),
    proxy("option tcplog",                      DFL,  "[ clf ]", "logs each connection",                                        tcplog),
    proxy("option httpslog",                    DFL,  "",  "logs each request with details of its TLS connection",              httpslog),
    ineffective("option http-no-delay", DFLB, "data is always sent without delay"),
    ineffective("option use-small-buffers", DLB, "buffers grow on demand"),
    removed_since("option transparent", DLB, "3.5", "Use a 'server' line with the address 0.0.0.0"),
    removed("option forceclose", DFLB, "Use 'option httpclose'"),
    removed("option http-tunnel", DFLB, "It stopped working in HAProxy 2.1; remove it"),
    removed("option http-use-htx", DFLB, "It is always on; remove it"),
];

/// Turns an option without arguments on, off, or to its default.
fn flag(value: &mut bool, args: &mut Args<'_, '_>) -> Outcome {
    args.finish()?;
    *value = args.statement.negation == Negation::None;
    Ok(())
}

fn unsafe_request<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    renamed(args, "request");
    flag(&mut settings.options.accept_unsafe_request, args)
}

fn unsafe_response<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    renamed(args, "response");
    flag(&mut settings.options.accept_unsafe_response, args)
}

fn renamed(args: &mut Args<'_, '_>, message: &str) {
    args.warn(format!(
        "`option accept-invalid-http-{message}` is deprecated: use `option accept-unsafe-violations-in-http-{message}` instead"
    ));
}

fn maybe(value: &mut Option<bool>, args: &mut Args<'_, '_>) -> Outcome {
    args.finish()?;
    *value = match args.statement.negation {
        Negation::None => Some(true),
        Negation::No => Some(false),
        Negation::Default => None,
    };
    Ok(())
}

fn tcpka<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    flag(&mut settings.options.clitcpka, args)?;
    settings.options.srvtcpka = settings.options.clitcpka;
    Ok(())
}

fn nolinger<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    flag(&mut settings.options.nolinger_frontend, args)?;
    settings.options.nolinger_backend = settings.options.nolinger_frontend;
    Ok(())
}

/// Sets one of the three mutually exclusive modes. Negating a mode that is not active changes nothing.
fn connection<'a>(
    settings: &mut ProxySettings<'a>,
    args: &mut Args<'a, '_>,
    mode: ConnectionMode,
) -> Outcome {
    args.finish()?;
    if args.statement.negation == Negation::None {
        settings.options.connection = mode;
    } else if settings.options.connection == mode {
        settings.options.connection = ConnectionMode::KeepAlive;
    }
    Ok(())
}

fn redispatch<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.redispatch = match args.statement.negation {
        Negation::None if args.peek().is_some() => args.integer("a number of retries", i32::MIN, i32::MAX)?,
        Negation::None => -1,
        _ => 0,
    };
    args.finish()
}

fn restrict_names<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    const CHOICES: &[(&str, RestrictNames)] = &[
        ("preserve", RestrictNames::Preserve),
        ("delete", RestrictNames::Delete),
        ("reject", RestrictNames::Reject),
    ];
    settings.restricts_names = true;
    settings.options.restrict_header_names = args.one_of(CHOICES)?;
    args.finish()
}

fn forwardfor<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.forward_for = Some(address_header(args, "X-Forwarded-For")?);
    Ok(())
}

fn originalto<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.original_to = Some(address_header(args, "X-Original-To")?);
    Ok(())
}

fn address_header(args: &mut Args<'_, '_>, name: &str) -> Result<Rc<ForwardFor>, Diagnostic> {
    let mut own = ForwardFor { header: name.as_bytes().into(), except: None, if_none: false };
    while let Some(word) = args.next() {
        match word.as_str() {
            "except" => {
                let network = args.required("an address or a network")?;
                let parsed = Network::parse(network);
                own.except = Some(parsed.map_err(|error| args.wrong(format!("`{network}` is {error}")))?);
            }
            "header" => own.header = args.required("a header name")?.bytes().into(),
            "if-none" => own.if_none = true,
            other => {
                let keyword = args.keyword();
                return Err(args.wrong(format!("unexpected argument `{other}` for `{keyword}`")).haproxy(
                    format!("'{keyword}' only supports optional 'except', 'header' and 'if-none' fields."),
                ));
            }
        }
    }
    Ok(Rc::new(own))
}

fn forwarded<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.forwarded = (args.statement.negation == Negation::None).then_some(args.statement);
    Ok(())
}

fn httplog<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let clf = args.take("clf");
    let statement = args.statement;
    choose_log(
        settings,
        args,
        if clf { LogFormatChoice::Clf(statement) } else { LogFormatChoice::Http(statement) },
    )
}

fn tcplog<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let clf = args.take("clf");
    let statement = args.statement;
    choose_log(
        settings,
        args,
        if clf { LogFormatChoice::TcpClf(statement) } else { LogFormatChoice::Tcp(statement) },
    )
}

fn httpslog<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let statement = args.statement;
    choose_log(settings, args, LogFormatChoice::Https(statement))
}

fn choose_log<'a>(
    settings: &mut ProxySettings<'a>,
    args: &mut Args<'a, '_>,
    choice: LogFormatChoice<'a>,
) -> Outcome {
    args.finish()?;
    settings.log_format = choice;
    Ok(())
}
