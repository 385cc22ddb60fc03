//! `setenv`, `localpeer` and others (manual, section 3.1): the keywords that take effect while lines are being read.

use syntax::{Environment, Word};

use crate::draft::keyword::{self, Apply, Keyword};
use crate::draft::row::places::G;

const fn row(
    name: &'static str,
    signature: &'static str,
    doc: &'static str,
    apply: fn(&mut Environment, &[Word]),
) -> Keyword {
    keyword::row(name, G, signature, doc, Apply::Environment(apply))
}

/// The variable with this process's peer name.
pub(crate) const LOCAL_PEER: &str = "HAPROXY_LOCALPEER";

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("setenv",    "<name> <value>", "sets an environment variable",                    setenv),
    row("presetenv", "<name> <value>", "sets an environment variable unless it exists", presetenv),
    row("unsetenv",  "<name>...",      "removes environment variables",                   unsetenv),
    row("resetenv",  "[<name>...]",    "removes all environment variables except those named", resetenv),
    row("localpeer", "<name>",         "name of this process among its peers",               local_peer),
];

fn setenv(environment: &mut Environment, words: &[Word]) {
    environment.set(&words[0], &words[1]);
}

fn local_peer(environment: &mut Environment, words: &[Word]) {
    environment.set(LOCAL_PEER, &words[0]);
}

fn presetenv(environment: &mut Environment, words: &[Word]) {
    environment.preset(&words[0], &words[1]);
}

fn unsetenv(environment: &mut Environment, words: &[Word]) {
    words.iter().for_each(|word| environment.unset(word));
}

fn resetenv(environment: &mut Environment, words: &[Word]) {
    let keep: Vec<&str> = words.iter().map(Word::as_str).collect();
    environment.reset(&keep);
}
