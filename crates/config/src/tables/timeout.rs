//! `timeout …` and related keywords of a proxy (manual, section 4.2).

use std::time::Duration;

use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use plan::Timeouts;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, proxy, removed};
use crate::draft::row::Outcome;
use crate::draft::row::places::{DFL, DFL_FORWARD, DFLB, DLB, DLB_RING};
use crate::draft::settings::ProxySettings;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    // name where arguments description setting
    proxy("timeout client",          DFL_FORWARD,  "<timeout>", "inactivity timeout of the client",                          |s, a| set(s, |t| &mut t.client, a)).or_udp(),
    proxy("timeout client-fin",      DFL,  "<timeout>", "inactivity timeout of the client after one side has closed", |s, a| set(s, |t| &mut t.client_fin, a)),
    proxy("timeout client-hs",       DFL,  "<timeout>", "timeout of the client's handshake",                         |s, a| set(s, |t| &mut t.client_handshake, a)),
    proxy("timeout http-request",    DFLB, "<timeout>", "timeout for a complete request header section",             |s, a| set(s, |t| &mut t.http_request, a)),
    proxy("timeout http-keep-alive", DFLB, "<timeout>", "timeout for the next request on an idle connection",        |s, a| set(s, |t| &mut t.http_keep_alive, a)),
    proxy("timeout connect",         DLB_RING,  "<timeout>", "timeout of a connection attempt to a server",               |s, a| set(s, |t| &mut t.connect, a)).or_udp(),
    proxy("timeout queue",           DLB,  "<timeout>", "maximum time in the queue",                                 |s, a| set(s, |t| &mut t.queue, a)),
    proxy("timeout server",          DLB_RING,  "<timeout>", "inactivity timeout of the server",                          |s, a| set(s, |t| &mut t.server, a)).or_udp(),
    proxy("timeout server-fin",      DLB,  "<timeout>", "inactivity timeout of the server after one side has closed", |s, a| set(s, |t| &mut t.server_fin, a)),
    proxy("timeout tunnel",          DLB,  "<timeout>", "inactivity timeout of a tunnel, on both sides",             |s, a| set(s, |t| &mut t.tunnel, a)),
    proxy("timeout tarpit",          DFLB, "<timeout>", "time for which a tarpitted request is held",                |s, a| set(s, |t| &mut t.tarpit, a)),
    proxy("timeout check",           DLB,  "<timeout>", "timeout for the response to a health check, once connected", |s, a| set(s, |t| &mut t.check, a)).or_udp(),
    removed("clitimeout", DFL, "Use 'timeout client'"),
    removed("srvtimeout", DLB, "Use 'timeout server'"),
    removed("contimeout", DLB, "Use 'timeout connect' or 'timeout queue'"),
    removed("timeout clitimeout", DFL, "Use 'timeout client'"),
    removed("timeout srvtimeout", DLB, "Use 'timeout server'"),
    removed("timeout contimeout", DLB, "Use 'timeout connect'"),
];

/// Zero and a missing line both mean no limit.
fn set(
    settings: &mut ProxySettings<'_>,
    which: fn(&mut Timeouts) -> &mut Option<Duration>,
    args: &mut Args<'_, '_>,
) -> Outcome {
    let keyword = args.keyword();
    let Some(word) = args.peek() else {
        return Err(Diagnostic::alert(format!("`{keyword}` expects a time"))
            .at(args.statement.end())
            .label("such as `30s`; the default unit is milliseconds")
            .haproxy(format!("'{keyword}' expects an integer value (in milliseconds)")));
    };
    let value = args.duration(Milliseconds)?;
    args.finish()?;
    args.warn_if_small(word, keyword, &format!("{} '{}'", settings.kind_name(), settings.name));
    *which(&mut settings.timeouts) = Some(value).filter(|value| !value.is_zero());
    Ok(())
}
