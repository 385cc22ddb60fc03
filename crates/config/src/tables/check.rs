//! `http-check` and `tcp-check` (manual, section 4.2): what health checks send and expect.

use std::rc::Rc;

use diag::Diagnostic;
use regex::bytes::{Regex, RegexBuilder};
use syntax::Word;

use crate::args::Args;
use crate::keyword::places::DLB;
use crate::keyword::{Keyword, Outcome, not_supported, proxy, unsupported};
use crate::plan::server::{CheckStep, ExpectBytes, HttpExpect, HttpExpectWhat};
use crate::settings::Settings;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    //    name                        where  arguments           what it does                                        setting
    proxy("http-check disable-on-404", DLB, "",                 "a 404 takes a server out gently",                   |s, a| { Rc::make_mut(&mut s.check).disable_on_404 = true; a.finish() }),
    proxy("http-check send-state",    DLB, "",                  "tells servers their state",                         |s, a| { Rc::make_mut(&mut s.check).send_state = true; a.finish() }),
    proxy("http-check send",          DLB, "[meth <method>] [uri <uri>] [ver <version>] [hdr <name> <value>]* [body <string>] [comment <msg>]", "what a check asks", http_send),
    proxy("http-check expect",        DLB, "[!] { status | rstatus | string | rstring } <pattern>", "what a check's answer must be", http_expect),
    proxy("http-check comment",       DLB, "<string>",          "names the next step",                               |_, a| { a.required("a comment")?; a.finish() }),
    proxy("tcp-check comment",        DLB, "<string>",          "names the next step",                               tcp_comment),
    proxy("tcp-check connect",        DLB, "[default] [port <port>] [send-proxy]", "opens a connection",             tcp_connect),
    proxy("tcp-check send",           DLB, "<data> [comment <msg>]", "sends text",                                   tcp_send),
    proxy("tcp-check send-binary",    DLB, "<hexstring> [comment <msg>]", "sends bytes",                             tcp_send_binary),
    proxy("tcp-check expect",         DLB, "[min-recv <int>] [!] { string | rstring | binary | rbinary } <pattern>", "waits for text or bytes", tcp_expect),
    unsupported("http-check connect",     DLB),
    unsupported("http-check set-var",     DLB),
    unsupported("http-check unset-var",   DLB),
    unsupported("tcp-check send-binary-lf", DLB),
    unsupported("tcp-check send-lf",      DLB),
    unsupported("tcp-check set-var",      DLB),
    unsupported("tcp-check unset-var",    DLB),
];

fn http_send<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let check = settings.own_check();
    while let Some(word) = args.next() {
        match word.as_str() {
            "meth" => check.method = Some(args.value()?),
            "uri" => check.uri = Some(args.value()?),
            "ver" => check.version = Some(args.value()?.as_str().to_owned()),
            "hdr" => {
                let (name, value) = (args.value()?, args.required("the value of the header")?);
                constant(value)?;
                check.headers.push((name.as_str().into(), value.as_str().into()));
            }
            "body" => check.body = args.value()?.bytes().into(),
            "comment" => {
                args.value()?;
            }
            "uri-lf" | "body-lf" => return Err(args.unsupported()),
            other => {
                let near = diag::suggest(
                    other,
                    ["meth", "uri", "uri-lf", "ver", "hdr", "body", "body-lf", "comment"],
                );
                return Err(args
                    .wrong(format!("`http-check send` does not know `{other}`"))
                    .did_you_mean(near)
                    .haproxy(format!("'http-check send' : expects 'meth', 'uri', 'uri-lf', 'ver', 'hdr', 'body', 'body-lf' or 'comment' but got '{other}' as argument.")));
            }
        }
    }
    Ok(())
}

/// Values with `%` are formats, which checks do not evaluate yet; `%%` is a percent sign.
fn constant(word: &Word) -> Outcome {
    match word.replace("%%", "").contains('%') {
        true => Err(not_supported("a format in a check").at(word.span())),
        false => Ok(()),
    }
}

/// What comes before the match of both kinds of `expect`.
struct Expectation {
    negate: bool,
    min_recv: Option<usize>,
}

fn expectation<'a>(args: &mut Args<'a, '_>) -> Result<(Expectation, &'a str), Diagnostic> {
    let mut expectation = Expectation { negate: false, min_recv: None };
    loop {
        let word = args.required("a match")?;
        match word.as_str() {
            "!" => expectation.negate = !expectation.negate,
            "min-recv" => expectation.min_recv = Some(args.integer("a number of bytes", 0, 65_535)?),
            "comment" => {
                args.value()?;
            }
            "ok-status" | "error-status" | "tout-status" | "on-success" | "on-error" | "status-code" => {
                return Err(args.unsupported());
            }
            other => {
                // The mark may be glued to the match.
                let bare = other.strip_prefix('!');
                expectation.negate ^= bare.is_some();
                return Ok((expectation, bare.unwrap_or(other)));
            }
        }
    }
}

fn http_expect<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let (expectation, kind) = expectation(args)?;
    let what = match kind {
        "status" => HttpExpectWhat::Status(statuses(args)?),
        "rstatus" => HttpExpectWhat::StatusRegex(regex(args)?),
        "string" => HttpExpectWhat::Body(args.value()?.bytes().into()),
        "rstring" => HttpExpectWhat::BodyRegex(regex(args)?),
        "hdr" | "fhdr" | "string-lf" => return Err(args.unsupported()),
        other => {
            return Err(args
                .wrong(format!("`http-check expect` does not know `{other}`"))
                .did_you_mean(diag::suggest(other, ["status", "rstatus", "string", "rstring", "hdr", "fhdr"]))
                .haproxy(format!("'http-check expect' : only supports min-recv, [!]string', '[!]rstring', '[!]string-lf', '[!]status', '[!]rstatus', [!]hdr, [!]fhdr or comment but got '{other}' as argument.")));
        }
    };
    settings.own_check().expect.push(HttpExpect { negate: expectation.negate, what });
    trailing_comment(args)
}

fn statuses(args: &mut Args<'_, '_>) -> Result<Vec<(u16, u16)>, Diagnostic> {
    let word = args.value()?;
    let range = |text: &str| {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let (low, high): (u16, u16) = (low.parse().ok()?, high.parse().ok()?);
        ((100..1000).contains(&low) && low <= high && high < 1000).then_some((low, high))
    };
    word.split(',').map(range).collect::<Option<Vec<_>>>().ok_or_else(|| {
        args.wrong(format!("`{word}` is no list of statuses"))
            .label("such as `200`, `200-399` or `200,301-302`")
            .haproxy("'http-check expect' : invalid status code or range of status codes.")
    })
}

fn regex(args: &mut Args<'_, '_>) -> Result<Regex, Diagnostic> {
    let word = args.value()?;
    RegexBuilder::new(word).unicode(false).build().map_err(|error| {
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or("").trim_start_matches("error: ").to_owned();
        args.wrong(format!("`{word}` is no regular expression: {reason}"))
    })
}

fn step<'a>(settings: &mut Settings<'a>, step: CheckStep) {
    settings.own_check().steps.push(step);
}

/// `comment <msg>` at the end of a line.
fn trailing_comment(args: &mut Args<'_, '_>) -> Outcome {
    if args.take("comment") {
        args.value()?;
    }
    args.finish()
}

fn tcp_comment<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let text = args.required("a comment")?;
    step(settings, CheckStep::Comment(text.as_str().into()));
    args.finish()
}

fn tcp_connect<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let (mut port, mut send_proxy) = (None, false);
    while let Some(word) = args.next() {
        match word.as_str() {
            "default" | "linger" => {}
            "port" => port = Some(args.integer("a port", 1, 65_535)?),
            "send-proxy" => send_proxy = true,
            "comment" => {
                args.value()?;
            }
            "addr" | "via-socks4" | "ssl" | "sni" | "alpn" | "proto" => return Err(args.unsupported()),
            other => {
                let near =
                    diag::suggest(other, ["default", "port", "addr", "send-proxy", "comment", "linger"]);
                return Err(args
                    .wrong(format!("`tcp-check connect` does not know `{other}`"))
                    .did_you_mean(near));
            }
        }
    }
    step(settings, CheckStep::Connect { port, send_proxy });
    Ok(())
}

fn tcp_send<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let data = args.required("<STRING>")?;
    step(settings, CheckStep::Send(data.bytes().into()));
    trailing_comment(args)
}

fn tcp_send_binary<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let data = hexadecimal(args)?;
    step(settings, CheckStep::Send(data));
    trailing_comment(args)
}

fn hexadecimal(args: &mut Args<'_, '_>) -> Result<Box<[u8]>, Diagnostic> {
    let word = args.required("<BINARY STRING>")?;
    let digits: Option<Vec<u8>> =
        word.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits
        .filter(|digits| digits.len() % 2 == 0)
        .ok_or_else(|| args.wrong(format!("`{word}` is not an even number of hexadecimal digits")))?;
    Ok(digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]).collect())
}

fn tcp_expect<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let (Expectation { negate, min_recv }, kind) = expectation(args)?;
    let what = match kind {
        "string" => ExpectBytes::Bytes(args.value()?.bytes().into()),
        "rstring" => ExpectBytes::Regex(regex(args)?),
        "binary" => ExpectBytes::Bytes(hexadecimal(args)?),
        "rbinary" | "string-lf" | "binary-lf" | "custom" => return Err(args.unsupported()),
        other => {
            return Err(args
                .wrong(format!("`tcp-check expect` does not know `{other}`"))
                .did_you_mean(diag::suggest(other, ["string", "rstring", "binary", "rbinary", "min-recv"]))
                .haproxy(format!("'tcp-check expect' : only supports min-recv, '[!]binary', '[!]string', '[!]rstring', '[!]string-lf', '[!]rbinary', '[!]binary-lf' or comment but got '{other}' as argument.")));
        }
    };
    step(settings, CheckStep::Expect { negate, min_recv, what });
    trailing_comment(args)
}
