//! The lines of the small sections: `userlist` (manual, section 12.2), `http-errors` (section
//! 12.4), `log-profile` (8.3.5), `crt-store` (section 12.7), `traces` (section 12.1).

use crate::draft::keyword::{self, Apply, Keyword};
use crate::draft::row::Where;

const fn row(name: &'static str, places: Where, signature: &'static str, doc: &'static str) -> Keyword {
    keyword::row(name, places, signature, doc, Apply::Section)
}

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("group",     Where::USERLIST, "<name> [users <user>,<user>,...]", "a group of users"),
    row("user",      Where::USERLIST, "<name> [password|insecure-password <password>] [groups <group>,...]", "a user"),
    row("log-tag",   Where::LOG_PROFILE, "<string>", "the name of the process in these lines"),
    row("on",        Where::LOG_PROFILE, "<step> [drop] [format <fmt>] [sd <fmt>]", "what the lines of a step say"),
    row("crt-base",  Where::CRT_STORE, "<directory>", "where relative names of certificates point"),
    row("key-base",  Where::CRT_STORE, "<directory>", "where relative names of keys point"),
    row("load",      Where::CRT_STORE, "crt <file> [key <file>] [alias <name>] [ocsp <file>] [issuer <file>] [sctl <file>] [jwt on|off]", "a certificate"),
    row("trace",     Where::TRACES,   "<source> <args...>", "what is traced from the start, as the runtime socket's `trace` says it"),
    row("errorfile", Where::ERRORS,   "<code> <file>", "the message for a status"),
];
