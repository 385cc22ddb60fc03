//! Lines that depend on names: ACLs, rule sets, backend and server selection, error messages. This module keeps them in order;
//! `resolve::rules` compiles them once every proxy is known.

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
    rule("acl",                    DFLB, "<name> <criterion> [flags] [operator] [<value>] ...", "defines a named condition").or_udp(),
    rule("http-request",           DFLB, "<action> [options...] [ { if | unless } <condition> ]", "rule applied to requests"),
    rule("http-response",          DFLB, "<action> [options...] [ { if | unless } <condition> ]", "rule applied to responses"),
    rule("http-after-response",    DFLB, "<action> [options...] [ { if | unless } <condition> ]", "rule applied to all responses, including internal ones"),
    rule("quic-initial",           DFL,  "<action> [ { if | unless } <condition> ]", "rule applied to the first packet of a QUIC connection"),
    rule("tcp-request connection", DFL,  "<action> [ { if | unless } <condition> ]", "rule applied to new connections"),
    rule("tcp-request session",    DFL,  "<action> [ { if | unless } <condition> ]", "rule applied to connections after the handshake"),
    rule("tcp-request content",    DFLB, "<action> [ { if | unless } <condition> ]", "rule applied to request contents"),
    rule("tcp-response content",   DLB,  "<action> [ { if | unless } <condition> ]", "rule applied to response contents"),
    rule("redirect",               FLB,  "{ location | prefix | scheme } <to> [code <code>] <option> [ { if | unless } <condition> ]", "redirects clients"),
    rule("use_backend",            FL,   "<backend> [ { if | unless } <condition> ]", "selects a backend"),
    rule("force-be-switch",        FL,   CONDITION,                                 "allows selecting a disabled or unpublished backend"),
    rule("use-server",             LB,   "<server> { if | unless } <condition>",    "selects a server").or_udp(),
    rule("monitor fail",           FL,   CONDITION,                                 "condition under which the monitor URI reports a failure"),
    rule("force-persist",          LB,   CONDITION,                                 "condition under which cookies reach servers that are down"),
    rule("ignore-persist",         LB,   CONDITION,                                 "condition under which cookies are ignored"),
    rule("stick match",            LB,   "<pattern> [table <table>] [ { if | unless } <condition> ]", "looks up the server of a key in a stick table"),
    rule("stick on",               LB,   "<pattern> [table <table>] [ { if | unless } <condition> ]", "binds the requests of a key to a server"),
    rule("stick store-request",    LB,   "<pattern> [table <table>] [ { if | unless } <condition> ]", "stores the server of a request's key"),
    rule("stick store-response",   LB,   "<pattern> [table <table>] [ { if | unless } <condition> ]", "stores the server of a response's key"),
    rule("errorfile",              DFLB, "<code> <file>",                           "file to send instead of HAProxy's default error response"),
    rule("errorfiles",             DFLB, "<name> [<code> ...]",                     "error files from an http-errors section"),
    rule("errorloc",               DFLB, "<code> <url>",                            "redirects clients on an error (302)"),
    rule("errorloc302",            DFLB, "<code> <url>",                            "redirects clients on an error (302)"),
    rule("errorloc303",            DFLB, "<code> <url>",                            "redirects clients on an error (303)"),
    rule("http-error",             DFLB, "status <code> [content-type <type>] [ ... ]", "defines the response to an error"),
    proxy("tcp-request inspect-delay",  DFLB, "<timeout>", "maximum time that rules wait for request contents", request_delay).lenient_words(),
    proxy("tcp-response inspect-delay", DLB,  "<timeout>", "maximum time that rules wait for response contents", response_delay).lenient_words(),
];

fn request_delay<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.request_inspect_delay = Some(args.duration(Milliseconds)?);
    args.finish()
}

fn response_delay<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.response_inspect_delay = Some(args.duration(Milliseconds)?);
    args.finish()
}
