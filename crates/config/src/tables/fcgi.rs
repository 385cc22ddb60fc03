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

/// A line that the section itself processes, in order.
const fn line(name: &'static str, signature: &'static str, doc: &'static str) -> Keyword {
    keyword::row(name, Where::FCGI_APP, signature, doc, Apply::Section)
}

/// The maximum number of concurrent requests on a connection, limited by the request ID.
const MOST: u32 = 65535;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    line("acl",               "<aclname> <criterion> [flags] [operator] <value> ...", "defines a condition for the directives of this section"),
    row("docroot",           "<path>",                            "directory of the scripts on the application server",       |d, a| word(a, "a path", &mut d.docroot)).lenient_words(),
    row("index",             "<script-name>",                     "script to run for paths that end with a slash",            |d, a| word(a, "a script name", &mut d.index)).lenient_words(),
    line("log-stderr",        "global | <target> …",               "log target for the application's messages"),
    row("option get-values", "",                                  "asks the application for its connection limits",           |d, a| switch(a, false, &mut d.asks)).negatable(),
    row("option keep-conn",  "",                                  "keeps connections open after a response",                  |d, a| switch(a, true, &mut d.keeps)).negatable(),
    row("option max-reqs",   "<reqs>",                            "maximum number of concurrent requests per connection",     |d, a| { d.most = u16::try_from(a.integer("a number of requests", 1, MOST)?).unwrap_or(u16::MAX); a.finish() }),
    row("option mpxs-conns", "",                                  "multiplexes several requests over a connection",           |d, a| switch(a, false, &mut d.multiplexes)).negatable(),
    line("pass-header",       "<name> [ { if | unless } <condition> ]", "passes a header that is not passed to applications by default"),
    row("path-info",         "<regex>",                           "regular expression that splits a path into script name and path info", |d, a| word(a, "a regular expression", &mut d.path_info)).lenient_words(),
    line("set-param",         "<name> <fmt> [ { if | unless } <condition> ]", "sets a parameter for the application"),
    proxy("use-fcgi-app", LB, "<name>",                           "application to use for servers with `proto fcgi`",         use_app).lenient_words(),
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
    let name = args.required("an application name")?;
    if settings.fcgi_app.is_some_and(|other| other.as_str() != name.as_str()) {
        return Err(args
            .wrong("a backend can use only one application")
            .haproxy("'use-fcgi-app' : only one fcgi-app supported per backend".to_owned()));
    }
    settings.fcgi_app = Some(name);
    args.finish()
}
