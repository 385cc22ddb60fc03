//! `bind` and `stats socket` lines (manual, section 5.1): their parameters, and the sockets of a line.

use crate::draft::bind::BindDraft;
use std::sync::Arc;

use base::address::{Accepts, Destination, PortRule, Transport};
use base::raw::{bytes_of, path_of};
use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use plan::bind::{AccessLevel, Bind, BindAddress, SeverityOutput, Shards};
use plan::global::UnixBind;
use plan::quic::QmuxUse;
use runtime::placement::Placement;
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::row::{Lenient, Outcome, not_supported};
use crate::surface;
use crate::system::{group_id, resolve_host, user_id};
use crate::tables::bind_quic;
use crate::tables::bind_row::{BindKeyword, row};
use crate::tables::global::octal;
use crate::tables::threads::thread_set;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[BindKeyword] = &[
    // name arguments description setting
    row("accept-netscaler-cip", "<magic>",   "expects a NetScaler Client IP header on each connection", |d, a| { d.netscaler_magic = Some(a.integer("the magic number", 1, u32::MAX)?); Ok(()) }),
    row("accept-proxy",     "",              "expects a PROXY protocol header on each connection", |d, _| { d.accept_proxy = true; Ok(()) }),
    row("backlog",          "<backlog>",     "length of the accept queue",                       |d, a| number(&mut d.backlog, a, 0, u32::MAX)),
    row("cc",               "<algorithm>",   "TCP congestion control algorithm",                 |d, a| text(&mut d.congestion, a)),
    row("defer-accept",     "",              "accepts a connection only once data has arrived",  |d, _| { d.defer_accept = true; Ok(()) }),
    row("expose-fd",        "listeners",     "passes the listening sockets to a new process",    expose_fd),
    row("gid",              "<gid>",         "group of a UNIX socket, by ID",                    |d, a| some(&mut d.gid, a)),
    row("group",            "<group>",       "group of a UNIX socket",                           group),
    row("guid-prefix",      "<string>",      "prefix of generated globally unique identifiers",  |d, a| { let word = a.value()?; a.check_guid(word)?; d.guid_prefix = Some(word); Ok(()) }),
    row("id",               "<id>",          "numeric identifier in the statistics",             id),
    row("idle-ping",        "<delay>",       "interval between PING frames to idle HTTP/2 clients", |d, a| { d.idle_ping = a.idle_ping()?; Ok(()) }),
    row("interface",        "<interface>",   "accepts connections from this interface only",     |d, a| text(&mut d.interface, a)),
    row("label",            "<label>",       "name of a socket that is passed to a new process", |_, a| a.value().map(|_| ())).without_effect("sockets are identified by address"),
    row("level",            "{ user | operator | admin }", "permission level of a command socket", level),
    row("maxconn",          "<maxconn>",     "maximum number of concurrent connections",         |d, a| number(&mut d.maxconn, a, 0, u32::MAX)),
    row("mode",             "<mode>",        "permissions of a UNIX socket, in octal",           mode),
    row("mss",              "<maxseg>",      "TCP maximum segment size",                         mss),
    row("name",             "<name>",        "name in the statistics",                           |d, a| text(&mut d.name, a)),
    row("namespace",        "<name>",        "network namespace to listen in",                   |d, a| { d.namespace = Some(a.namespace()?); Ok(()) }),
    row("nbconn",           "<nbconn>",      "number of connections that a reverse HTTP listener keeps open", nbconn),
    row("nice",             "<nice>",        "priority of the tasks that serve its connections", |_, a| { let word = a.value()?; a.number(word, -1024, 1024).map(|_| ()) }).without_effect("a worker schedules its tasks round-robin"),
    row("process",          "<sets>",        "removed: use `thread`",                            process),
    row("proto",            "<name>",        "protocol to speak",                                proto).partial("`fcgi` and `spop` are not supported yet"),
    row("severity-output",  "{ none | number | string }", "severity prefix of answers on a command socket", severity_output),
    row("shards",           "{ <number> | by-thread | by-group }", "number of sockets opened for the same address", shards),
    row("tcp-ss",           "{ 1 | 2 }",     "saves the SYN of each connection; 2 includes its Ethernet header", |d, a| { d.save_syn = Some(a.integer("1 or 2", 1, 2)?); Ok(()) }),
    row("tcp-md5sig",       "<key>",         "key that signs TCP segments (RFC 2385)",           |d, a| text(&mut d.md5sig, a)),
    row("tcp-ut",           "<delay>",       "maximum time for which sent data may stay unacknowledged", |d, a| { let word = a.value()?; d.tcp_ut = Some(a.time(word, Milliseconds)?); Ok(()) }),
    row("tfo",              "",              "accepts data in the SYN (TCP Fast Open)",          |d, _| { d.tfo = true; Ok(()) }),
    row("thread",           "[<group>/]<set>[,...]", "threads that accept connections",          thread),
    row("transparent",      "",              "accepts connections to addresses that are not local", |d, _| { d.transparent = true; Ok(()) }),
    row("uid",              "<uid>",         "owner of a UNIX socket, by ID",                    |d, a| some(&mut d.uid, a)),
    row("user",             "<user>",        "owner of a UNIX socket",                           user),
    row("v4v6",             "",              "also accepts IPv4 connections on `::`",            |d, _| { d.v6only = Some(false); Ok(()) }),
    row("v6only",           "",              "accepts IPv6 connections only",                    |d, _| { d.v6only = Some(true); Ok(()) }),
];

/// The parameters of reverse HTTP listeners, which have no listening socket.
const OF_REVERSE: &[&str] = &["guid-prefix", "id", "idle-ping", "label", "name", "nbconn", "thread"];

/// Every parameter: those of this file and those about QUIC and TLS.
pub fn rows() -> impl Iterator<Item = &'static BindKeyword> {
    TABLE.iter().chain(bind_quic::TABLE).chain(super::tls::BIND)
}

/// Parses the remaining parameters in `args`; `title` is `bind :80`, for messages.
pub fn parse_params<'a>(
    args: &mut Args<'a, '_>,
    title: &str,
    section: &str,
) -> Result<BindDraft<'a>, Diagnostic> {
    let mut draft = BindDraft::default();
    parse_more(&mut draft, args, title, section)?;
    Ok(draft)
}

/// Parses the remaining parameters in `args` into an existing `draft`.
pub fn parse_more<'a>(
    draft: &mut BindDraft<'a>,
    args: &mut Args<'a, '_>,
    title: &str,
    section: &str,
) -> Outcome {
    args.lenient = Lenient::NUMBERS;
    while let Some(word) = args.next() {
        let Some(row) = rows().find(|row| word == row.name) else {
            return Err(unknown(word, title, section));
        };
        args.parameter = Some(row.name);
        if !OF_REVERSE.contains(&row.name) {
            draft.of_sockets = draft.of_sockets.or(Some(row.name));
        }
        (row.apply)(draft, args).map_err(|mut error| {
            if let Some(text) = error.haproxy.take() {
                error.haproxy = Some(format!("'{title}' in section '{section}': {text}"));
            }
            error
        })?;
        args.parameter = None;
        args.warn_without_effect(word, row.support);
    }
    Ok(())
}

fn unknown(word: &Word, title: &str, section: &str) -> Diagnostic {
    if surface::is_bind_keyword(word) {
        return not_supported(&format!("{word} (on a bind line)"))
            .at(word.span())
            .haproxy(format!("'{title}' in section '{section}': '{word}' is not supported yet"));
    }
    let mut known: Vec<&str> = rows().map(|row| row.name).chain(surface::bind_keywords()).collect();
    known.sort_unstable();
    let near = diag::suggest(word, known);
    let tail = near.map_or(String::new(), |near| format!("; did you mean '{near}' maybe ?"));
    Diagnostic::alert(format!("unknown parameter `{word}` on a `bind` line"))
        .at(word.span())
        .did_you_mean(near)
        .haproxy(format!("'{title}' in section '{section}': unknown keyword '{word}'{tail}"))
}

fn text<'a>(value: &mut Option<&'a str>, args: &mut Args<'a, '_>) -> Outcome {
    *value = Some(args.value()?);
    Ok(())
}

fn number(value: &mut u32, args: &mut Args<'_, '_>, low: u32, high: u32) -> Outcome {
    let word = args.value()?;
    *value = args.number(word, low, high)?;
    Ok(())
}

fn some(value: &mut Option<u32>, args: &mut Args<'_, '_>) -> Outcome {
    let word = args.value()?;
    *value = Some(args.number(word, 0, u32::MAX)?);
    Ok(())
}

fn process<'a>(_: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    Err(args.wrong("`process` was removed from `bind` lines: use `thread` instead").haproxy(format!(
        "'process {word}' on 'bind' lines is not supported anymore, please use 'thread' instead."
    )))
}

fn id<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.id = Some(args.number(word, 1, i32::MAX as u32)?);
    Ok(())
}

fn mss<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    let size: i32 = args.number(word, -65_535, 65_535)?;
    if size == 0 {
        return Err(args
            .wrong("`mss` must not be zero")
            .haproxy("'mss' : expects an MSS with an absolute value between 1 and 65535"));
    }
    draft.mss = Some(size);
    Ok(())
}

fn mode<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.mode = Some(octal(word, args)?);
    Ok(())
}

fn user<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.value()?;
    draft.uid = Some(user_id(name).ok_or_else(|| {
        args.wrong(format!("there is no user `{name}`"))
            .haproxy(format!("'user' : unknown user name '{name}'"))
    })?);
    Ok(())
}

fn group<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.value()?;
    draft.gid = Some(group_id(name).ok_or_else(|| {
        args.wrong(format!("unknown group `{name}`"))
            .haproxy(format!("'group' : unknown group name '{name}'"))
    })?);
    Ok(())
}

fn expose_fd<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.expose_fds = args.choice(word, &[("listeners", true)])?;
    Ok(())
}

fn nbconn<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.last();
    let word = args.value().map_err(|error| error.haproxy("'nbconn' : missing value."))?;
    // As with `atol`, text that is not a number is 0.
    let count = args.number::<i64>(word, i64::MIN, i64::MAX)?;
    let Some(count) = u32::try_from(count).ok().filter(|count| *count > 0) else {
        return Err(args
            .wrong(format!("`nbconn` must be greater than 0, not {count}"))
            .haproxy(format!("'nbconn' : invalid value {count}, must be > 0.")));
    };
    draft.nbconn = Some((count, name));
    Ok(())
}

fn level<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.level = args.choice(
        word,
        &[("user", AccessLevel::User), ("operator", AccessLevel::Operator), ("admin", AccessLevel::Admin)],
    )?;
    Ok(())
}

fn severity_output<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.severity_output = args.choice(
        word,
        &[
            ("none", SeverityOutput::None),
            ("number", SeverityOutput::Number),
            ("string", SeverityOutput::String),
        ],
    )?;
    Ok(())
}

fn shards<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.shards = Some(match word.as_str() {
        "by-group" => Shards::ByGroup,
        "by-thread" => Shards::ByThread,
        _ => Shards::Count(args.number(word, 1, 1024)?),
    });
    Ok(())
}

fn thread<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.threads.clear();
    for part in word.split(',') {
        draft.threads.push(thread_set(word, part)?);
    }
    Ok(())
}

fn proto<'a>(draft: &mut BindDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    match word.as_str() {
        "h1" => {
            draft.http1_alone = true;
            Ok(())
        }
        "h2" => {
            draft.speaks_h2 = true;
            Ok(())
        }
        "none" => {
            draft.stays_raw = true;
            Ok(())
        }
        "quic" => {
            draft.speaks_quic = Some(word);
            Ok(())
        }
        "qmux" => {
            draft.speaks_qmux = Some(word);
            Ok(())
        }
        "fcgi" | "spop" => Err(not_supported(&format!("proto {word}")).at(word.span())),
        other => Err(args
            .wrong(format!("unknown protocol `{other}`"))
            .haproxy(format!("'proto' :  unknown MUX protocol '{other}'"))),
    }
}

/// Parses a comma-separated list of addresses into one entry per port.
pub fn parse_addresses(
    word: &Word,
    args: &Args<'_, '_>,
    unix: &UnixBind,
) -> Result<Vec<(BindAddress, String)>, Diagnostic> {
    let mut all = Vec::new();
    let mut offset = 0;
    // HAProxy ignores a trailing comma.
    let list = word.strip_suffix(',').filter(|list| !list.is_empty()).unwrap_or(word);
    for part in list.split(',') {
        one_address(word, offset, part, args, unix, &mut all)?;
        offset += part.len() + 1;
    }
    Ok(all)
}

fn one_address(
    word: &Word,
    offset: usize,
    part: &str,
    args: &Args<'_, '_>,
    unix: &UnixBind,
    all: &mut Vec<(BindAddress, String)>,
) -> Outcome {
    let accepts = Accepts { port: PortRule::Required, range: true, offset: false };
    let address = args.address_in(word, offset, part, accepts)?;
    let span = word.part(offset, offset + part.len());
    let is_quic = match address.transport {
        Transport::Datagram => return Err(Diagnostic::alert("`bind` needs a stream socket").at(span)),
        Transport::Quic => true,
        Transport::Default | Transport::Stream | Transport::Mptcp => false,
    };
    if is_quic && !matches!(address.place, Destination::Ip { .. } | Destination::Fd(_)) {
        return Err(Diagnostic::alert(format!("QUIC needs an IP address, not `{part}`")).at(span));
    }
    match &address.place {
        Destination::Ip { host, ports } => {
            let ip = resolve_host(host)
                .map_err(|error| Diagnostic::alert(format!("cannot resolve `{part}`: {error}")).at(span))?;
            for port in ports.iter() {
                let socket = std::net::SocketAddr::new(ip, port);
                let address = if is_quic { BindAddress::Quic(socket) } else { BindAddress::Ip(socket) };
                all.push((address, socket.to_string()));
            }
        }
        Destination::Unix(path) => {
            let full = format!("{}{path}", unix.prefix.as_deref().unwrap_or(""));
            all.push((BindAddress::Unix(path_of(&full).into()), format!("unix@{full}")));
        }
        Destination::Abns(name) => {
            let name_bytes = bytes_of(name).into_owned();
            all.push((BindAddress::Abstract { name: name_bytes, padded: true }, format!("abns@{name}")));
        }
        Destination::Abnsz(name) => {
            let name_bytes = bytes_of(name).into_owned();
            all.push((BindAddress::Abstract { name: name_bytes, padded: false }, format!("abnsz@{name}")));
        }
        Destination::Fd(number) => all.push(if is_quic {
            (BindAddress::InheritedQuic(*number), format!("quic+fd@{number}"))
        } else {
            (BindAddress::Inherited(*number), format!("fd@{number}"))
        }),
        Destination::SockPair(number) => {
            all.push((BindAddress::SocketPair(*number), format!("sockpair@{number}")))
        }
        Destination::ReverseHttp(_) => {
            return Err(Diagnostic::alert("`rhttp@` is allowed only on `bind` lines of frontends").at(span));
        }
    }
    Ok(())
}

/// Creates the socket of one address.
///
/// # Errors
/// None of the named threads exists.
///
/// The caller sets [`Bind::place`] and [`Bind::quic`].
pub fn make(
    draft: &BindDraft<'_>,
    address: BindAddress,
    shown: String,
    id: u32,
    unix: &UnixBind,
    placement: &Placement,
    tls: Option<Arc<tls::Acceptor>>,
) -> Result<Bind, String> {
    let workers = placement.select(&draft.threads);
    if workers.is_empty() {
        let count = placement.workers();
        return Err(format!("`thread` selects none of the {count} threads"));
    }
    let name = draft.name.map_or_else(|| format!("sock-{id}"), str::to_owned);
    let is_unix = matches!(address, BindAddress::Unix(_));
    let or = |own: Option<u32>, common: Option<u32>| if is_unix { own.or(common) } else { own };
    let maxconn = match &address {
        BindAddress::Reverse(target) => target.connections,
        _ => draft.maxconn,
    };
    Ok(Bind {
        address,
        place: Box::default(),
        listener: Arc::new(state::Listener::new(id, name.into(), shown.into(), maxconn)),
        accept_proxy: draft.accept_proxy,
        netscaler_magic: draft.netscaler_magic,
        stays_raw: draft.stays_raw,
        speaks_h2: draft.speaks_h2,
        qmux: QmuxUse::Never,
        http1_alone: draft.http1_alone,
        idle_ping: draft.idle_ping,
        save_syn: draft.save_syn,
        tcp_ut: draft.tcp_ut,
        tfo: draft.tfo,
        md5sig: draft.md5sig.map(Into::into),
        mss: draft.mss,
        defer_accept: draft.defer_accept,
        transparent: draft.transparent,
        v6only: draft.v6only,
        interface: draft.interface.map(Into::into),
        namespace: draft.namespace.map(Into::into),
        backlog: draft.backlog,
        mode: or(draft.mode, unix.mode),
        uid: or(draft.uid, unix.uid),
        gid: or(draft.gid, unix.gid),
        level: draft.level,
        expose_fds: draft.expose_fds,
        congestion: draft.congestion.map(Into::into),
        shards: draft.shards,
        workers,
        severity_output: draft.severity_output,
        tls,
        quic: None,
    })
}
