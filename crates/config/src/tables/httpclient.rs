//! Settings of the built-in HTTP client in `global` (manual, 3.10 `httpclient.…`), of certificate orders (`acme.scheduler`) and of
//! OCSP response updates (3.1 `ocsp-update.…`).

use base::address::{Accepts, Destination, Family, PortRule};
use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, global};
use crate::draft::row::Outcome;
use crate::draft::settings::GlobalSettings;
use crate::system::resolve_host;

/// The default port of a proxy.
const HTTP: u16 = 80;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    //     name                            arguments    description                                                        setting
    global("acme.scheduler",                "{ auto | off }",  "whether certificates are renewed automatically",         |g, a| { g.plan.no_acme_scheduler = a.one_of(&[("auto", false), ("off", true)])?; a.finish() }),
    global("httpclient.resolvers.disabled", "{ on | off }",    "whether name resolution is disabled, so that URLs need IP addresses", |g, a| { g.http_client.no_resolvers = a.on_off()?; a.finish() }),
    global("httpclient.resolvers.id",      "<section>",        "resolvers section to use",                                |g, a| { g.http_client.resolvers = Some(a.required("a resolvers section")?.into()); a.finish() }),
    global("httpclient.resolvers.prefer",  "{ ipv4 | ipv6 }",  "preferred address family",                                |g, a| { g.plan.http_client.prefer = Some(a.one_of(&[("ipv4", Family::V4), ("ipv6", Family::V6)])?); a.finish() }),
    global("httpclient.retries",           "<number>",         "number of retries of a failed request",                   |g, a| { g.plan.http_client.retries = a.integer("a number", 0, u32::from(u16::MAX))?; a.finish() }),
    global("httpclient.ssl.ca-file",       "<file>",           "CAs that may sign server certificates",                   |g, a| { g.http_client.ca_file = Some(a.required("a file")?.into()); a.finish() }),
    global("httpclient.ssl.verify",        "{ none | required }", "whether server certificates are verified",             |g, a| { g.http_client.verify = Some(a.one_of(&[("none", false), ("required", true)])?); a.finish() }),
    global("httpclient.timeout.connect",   "<time>",           "timeout of a connection attempt",                         |g, a| { g.plan.http_client.connect_timeout = a.duration(Milliseconds)?; a.finish() }),
    global("ocsp-update.mode",             "{ on | off }",     "whether OCSP responses are fetched for all certificates by default", |g, a| { g.tls.updates.default = a.on_off()?; a.finish() }),
    global("ocsp-update.disable",          "{ on | off }",     "disables all OCSP updates",                               |g, a| { g.tls.updates.disabled = a.on_off()?; a.finish() }),
    global("ocsp-update.mindelay",         "<seconds>",        "minimum time between two updates of an OCSP response",    min_delay),
    global("ocsp-update.maxdelay",         "<seconds>",        "maximum time between two updates of an OCSP response",    max_delay),
    global("ocsp-update.httpproxy",        "<address>[:<port>]", "HTTP proxy for OCSP requests",                          http_proxy),
];

/// Parses a number of seconds.
fn seconds(args: &mut Args<'_, '_>) -> Result<i64, Diagnostic> {
    let seconds = args.integer("a number of seconds", 0, i64::from(i32::MAX))?;
    args.finish()?;
    Ok(seconds)
}

/// Checks that the minimum and maximum delays are ordered.
fn order(ordered: bool, args: &Args<'_, '_>, relation: &str, other: &str) -> Outcome {
    if ordered {
        return Ok(());
    }
    let keyword = args.keyword();
    Err(args
        .wrong(format!("`{keyword}` cannot be {relation} than `ocsp-update.{other}`"))
        .help("directives take effect in order: set the other one first")
        .haproxy(format!("'{keyword}' can not be {relation} than tune.ssl.ocsp-update.{other}.")))
}

pub(super) fn min_delay<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let updates = &mut global.tls.updates;
    updates.min_delay = seconds(args)?;
    order(updates.min_delay <= updates.max_delay, args, "higher", "maxdelay")
}

pub(super) fn max_delay<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let updates = &mut global.tls.updates;
    updates.max_delay = seconds(args)?;
    order(updates.min_delay <= updates.max_delay, args, "lower", "mindelay")
}

fn http_proxy<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("an address")?;
    let address = args.address(word, Accepts { port: PortRule::Optional, range: false, offset: false })?;
    let Destination::Ip { host, ports } = &address.place else {
        return Err(args.wrong(format!("`{word}` is not a TCP address")).help("`<address>[:<port>]`"));
    };
    let ip = resolve_host(host).map_err(|error| args.wrong(format!("cannot resolve `{word}`: {error}")))?;
    let port = ports.iter().next().filter(|port| *port != 0).unwrap_or(HTTP);
    global.plan.ocsp_proxy = Some((ip, port).into());
    args.finish()
}
