//! `server`, `server-template` and `default-server` lines (manual, section 5.2): their parameters as plain values.
//!
//! Names (tracked servers), expressions and formats are still words at this stage; `resolve::server` looks them up.

use std::rc::Rc;

use base::address::{Accepts, PortRule};
use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use plan::log::LogProto;
use plan::server::Ws;
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::row::{Lenient, Outcome, not_supported};
use crate::draft::server::{InitAddr, ServerDraft};
use crate::draft::settings::DefaultServers;
use crate::surface;
use crate::tables::bind_quic::congestion;
use crate::tables::server_address::parse_source;
use crate::tables::server_row::{ServerKeyword, delay, number, row, text};
use crate::tables::{resolvers, server_check, tls};
use balance::HashKey;

/// The rows except those for checks, which are in [`crate::tables::server_check`].
#[rustfmt::skip]
pub static TABLE: &[ServerKeyword] = &[
    // name arguments description setting
    row("backup",             "",              "used only if all other servers are down",                   |d, _| { d.backup = true; Ok(()) }),
    row("no-backup",          "",              "used along with the other servers",                         |d, _| { d.backup = false; Ok(()) }),
    row("cc",                 "<algorithm>",   "TCP congestion control algorithm",                          |d, a| text(&mut d.congestion, a)),
    row("cookie",             "<value>",       "cookie value that identifies this server",                  |d, a| text(&mut d.cookie, a)),
    row("disabled",           "",              "starts in maintenance mode",                                |d, _| { d.disabled = true; Ok(()) }),
    row("enabled",            "",              "starts enabled",                                            |d, _| { d.disabled = false; Ok(()) }),
    row("hash-key",           "{ id | id32 | guid | addr | addr-port }", "key that places it on the consistent hashing ring", hash_key),
    row("id",                 "<value>",       "numeric identifier in the backend",                         id),
    row("idle-ping",          "<delay>",       "interval between PING frames to idle HTTP/2 servers",       |d, a| { d.idle_ping = a.idle_ping()?; Ok(()) }),
    row("init-addr",          "{ last | libc | none | <ip> },[...]", "methods to resolve its address at startup", init_addr),
    row("log-bufsize",        "<size>",        "size of the ring for a server of a log backend",            log_bufsize),
    row("log-proto",          "{ legacy | octet-count }", "framing of log messages",                        log_proto),
    row("max-reuse",          "<count>",       "maximum number of times a connection is reused",            |d, a| number(&mut d.max_reuse, a, -1, i64::from(i32::MAX))),
    row("maxconn",            "<count> [fleet <table>]", "maximum number of concurrent requests, of this process or of all members of the table's peers section", |d, a| { number(&mut d.maxconn, a, 0, u32::MAX)?; d.fleet = if a.take("fleet") { Some(a.value()?) } else { None }; Ok(()) }),
    row("maxqueue",           "<count>",       "maximum number of queued requests",                         |d, a| number(&mut d.maxqueue, a, 0, u32::MAX)),
    row("minconn",            "<count>",       "maximum number of concurrent requests under low load",      |d, a| number(&mut d.minconn, a, 0, u32::MAX)),
    row("namespace",          "<name>",        "network namespace for connections to it",                   namespace).partial("`*`, for the namespace from the PROXY header, is not supported yet"),
    row("non-stick",          "",              "excludes it from stick tables",                             |s, _| { s.non_stick = true; Ok(()) }),
    row("stick",              "",              "allows it in stick tables",                                 |s, _| { s.non_stick = false; Ok(()) }),
    row("pool-conn-name",     "<expression>",  "connections are reused only with the same name",            |d, a| { d.pool_conn_name = Some(a.value()?); Ok(()) }),
    row("pool-low-conn",      "<count>",       "minimum number of idle connections for other threads to take one", |d, a| number(&mut d.pool_low_conn, a, 0, u32::MAX)),
    row("pool-max-conn",      "<count>",       "maximum number of idle connections",                        |d, a| number(&mut d.pool_max_conn, a, -1, i64::from(i32::MAX))),
    row("pool-purge-delay",   "<delay>",       "time between purges of idle connections",                   |d, a| { let word = a.value()?; d.pool_purge_delay = a.time(word, Milliseconds)?; Ok(()) }),
    row("proto",              "<name>",        "protocol to speak",                                         proto),
    row("proxy-v2-options",   "<option>[,...]", "additional contents of the PROXY header version 2",        proxy_v2_options),
    row("quic-cc-algo",       "{ cubic | newreno | bbr | nocc }[(<max-window>)]", "QUIC congestion control algorithm", |d, a| { congestion(&mut d.quic, a)?; d.quic.first = a.parameter; Ok(()) }),
    row("redir",              "<prefix>",      "redirects clients to the server",                           |d, a| text(&mut d.redirect, a)),
    row("send-proxy",         "",              "sends a PROXY header version 1",                            |d, _| { d.send_proxy.version_1 = true; Ok(()) }),
    row("no-send-proxy",      "",              "sends no PROXY header version 1",                           |d, _| { d.send_proxy.version_1 = false; Ok(()) }),
    row("send-proxy-v2",      "",              "sends a PROXY header version 2",                            |d, _| { d.send_proxy.version_2 = true; Ok(()) }),
    row("no-send-proxy-v2",   "",              "sends no PROXY header version 2",                           |d, _| { d.send_proxy.version_2 = false; Ok(()) }),
    row("send-proxy-v2-ssl",  "",              "sends a PROXY header version 2 with TLS details",           |d, _| { d.send_proxy.version_2 = true; d.send_proxy.tls.get_or_insert_default(); Ok(()) }),
    row("no-send-proxy-v2-ssl", "",            "sends no such header",                                      |d, _| { (d.send_proxy.version_2, d.send_proxy.tls) = (false, None); Ok(()) }),
    row("send-proxy-v2-ssl-cn", "",            "sends a PROXY header version 2 with TLS details and the client's common name", |d, _| { d.send_proxy.version_2 = true; d.send_proxy.tls.get_or_insert_default().common_name = true; Ok(()) }),
    row("no-send-proxy-v2-ssl-cn", "",         "sends no such header",                                      |d, _| { (d.send_proxy.version_2, d.send_proxy.tls) = (false, None); Ok(()) }),
    row("set-proxy-v2-tlv-fmt", "(<id>) <fmt>", "adds a TLV to the PROXY header version 2",                 |_, _| Ok(())),
    row("shard",              "<shard>",       "shard of the keys that a peer receives",                    |d, a| number(&mut d.shard, a, 0, i32::MAX as u32)),
    row("socks4",             "<addr>:<port>", "SOCKS4 proxy for connections to it",                        socks4),
    row("source",             "<addr>[:<port>] …", "source address of connections to it",                   |d, a| { d.source = Some(Rc::new(parse_source(a)?)); Ok(()) }),
    row("strict-maxconn",     "",              "applies maxconn to connections instead of requests",        |d, _| { d.strict_maxconn = true; Ok(()) }),
    row("tcp-md5sig",         "<key>",         "key that signs TCP segments (RFC 2385)",                    |d, a| text(&mut d.md5sig, a)),
    row("tcp-ut",             "<delay>",       "maximum time for which sent data may stay unacknowledged",  |d, a| delay(&mut d.tcp_ut, a)),
    row("tfo",                "",              "sends data in the SYN (TCP Fast Open)",                     |d, _| { d.tfo = true; Ok(()) }),
    row("no-tfo",             "",              "sends no data in the SYN",                                  |d, _| { d.tfo = false; Ok(()) }),
    row("weight",             "<weight>",      "weight, 0 to 256",                                          weight),
    row("guid",               "<string>",      "globally unique identifier, for `hash-key guid`",            |d, a| { let word = a.value()?; a.check_guid(word)?; d.guid = Some(word); Ok(()) }),
    row("ws",                 "{ auto | h1 | h2 }", "protocol for WebSockets",                              ws),
];

/// Every parameter: those in this file, and those for checks, name resolution and TLS.
pub fn rows() -> impl Iterator<Item = &'static ServerKeyword> {
    TABLE.iter().chain(server_check::TABLE).chain(resolvers::SERVER_TABLE).chain(tls::SERVER)
}

/// Parses the remaining parameters in `args`. `title` is `server be/s1` or `default-server`, for messages.
pub fn parse_params<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>, title: &str) -> Outcome {
    args.lenient = Lenient::NUMBERS;
    while let Some(word) = args.next() {
        if let Some(row) = rows().find(|row| word == row.name) {
            args.parameter = Some(row.name);
            (row.apply)(draft, args).map_err(|error| titled(error, title))?;
            args.parameter = None;
            args.warn_without_effect(word, row.support);
        } else if let Some(id) =
            word.strip_prefix("set-proxy-v2-tlv-fmt(").and_then(|rest| rest.strip_suffix(')'))
        {
            let id = parse_tlv(id)
                .ok_or_else(|| args.wrong(format!("invalid TLV type `{id}`")).label("use 0x00 to 0xff"))?;
            // Without a format, the TLV is empty.
            if let Some(format) = args.next() {
                draft.tlvs.push((id, format));
            }
        } else {
            return Err(unknown(word, title));
        }
    }
    Ok(())
}

/// Parses `from <origin>`, if present: the parameters to start from.
pub fn origin<'a>(
    args: &mut Args<'a, '_>,
    own: &str,
    defaults: &DefaultServers<'a>,
) -> Result<Option<ServerDraft<'a>>, Diagnostic> {
    if !args.take("from") {
        return Ok(None);
    }
    let word = args.required("'none', 'be:' or 'srv:<name>'")?;
    let draft = match word.as_str().split_once(':') {
        None if word == "none" => ServerDraft::default(),
        Some(("be", backend)) if backend.is_empty() || backend == own => defaults.unnamed.as_ref().clone(),
        Some(("srv", name)) if !name.contains('/') => defaults.named.get(name).cloned().ok_or_else(|| {
            args.wrong(format!("no default-server named `{name}` is defined above"))
                .did_you_mean(diag::suggest(name, defaults.named.keys().copied()))
                .haproxy(format!("'from' : cannot find server or default-server '{name}'."))
        })?,
        Some(("be" | "srv", _)) => return Err(not_supported("from another backend").at(word.span())),
        _ => {
            return Err(args
                .wrong(format!("unknown origin `{word}` for `from`"))
                .label("use `none`, `be:` or `srv:<name>`")
                .haproxy(format!("'from' : invalid origin '{word}'.")));
        }
    };
    // The origin's ID must not be inherited.
    Ok(Some(ServerDraft { id: None, ..draft }))
}

fn titled(mut error: Diagnostic, title: &str) -> Diagnostic {
    if let Some(text) = error.haproxy.take() {
        error.haproxy = Some(format!("'{title}' : {text}"));
    }
    error
}

fn unknown(word: &Word, title: &str) -> Diagnostic {
    let name = word.split('(').next().unwrap_or(word);
    if surface::is_server_keyword(name) {
        return not_supported(&format!("{name} (of a server)"))
            .at(word.span())
            .haproxy(format!("'{title}' : '{name}' is not supported yet"));
    }
    let mut known: Vec<&str> = rows().map(|row| row.name).chain(surface::server_keywords()).collect();
    known.sort_unstable();
    let near = diag::suggest(word, known);
    let tail = near.map_or(String::new(), |near| format!("; did you mean '{near}' maybe ?"));
    Diagnostic::alert(format!("unknown parameter `{word}` of a server"))
        .at(word.span())
        .did_you_mean(near)
        .haproxy(format!("'{title}' : unknown keyword '{word}'{tail}"))
}

/// `*` stands for the namespace of the client's connection.
fn namespace<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if args.take("*") {
        return Err(not_supported("namespace *").at(args.last().span()));
    }
    draft.namespace = Some(args.namespace()?);
    Ok(())
}

fn id<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.id = Some(args.number(word, 1, i32::MAX as u32)?);
    Ok(())
}

fn weight<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.weight = args.number(word, 0, 256).map_err(|_| {
        args.wrong(format!("weight `{word}` is not between 0 and 256"))
            .haproxy(format!("weight of server is not within 0 and 256 ({word})."))
    })?;
    Ok(())
}

fn hash_key<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.hash_key = args.choice(
        word,
        &[
            ("id", HashKey::Id),
            ("id32", HashKey::Id32),
            ("guid", HashKey::Guid),
            ("addr", HashKey::Addr),
            ("addr-port", HashKey::AddrPort),
        ],
    )?;
    Ok(())
}

fn init_addr<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.init_addr.clear();
    for method in word.split(',') {
        draft.init_addr.push(match method {
            "last" => InitAddr::Last,
            "libc" => InitAddr::Libc,
            "none" => InitAddr::None,
            address => InitAddr::Ip(address.parse().map_err(|_| {
                args.wrong(format!("unknown method `{address}` for `init-addr`"))
                    .label("use last, libc, none, or an address")
                    .haproxy(format!("'init-addr': unknown init-addr method '{address}'"))
            })?),
        });
    }
    Ok(())
}

fn log_proto<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    let choices = [("legacy", LogProto::Legacy), ("octet-count", LogProto::OctetCount)];
    draft.log_proto = Some(args.choice(word, &choices)?);
    Ok(())
}

fn log_bufsize<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    let size = base::units::parse_size(word).ok().filter(|size| (1..=1 << 31).contains(size));
    draft.log_bufsize = Some(size.ok_or_else(|| {
        args.wrong(format!("invalid ring size `{word}`"))
            .label("use a number of bytes, or a suffix k, m or g")
            .haproxy(format!("'log-bufsize' : expects a size argument (got '{word}')."))
    })? as usize);
    Ok(())
}

fn proto<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    (draft.speaks_h1, draft.speaks_h2) = (word == "h1", word == "h2");
    (draft.speaks_fcgi, draft.speaks_spop) = (word == "fcgi", word == "spop");
    draft.speaks_quic = Some(word).filter(|word| *word == "quic");
    draft.speaks_qmux = Some(word).filter(|word| *word == "qmux");
    match word.as_str() {
        "h1" | "none" | "h2" | "fcgi" | "spop" | "quic" | "qmux" => Ok(()),
        other => Err(args
            .wrong(format!("unknown protocol `{other}`"))
            .haproxy(format!("'proto' :  unknown MUX protocol '{other}'"))),
    }
}

fn ws<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.tls.ws = args.choice(word, &[("auto", Ws::Auto), ("h1", Ws::Http1), ("h2", Ws::Http2)])?;
    Ok(())
}

fn proxy_v2_options<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    for option in word.split(',') {
        match option {
            "unique-id" => draft.send_proxy.unique_id = true,
            "crc32c" => draft.send_proxy.crc32c = true,
            "authority" => draft.send_proxy.authority = true,
            "ssl" | "cert-cn" | "ssl-cipher" | "cert-sig" | "cert-key" => {
                let tls = draft.send_proxy.tls.get_or_insert_default();
                match option {
                    "cert-cn" => tls.common_name = true,
                    "ssl-cipher" => tls.cipher = true,
                    "cert-sig" => tls.signature = true,
                    "cert-key" => tls.key = true,
                    _ => {}
                }
            }
            other => {
                let near = diag::suggest(other, ["unique-id", "crc32c", "authority", "ssl", "cert-cn"]);
                return Err(args
                    .wrong(format!("unknown option `{other}` for `proxy-v2-options`"))
                    .did_you_mean(near));
            }
        }
    }
    Ok(())
}

fn parse_tlv(text: &str) -> Option<u8> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn socks4<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    let address = args.address(word, Accepts { port: PortRule::Required, range: false, offset: false })?;
    draft.socks4 =
        Some(address.socket_addr().ok_or_else(|| args.wrong(format!("invalid address and port `{word}`")))?);
    Ok(())
}
