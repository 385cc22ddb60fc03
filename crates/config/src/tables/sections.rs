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
    row("group",     Where::USERLIST, "<name> [users <user>,<user>,...]", "group of users"),
    row("user",      Where::USERLIST, "<name> [password|insecure-password <password>] [groups <group>,...]", "user with a password"),
    row("log-tag",   Where::LOG_PROFILE, "<string>", "process name in these messages"),
    row("on",        Where::LOG_PROFILE, "<step> [drop] [format <fmt>] [sd <fmt>]", "format of messages of a step"),
    row("crt-base",  Where::CRT_STORE, "<directory>", "base directory of certificates"),
    row("key-base",  Where::CRT_STORE, "<directory>", "base directory of private keys"),
    row("load",      Where::CRT_STORE, "crt <file> [key <file>] [alias <name>] [ocsp <file>] [issuer <file>] [sctl <file>] [jwt on|off] [generate-dummy on|off [keytype RSA|ECDSA] [bits <number>] [curves <curve>]]", "a certificate"),
    row("trace",     Where::TRACES,   "<source> <args...>", "enables traces from startup, with the syntax of the runtime command `trace`"),
    row("errorfile", Where::ERRORS,   "<code> <file>", "response for a status code"),
];
