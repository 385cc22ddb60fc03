//! `option httpchk` and `option tcp-check` (manual, section 4.2), and the lines of `healthcheck`
//! sections that choose a kind of check (section 12.9).

use super::check_protocol::{grpc, ldap, mysql, pgsql, redis, smtp, spop, ssl_hello};
use crate::draft::args::Args;
use crate::draft::check::{CheckMode, RequestDraft, ValueDraft};
use crate::draft::keyword::{Keyword, proxy};
use crate::draft::row::places::DLB;
use crate::draft::row::{Outcome, Where};
use crate::draft::settings::ProxySettings;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    // name where arguments description setting
    proxy("option httpchk",   DLB,               "[ <method> ] [ <uri> ] [ <version> ] [ <host> ]",     "checks servers with an HTTP request",          httpchk).or_udp(),
    proxy("option tcp-check", DLB,               "",                                                    "checks servers with a sequence of tcp-check rules", tcp_check).or_udp(),
    proxy("type",             Where::HEALTHCHECK, "<type> [<parameter>...]",                            "type of health check",                         kind),
];

fn httpchk<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let mut request = RequestDraft { from_option: true, ..RequestDraft::default() };
    let (first, second) = (args.next(), args.next());
    let (method, uri) = match (first, second) {
        (Some(uri), None) => (None, Some(uri)),
        pair => pair,
    };
    request.method = method.map(|word| word.as_str());
    request.uri = uri.map(|word| ValueDraft::Fixed(word));
    if let Some(version) = args.next() {
        // Old configurations put headers after the version.
        if version.contains("\r\n") {
            return Err(args
                .wrong("header fields cannot follow the version")
                .label("use `http-check send hdr <name> <value>` to add them")
                .haproxy("'option httpchk' : hiding headers or body at the end of the version string is unsupported. Use 'http-check send' directive instead."));
        }
        request.version = Some(version);
    }
    if let Some(host) = args.next() {
        request.headers.push(("host", host.into()));
    }
    args.finish()?;
    settings.own_check().set_option_request(request);
    Ok(())
}

fn tcp_check<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    args.finish()?;
    settings.own_check().choose(CheckMode::Tcp);
    Ok(())
}

type Apply = for<'a> fn(&mut ProxySettings<'a>, &mut Args<'a, '_>) -> Outcome;

/// The kinds of `type`.
static KINDS: &[(&str, Apply)] = &[
    ("tcp-check", tcp_check),
    ("httpchk", httpchk),
    ("ssl-hello-chk", ssl_hello),
    ("smtpchk", smtp),
    ("pgsql-check", pgsql),
    ("redis-check", redis),
    ("mysql-check", mysql),
    ("ldap-check", ldap),
    ("spop-check", spop),
    ("grpc-chk", grpc),
];

fn kind<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a type of health-check")?;
    let Some((_, apply)) = KINDS.iter().find(|(name, _)| word == name) else {
        let names = || KINDS.iter().map(|(name, _)| *name);
        let list: Vec<&str> = names().collect();
        return Err(args
            .wrong(format!("unknown health check type `{word}`"))
            .did_you_mean(diag::suggest(word, names()))
            .help(format!("one of: {}", list.join(", ")))
            .haproxy(format!("'type' : unknown health-check type '{word}'.")));
    };
    apply(settings, args)
}
