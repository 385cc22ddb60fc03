//! The lines of `peers` sections (manual, 11.2) other than `log`. `resolve::peers` turns them into a listener and servers,
//! `resolve::tables` into tables.

use std::rc::Rc;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, proxy};
use crate::draft::row::{Outcome, Where};
use crate::draft::settings::ProxySettings;
use crate::tables::proxy::{default_server, server_line};

const PEERS: Where = Where::PEERS;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    proxy("peer",           PEERS, "<name> <address>:<port> [param*]",   "peer to share tables with, or this process",         server_line),
    proxy("server",         PEERS, "<name> [<address>:<port>] [param*]", "peer to share tables with; this process has no address here, but a `bind` line", server_line),
    proxy("server-template", PEERS, "<prefix> <num | range> <fqdn>[:<port>] resolvers <id> [param*]", "peers whose names and addresses DNS provides", server_line),
    proxy("default-server", PEERS, "[param*]",                           "default parameters of peers",                        default_server),
    proxy("bind",           PEERS, "[<address>]:<port> [param*]",        "address on which this process listens for peers",    |s, a| { s.binds.push(a.statement); a.rest(); Ok(()) }),
    proxy("default-bind",   PEERS, "[param*]",                           "default parameters of that `bind` line",             default_bind),
    proxy("table",          PEERS, "<name> type <type> size <size> [expire <expire>] [nopurge] [recv-only] [write-to <wtable>] [srvkey <srvkey>] [store <data_type>]* [brates-factor <factor>] [aggregate [every <time>]]", "table of this section, named `<section>/<name>` elsewhere", table),
    proxy("shards",         PEERS, "<shards>",                           "number of shards that keys are distributed over",    shards),
    proxy("disabled",       PEERS, "",                                   "disables table sharing",                             |s, a| { s.disabled = true; a.finish() }).lenient_words(),
    proxy("enabled",        PEERS, "",                                   "enables table sharing, the default",                 |s, a| { s.disabled = false; a.finish() }).lenient_words(),
];

fn default_bind<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    args.rest();
    Rc::make_mut(&mut settings.peers).default_binds.push(args.statement);
    Ok(())
}

fn table<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    args.rest();
    Rc::make_mut(&mut settings.peers).tables.push(args.statement);
    Ok(())
}

fn shards<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.peek().ok_or_else(|| {
        args.wrong("`shards` expects a number of parts").haproxy("'shards' : missing value")
    })?;
    args.next();
    let wrong = |text: String| {
        args.wrong(format!("invalid number of shards `{word}`"))
            .label("use a number of at least 1")
            .haproxy(text)
    };
    let count: u32 =
        word.parse().map_err(|_| wrong(format!("'shards' : expects an integer argument, found '{word}'")))?;
    if count == 0 {
        return Err(wrong("'shards' : expects a strictly positive integer argument".to_owned()));
    }
    Rc::make_mut(&mut settings.peers).shards = count;
    args.finish()
}
