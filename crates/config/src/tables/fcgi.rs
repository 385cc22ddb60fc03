//! The lines of `fcgi-app` sections (manual, section 10.1.1), and `use-fcgi-app` (10.1.2). `resolve::fcgi` builds the applications.

use syntax::Word;

use crate::draft::args::Args;
use crate::draft::keyword::{self, Apply, Keyword, ReadFcgi, proxy};
use crate::draft::row::places::LB;
use crate::draft::row::{Negation, Outcome, Where};
use crate::draft::settings::ProxySettings;

const fn row(name: &'static str, signature: &'static str, doc: &'static str, read: ReadFcgi) -> Keyword {
    keyword::row(name, Where::FCGI_APP, signature, doc, Apply::Fcgi(read))
}

/// A line that the section processes itself, in order.
const fn line(name: &'static str, signature: &'static str, doc: &'static str) -> Keyword {
    keyword::row(name, Where::FCGI_APP, signature, doc, Apply::Section)
}

/// The maximum number of concurrent requests on a connection, limited by the request ID.
const MOST: u32 = 65535;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    line("acl",               "<aclname> <criterion> [flags] [operator] <value> ...", "a condition of this section's lines"),
    row("docroot",           "<path>",                            "where the scripts are, on the application's machine",      |d, a| word(a, "a path", &mut d.docroot)).lenient_words(),
    row("index",             "<script-name>",                     "the script that paths ending with a slash mean",           |d, a| word(a, "the name of a script", &mut d.index)).lenient_words(),
    line("log-stderr",        "global | <target> …",               "where messages of the application are logged"),
    row("option get-values", "",                                  "asks the application how many requests it takes",          |d, a| switch(a, false, &mut d.asks)).negatable(),
    row("option keep-conn",  "",                                  "keeps connections open behind a response",                 |d, a| switch(a, true, &mut d.keeps)).negatable(),
    row("option max-reqs",   "<reqs>",                            "how many requests a connection has at a time",             |d, a| { d.most = u16::try_from(a.integer("a number of requests", 1, MOST)?).unwrap_or(u16::MAX); a.finish() }),
    row("option mpxs-conns", "",                                  "has a connection carry several requests at a time",        |d, a| switch(a, false, &mut d.multiplexes)).negatable(),
    line("pass-header",       "<name> [ { if | unless } <condition> ]", "passes a field that applications do not see otherwise"),
    row("path-info",         "<regex>",                           "tells the script's name from what stands behind it",       |d, a| word(a, "a regular expression", &mut d.path_info)).lenient_words(),
    line("set-param",         "<name> <fmt> [ { if | unless } <condition> ]", "sets a parameter that the application gets"),
    proxy("use-fcgi-app", LB, "<name>",                           "the application that servers with `proto fcgi` run",       use_app).lenient_words(),
];

fn word<'a>(args: &mut Args<'a, '_>, what: &str, place: &mut Option<&'a Word>) -> Outcome {
    *place = Some(args.required(what)?);
    args.finish()
}

fn switch(args: &mut Args<'_, '_>, usual: bool, place: &mut bool) -> Outcome {
    *place = match args.statement.negation {
        Negation::None => true,
        Negation::No => false,
        Negation::Default => usual,
    };
    args.finish()
}

fn use_app<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.required("the name of an application")?;
    if settings.fcgi_app.is_some_and(|other| other.as_str() != name.as_str()) {
        return Err(args
            .wrong("a backend has one application")
            .haproxy("'use-fcgi-app' : only one fcgi-app supported per backend".to_owned()));
    }
    settings.fcgi_app = Some(name);
    args.finish()
}
