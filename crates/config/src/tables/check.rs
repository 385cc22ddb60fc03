//! `http-check`, `tcp-check` and `external-check` (manual, section 4.2): the requests and expectations of health checks. Lines
//! become drafts here; `expect` lines are parsed in [`super::check_expect`].

use crate::tables::check_words::{hexadecimal, push, value};
use std::net::IpAddr;
use std::rc::Rc;

use base::address::{Accepts, Destination, PortRule};
use diag::Diagnostic;
use plan::check::Protocol;

use super::check_expect::{http_expect, tcp_expect};
use crate::draft::args::Args;
use crate::draft::check::{
    ActionDraft, ConnectDraft, PlacedText, PortDraft, RequestDraft, RuleDraft, ValueDraft,
};
use crate::draft::keyword::{Keyword, proxy};
use crate::draft::row::places::{DLB, DLBH};
use crate::draft::row::{Outcome, Where};
use crate::draft::settings::{CheckMode, ProxySettings};
use crate::system::resolve_host;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    // name where arguments description setting
    proxy("http-check comment",       DLBH, "<string>",          "describes the steps that follow",                   comment).or_udp(),
    proxy("http-check connect",       DLBH, CONNECT,             "opens a connection",                                connect).or_udp(),
    proxy("http-check disable-on-404", DLBH, "",                 "a 404 drains a server instead of taking it down",   |s, a| { Rc::make_mut(&mut s.check).disable_on_404 = true; a.finish() }).or_udp(),
    proxy("http-check expect",        DLBH, EXPECT_HTTP,         "matches the response of a check",                   http_expect).or_udp(),
    proxy("http-check send",          DLBH, "[meth <method>] [{ uri <uri> | uri-lf <fmt> }] [ver <version>] [hdr <name> <fmt>]* [{ body <string> | body-lf <fmt> }] [comment <msg>]", "defines the request of a check", http_send).or_udp(),
    proxy("http-check send-state",    DLBH, "",                  "reports their state to servers in a header",        |s, a| { Rc::make_mut(&mut s.check).send_state = true; a.finish() }).or_udp(),
    proxy("http-check set-var",       DLBH, "(<var>[,<cond>...]) <expr>", "sets a variable",                          set_var).or_udp(),
    proxy("http-check set-var-fmt",   DLBH, "(<var>[,<cond>...]) <fmt>", "sets a variable from a format string",      set_var_fmt).or_udp(),
    proxy("http-check unset-var",     DLBH, "(<var>)",           "unsets a variable",                                 unset_var).or_udp(),
    proxy("tcp-check comment",        DLBH, "<string>",          "describes the steps that follow",                   comment).or_udp(),
    proxy("tcp-check connect",        DLBH, CONNECT,             "opens a connection",                                connect).or_udp(),
    proxy("tcp-check expect",         DLBH, EXPECT_TCP,          "waits for text or bytes",                           tcp_expect).or_udp(),
    proxy("tcp-check send",           DLBH, "<data> [comment <msg>]", "sends text",                                   |s, a| tcp_send(s, a, |word, _| Ok(ActionDraft::Send(word.bytes().into())))).or_udp(),
    proxy("tcp-check send-lf",        DLBH, "<fmt> [comment <msg>]", "sends a format string",                         |s, a| tcp_send(s, a, |word, _| Ok(ActionDraft::SendFormat(word.into())))).or_udp(),
    proxy("tcp-check send-binary",    DLBH, "<hexstring> [comment <msg>]", "sends bytes",                             |s, a| tcp_send(s, a, |word, args| Ok(ActionDraft::Send(hexadecimal(word, args)?)))).or_udp(),
    proxy("tcp-check send-binary-lf", DLBH, "<hexfmt> [comment <msg>]", "sends bytes from a format string",           |s, a| tcp_send(s, a, |word, _| Ok(ActionDraft::SendHex(word.into())))).or_udp(),
    proxy("tcp-check set-var",        DLBH, "(<var>[,<cond>...]) <expr>", "sets a variable",                          set_var).or_udp(),
    proxy("tcp-check set-var-fmt",    DLBH, "(<var>[,<cond>...]) <fmt>", "sets a variable from a format string",      set_var_fmt).or_udp(),
    proxy("tcp-check unset-var",      DLBH, "(<var>)",           "unsets a variable",                                 unset_var).or_udp(),
    proxy("udp-check comment",        UDP,  "<string>",          "describes the steps that follow",                   comment),
    proxy("udp-check expect",         UDP,  EXPECT_TCP,          "waits for text or bytes",                           tcp_expect),
    proxy("udp-check send",           UDP,  "<data> [comment <msg>]", "sends text in a datagram",                     |s, a| tcp_send(s, a, |word, _| Ok(ActionDraft::Send(word.bytes().into())))),
    proxy("udp-check send-lf",        UDP,  "<fmt> [comment <msg>]", "sends a format string in a datagram",           |s, a| tcp_send(s, a, |word, _| Ok(ActionDraft::SendFormat(word.into())))),
    proxy("udp-check send-binary",    UDP,  "<hexstring> [comment <msg>]", "sends bytes in a datagram",               |s, a| tcp_send(s, a, |word, args| Ok(ActionDraft::Send(hexadecimal(word, args)?)))),
    proxy("udp-check send-binary-lf", UDP,  "<hexfmt> [comment <msg>]", "sends bytes from a format string in a datagram", |s, a| tcp_send(s, a, |word, _| Ok(ActionDraft::SendHex(word.into())))),
    proxy("option udp-check",         UDP,  "",                  "checks servers with datagrams, as udp-check rules define", |s, a| { a.finish()?; s.own_check().choose(CheckMode::Udp); Ok(()) }),
    proxy("external-check command",   DLB,  "<command>",         "program that checks servers",                       |s, a| { s.own_check().command = Some(a.required("<command>")?); a.finish() }).or_udp(),
    proxy("external-check path",      DLB,  "<path>",            "`PATH` of that program",                            |s, a| { s.own_check().path = Some(a.required("<path>")?); a.finish() }).or_udp(),
    proxy("option external-check",    DLB,  "",                  "checks servers with an external program",           external).or_udp(),
];

const UDP: Where = Where::B.or(Where::UDP_LB);

const CONNECT: &str = "[default] [port <expr>] [addr <ip>] [send-proxy] [via-socks4] [ssl] [sni <sni>] [alpn <alpn>] [linger] [proto <name>] [comment <msg>]";
const EXPECT_HTTP: &str = "[min-recv <int>] [comment <msg>] [ok-status <st>] [error-status <st>] [tout-status <st>] [on-success <fmt>] [on-error <fmt>] [status-code <expr>] [!] { status | rstatus | hdr | fhdr | string | rstring | string-lf } <pattern>";
const EXPECT_TCP: &str = "[min-recv <int>] [comment <msg>] [ok-status <st>] [error-status <st>] [tout-status <st>] [on-success <fmt>] [on-error <fmt>] [status-code <expr>] [!] { string | rstring | string-lf | binary | rbinary | binary-lf } <pattern>";

fn comment<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let text = args.required("a string")?;
    args.finish()?;
    push(settings, ActionDraft::Comment(text).into(), args)
}

fn connect<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let mut draft = ConnectDraft::default();
    let mut comment = None;
    while let Some(word) = args.next() {
        match word.as_str() {
            "default" => draft.default = true,
            "port" => draft.port = Some(port(args)?),
            "addr" => draft.address = Some(address(args)?),
            "send-proxy" => draft.send_proxy = true,
            "via-socks4" => draft.via_socks4 = true,
            "linger" => draft.linger = true,
            "comment" => comment = Some(value(args)?.as_str()),
            "proto" => {
                draft.protocol = Some(protocol(args)?);
            }
            "ssl" => draft.secure = true,
            "sni" => draft.name = Some(value(args)?.as_str()),
            "alpn" => draft.alpn = Some(protocols(args)?),
            other => {
                const KNOWN: [&str; 11] = [
                    "comment",
                    "port",
                    "addr",
                    "send-proxy",
                    "via-socks4",
                    "linger",
                    "default",
                    "proto",
                    "ssl",
                    "sni",
                    "alpn",
                ];
                return Err(args
                    .wrong(format!("unknown argument `{other}` for `{}`",                                             args.keyword()))
                    .did_you_mean(diag::suggest(other, KNOWN))
                    .haproxy(format!(
                        "'{}' : expects 'comment', 'port', 'addr', 'send-proxy', 'via-socks4', 'linger', 'default' or 'proto' but got '{other}' as argument.",
                        args.keyword()
                    )));
            }
        }
    }
    push(settings, RuleDraft { comment, ..ActionDraft::Connect(draft).into() }, args)
}

/// The protocol named by `proto`: one that carries HTTP messages for `http-check`, any other for `tcp-check`.
fn protocol(args: &mut Args<'_, '_>) -> Result<Protocol, Diagnostic> {
    let word = value(args)?;
    let (keyword, wanted) = (args.keyword(), args.statement.words[0].as_str());
    let known = Protocol::ALL.iter().find(|(name, _)| *word == **name).map(|(_, protocol)| *protocol);
    let is_http = match (word.as_str(), known) {
        // Agents have a separate kind of check.
        (_, Some(Protocol::Spop)) => wanted != "http-check",
        (_, Some(protocol)) => protocol.is_http(),
        _ => {
            return Err(args
                .wrong(format!("unknown protocol `{word}`"))
                .did_you_mean(diag::suggest(word, Protocol::ALL.iter().map(|(name, _)| *name)))
                .haproxy(format!("'{keyword}' : 'proto' : unknown MUX protocol '{word}'.")));
        }
    };
    if is_http != (wanted == "http-check") {
        return Err(args
            .wrong(format!("`{wanted}` cannot use `{word}`"))
            .haproxy(format!("'{keyword}' : 'proto' : invalid MUX protocol '{word}' for {wanted}.")));
    }
    known.ok_or_else(|| args.unsupported())
}

/// Parses the protocols of `alpn`.
fn protocols(args: &mut Args<'_, '_>) -> Result<Vec<Box<[u8]>>, Diagnostic> {
    let word = value(args)?;
    ::tls::files::protocols(word).map_err(|error| args.wrong("an empty list of protocols").haproxy(error))
}

fn port<'a>(args: &mut Args<'a, '_>) -> Result<PortDraft<'a>, Diagnostic> {
    let word = value(args)?;
    if !word.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(PortDraft::Expression(word.into()));
    }
    word.parse().ok().filter(|port| *port > 0).map(PortDraft::Fixed).ok_or_else(|| {
        args.wrong(format!("invalid port `{word}`")).label("use 1 to 65535, or a sample expression").haproxy(
            format!(
                "'{}' : expects a valid TCP port (from range 1 to 65535) or a sample expression, got {word}.",
                args.keyword()
            ),
        )
    })
}

fn address(args: &mut Args<'_, '_>) -> Result<(IpAddr, Option<u16>), Diagnostic> {
    let word = value(args)?;
    let address = args.address(word, Accepts { port: PortRule::Optional, range: false, offset: false })?;
    let Destination::Ip { host, ports } = &address.place else { return Err(args.unsupported()) };
    let ip = resolve_host(host).map_err(|error| args.wrong(format!("cannot resolve `{word}`: {error}")))?;
    Ok((ip, ports.iter().next()))
}

fn http_send<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    const KNOWN: [&str; 8] = ["meth", "uri", "uri-lf", "ver", "hdr", "body", "body-lf", "comment"];
    let mut request = RequestDraft::default();
    let mut comment = None;
    while let Some(word) = args.next() {
        match word.as_str() {
            "meth" => request.method = Some(value(args)?),
            "uri" => request.uri = Some(ValueDraft::Fixed(value(args)?)),
            "uri-lf" => request.uri = Some(ValueDraft::Format(value(args)?.into())),
            "ver" => request.version = Some(value(args)?),
            "hdr" => {
                let name = value(args)?;
                let value = args.required("<name> and <value>")?;
                // The length is computed from the body.
                if !["content-length", "transfer-encoding"].iter().any(|own| name.eq_ignore_ascii_case(own)) {
                    request.headers.push((name, value.into()));
                }
            }
            "body" => request.body = Some(ValueDraft::Fixed(value(args)?)),
            "body-lf" => request.body = Some(ValueDraft::Format(value(args)?.into())),
            "comment" => comment = Some(value(args)?.as_str()),
            other => {
                return Err(args
                    .wrong(format!("unknown argument `{other}` for `http-check send`"))
                    .did_you_mean(diag::suggest(other, KNOWN))
                    .haproxy(format!("'http-check send' : expects 'comment', 'meth', 'uri', 'uri-lf', 'ver', 'hdr', 'body' or 'body-lf' but got '{other}' as argument.")));
            }
        }
    }
    push(settings, RuleDraft { comment, ..ActionDraft::Request(request).into() }, args)
}

type Sent = for<'a> fn(&'a syntax::Word, &Args<'a, '_>) -> Result<ActionDraft<'a>, Diagnostic>;

fn tcp_send<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>, what: Sent) -> Outcome {
    let word = args.required("a string")?;
    let action = what(word, args)?;
    let comment = if args.take("comment") { Some(value(args)?.as_str()) } else { None };
    args.finish()?;
    push(settings, RuleDraft { comment, ..action.into() }, args)
}

/// The text in the parentheses of the keyword.
fn parenthesised<'a>(args: &Args<'a, '_>) -> Result<PlacedText<'a>, Diagnostic> {
    let word = args.last();
    let open = word.find('(').map(|open| open + 1);
    let inner = open.and_then(|open| Some((open, word.as_str()[open..].strip_suffix(')')?)));
    match inner {
        Some((start, text)) if !text.is_empty() => {
            Ok(PlacedText { text, span: word.part(start, start + text.len()) })
        }
        _ => Err(Diagnostic::alert(format!("`{}` needs a variable in parentheses", args.keyword()))
            .at(word.span())
            .label("such as `set-var(check.port)`")),
    }
}

fn set_var<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = parenthesised(args)?;
    if args.peek().is_none() {
        args.required("an expression")?;
    }
    let words = args.rest();
    push(settings, ActionDraft::SetVar(name, words).into(), args)
}

fn set_var_fmt<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = parenthesised(args)?;
    let format = args.required("a format")?;
    args.finish()?;
    push(settings, ActionDraft::SetVarFormat(name, format.into()).into(), args)
}

fn unset_var<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = parenthesised(args)?;
    args.finish()?;
    push(settings, ActionDraft::UnsetVar(name).into(), args)
}

fn external<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    args.finish()?;
    settings.own_check().choose(CheckMode::External);
    Ok(())
}
