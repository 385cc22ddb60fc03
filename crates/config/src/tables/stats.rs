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
    proxy("stats enable",       DFLB, "",                 "enables the statistics page",                     |s, a| { page(s); a.finish() }).lenient_words(),
    proxy("stats uri",          DFLB, "<prefix>",         "URI of the page",                                 uri).lenient_words(),
    proxy("stats realm",        DFLB, "<realm>",          "realm shown in the password prompt",              realm).lenient_words(),
    proxy("stats auth",         DFLB, "<user>:<passwd>",  "credentials for the page",                        auth).lenient_words(),
    proxy("stats refresh",      DFLB, "<delay>",          "refresh interval of the page",                    refresh).lenient_words(),
    proxy("stats scope",        DFLB, "{ <name> | \".\" }", "proxies shown on the page",                     scope).lenient_words(),
    proxy("stats hide-version", DFLB, "",                 "hides the version",                               |s, a| { page(s).hide_version = true; a.finish() }).lenient_words(),
    proxy("stats show-version", DFLB, "",                 "shows the version",                               |s, a| { page(s).hide_version = false; a.finish() }).lenient_words(),
    proxy("stats show-legends", DFLB, "",                 "shows more details in tooltips",                  |s, a| { page(s).show_legends = true; a.finish() }).lenient_words(),
    ineffective("stats show-modules", DFLB, "no module has its own counters"),
    proxy("stats show-node",    DFLB, "[ <name> ]",       "shows the machine's name, or the given one",      show_node).lenient_words(),
    proxy("stats show-desc",    DFLB, "[ <desc> ]",       "shows the global description, or the given one",  show_desc),
    proxy("stats frame-ancestors", DFLB, "{ none | self | <origin> }*", "pages that may show the page in a frame; Weir extension", frame_ancestors),
    rule("stats admin",         FLB,  "{ if | unless } <cond>", "condition for changing servers on the page"),
    rule("stats http-request",  FLB,  "{ allow | deny | auth [realm <realm>] } [ { if | unless } <condition> ]", "access rule of the page"),
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

/// `none`, `self` and origins. They become part of a header, so only the characters of origins are accepted.
fn frame_ancestors<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let mut sources = Vec::new();
    let words = args.rest();
    for word in words {
        let is_origin = |text: &str| {
            text.chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '/' | '*' | '[' | ']'))
                && text.contains(['.', ':', '*'])
        };
        sources.push(match word.as_str() {
            "none" if words.len() == 1 => "'none'",
            "none" => return Err(args.wrong("`stats frame-ancestors none` allows no other source")),
            "self" => "'self'",
            text if is_origin(text) => text,
            text => {
                return Err(args.wrong(format!(
                    "`stats frame-ancestors`: `{text}` is not an origin such as `https://wall.example.com`, `self` or `none`"
                )));
            }
        });
    }
    if sources.is_empty() {
        return Err(args.wrong("`stats frame-ancestors` expects origins, `self` or `none`"));
    }
    page(settings).frame_ancestors = sources;
    Ok(())
}

fn show_desc<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let words: Vec<&str> = args.rest().iter().map(|word| word.as_str()).collect();
    page(settings).description = Some(words.join(" "));
    Ok(())
}
