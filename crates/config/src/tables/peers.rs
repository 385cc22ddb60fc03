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
    proxy("peer",           PEERS, "<name> <address>:<port> [param*]",   "a process that tables are shared with, or where this one listens", server_line),
    proxy("server",         PEERS, "<name> [<address>:<port>] [param*]", "the same; this process has no address here, but a `bind` line",    server_line),
    proxy("default-server", PEERS, "[param*]",                           "what peers have in common",                          default_server),
    proxy("bind",           PEERS, "[<address>]:<port> [param*]",        "where this process listens for others",              |s, a| { s.binds.push(a.statement); a.rest(); Ok(()) }),
    proxy("default-bind",   PEERS, "[param*]",                           "how this process listens, but for the address",      default_bind),
    proxy("table",          PEERS, "<name> type <type> size <size> [expire <expire>] [nopurge] [recv-only] [write-to <wtable>] [srvkey <srvkey>] [store <data_type>]* [brates-factor <factor>]", "a table of the section's own, named `<section>/<name>` elsewhere", table),
    proxy("shards",         PEERS, "<shards>",                           "into how many parts keys are shared out",            shards),
    proxy("disabled",       PEERS, "",                                   "nothing is shared",                                  |s, a| { s.disabled = true; a.finish() }).lenient_words(),
    proxy("enabled",        PEERS, "",                                   "tables are shared, the default",                     |s, a| { s.disabled = false; a.finish() }).lenient_words(),
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
        args.wrong(format!("`{word}` is no number of parts")).label("at least 1").haproxy(text)
    };
    let count: u32 =
        word.parse().map_err(|_| wrong(format!("'shards' : expects an integer argument, found '{word}'")))?;
    if count == 0 {
        return Err(wrong("'shards' : expects a strictly positive integer argument".to_owned()));
    }
    Rc::make_mut(&mut settings.peers).shards = count;
    args.finish()
}
