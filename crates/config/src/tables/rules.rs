//! Lines that depend on names: ACLs, rule sets, backend and server selection, error messages. They are kept in order here and
//! compiled by `resolve::rules` once every proxy is known.

use base::units::DefaultUnit::Milliseconds;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, proxy, rule};
use crate::draft::row::Outcome;
use crate::draft::row::places::{DFL, DFLB, DLB, FL, FLB, LB};
use crate::draft::settings::ProxySettings;

const CONDITION: &str = "{ if | unless } <condition>";

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    //   name                     where  arguments                                  description
    rule("acl",                    DFLB, "<name> <criterion> [flags] [operator] [<value>] ...", "names a condition"),
    rule("http-request",           DFLB, "<action> [options...] [ { if | unless } <condition> ]", "rules on requests"),
    rule("http-response",          DFLB, "<action> [options...] [ { if | unless } <condition> ]", "rules on responses"),
    rule("http-after-response",    DFLB, "<action> [options...] [ { if | unless } <condition> ]", "rules on all responses, its own too"),
    rule("tcp-request connection", DFL,  "<action> [ { if | unless } <condition> ]", "rules on new connections"),
    rule("tcp-request session",    DFL,  "<action> [ { if | unless } <condition> ]", "rules on connections after the handshake"),
    rule("tcp-request content",    DFLB, "<action> [ { if | unless } <condition> ]", "rules on what a client sends first"),
    rule("tcp-response content",   DLB,  "<action> [ { if | unless } <condition> ]", "rules on what a server answers first"),
    rule("redirect",               FLB,  "{ location | prefix | scheme } <to> [code <code>] <option> [ { if | unless } <condition> ]", "sends clients elsewhere"),
    rule("use_backend",            FL,   "<backend> [ { if | unless } <condition> ]", "chooses a backend"),
    rule("force-be-switch",        FL,   CONDITION,                                 "when disabled or unpublished backends may be chosen"),
    rule("use-server",             LB,   "<server> { if | unless } <condition>",    "chooses a server"),
    rule("monitor fail",           FL,   CONDITION,                                 "when the monitor URI answers that all is lost"),
    rule("force-persist",          LB,   CONDITION,                                 "when cookies reach servers that are down"),
    rule("ignore-persist",         LB,   CONDITION,                                 "when cookies do not count"),
    rule("stick match",            LB,   "<pattern> [table <table>] [ { if | unless } <condition> ]", "finds the server of a key in a stick table"),
    rule("stick on",               LB,   "<pattern> [table <table>] [ { if | unless } <condition> ]", "keeps a key's requests at one server"),
    rule("stick store-request",    LB,   "<pattern> [table <table>] [ { if | unless } <condition> ]", "notes the server of a request's key"),
    rule("stick store-response",   LB,   "<pattern> [table <table>] [ { if | unless } <condition> ]", "notes the server of a response's key"),
    rule("errorfile",              DFLB, "<code> <file>",                           "what is sent instead of HAProxy's own errors"),
    rule("errorfiles",             DFLB, "<name> [<code> ...]",                     "the same from an http-errors section"),
    rule("errorloc",               DFLB, "<code> <url>",                            "where clients are sent on an error (302)"),
    rule("errorloc302",            DFLB, "<code> <url>",                            "where clients are sent on an error (302)"),
    rule("errorloc303",            DFLB, "<code> <url>",                            "where clients are sent on an error (303)"),
    rule("http-error",             DFLB, "status <code> [content-type <type>] [ ... ]", "what is sent on an error, made on the spot"),
    proxy("tcp-request inspect-delay",  DFLB, "<timeout>", "how long rules may wait for what a client sends",  request_delay).lenient_words(),
    proxy("tcp-response inspect-delay", DLB,  "<timeout>", "how long rules may wait for what a server sends",  response_delay).lenient_words(),
];

fn request_delay<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.request_inspect_delay = Some(args.duration(Milliseconds)?);
    args.finish()
}

fn response_delay<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.response_inspect_delay = Some(args.duration(Milliseconds)?);
    args.finish()
}
