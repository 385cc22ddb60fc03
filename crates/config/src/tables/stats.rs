//! `stats …` of a proxy: the statistics page (manual, section 4.2).

use std::rc::Rc;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, ineffective, proxy, rule};
use crate::draft::row::Outcome;
use crate::draft::row::places::{DFLB, FLB};
use crate::draft::settings::{ProxySettings, StatsDraft};
use crate::tables::global::SECONDS;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    // name where arguments description setting
    proxy("stats enable",       DFLB, "",                 "serves the statistics page",                      |s, a| { page(s); a.finish() }).lenient_words(),
    proxy("stats uri",          DFLB, "<prefix>",         "where the page is",                               uri).lenient_words(),
    proxy("stats realm",        DFLB, "<realm>",          "the realm shown when a password is asked for",    realm).lenient_words(),
    proxy("stats auth",         DFLB, "<user>:<passwd>",  "who may see the page",                            auth).lenient_words(),
    proxy("stats refresh",      DFLB, "<delay>",          "how often the page reloads itself",               refresh).lenient_words(),
    proxy("stats scope",        DFLB, "{ <name> | \".\" }", "which proxies are shown",                       scope).lenient_words(),
    proxy("stats hide-version", DFLB, "",                 "does not show the version",                       |s, a| { page(s).hide_version = true; a.finish() }).lenient_words(),
    proxy("stats show-version", DFLB, "",                 "shows the version",                               |s, a| { page(s).hide_version = false; a.finish() }).lenient_words(),
    proxy("stats show-legends", DFLB, "",                 "explains more when pointed at",                   |s, a| { page(s).show_legends = true; a.finish() }).lenient_words(),
    ineffective("stats show-modules", DFLB, "no module has counters of its own here"),
    proxy("stats show-node",    DFLB, "[ <name> ]",       "shows the machine's name, or this one",           show_node).lenient_words(),
    proxy("stats show-desc",    DFLB, "[ <desc> ]",       "shows global's description, or this one",         show_desc),
    rule("stats admin",         FLB,  "{ if | unless } <cond>", "when the page may change servers"),
    rule("stats http-request",  FLB,  "{ allow | deny | auth [realm <realm>] } [ { if | unless } <condition> ]", "rules for the page"),
];

/// Any `stats` line turns the page on.
fn page<'s, 'a>(settings: &'s mut ProxySettings<'a>) -> &'s mut StatsDraft<'a> {
    let stats = Rc::make_mut(&mut settings.stats);
    stats.enabled = true;
    stats
}

fn uri<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    page(settings).uri = Some(args.required("an URI prefix")?);
    args.finish()
}

fn realm<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    page(settings).realm = Some(args.required("an realm name")?);
    args.finish()
}

fn auth<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a user:password account")?;
    // Without a colon the password is empty, as in HAProxy.
    let (user, password) = word.as_str().split_once(':').unwrap_or((word, ""));
    page(settings).users.push((user, password));
    args.finish()
}

fn refresh<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    page(settings).refresh = Some(args.duration(SECONDS)?);
    args.finish()
}

fn scope<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    page(settings).scope.push(args.required("a proxy name")?);
    args.finish()
}

fn show_node<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    page(settings).node = Some(args.next().map_or("", |word| word.as_str()));
    args.finish()
}

fn show_desc<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let words: Vec<&str> = args.rest().iter().map(|word| word.as_str()).collect();
    page(settings).description = Some(words.join(" "));
    Ok(())
}
