//! The commands of a master's socket (`-S`; management manual, 9.4), for its help and the reference. The binary implements them.

use crate::access::AccessLevel;
use crate::socket::table::CommandRow;
use base::keyword_support::Support;

const fn row(words: &'static str, usage: &'static str, doc: &'static str) -> CommandRow {
    let level = match words.as_bytes() {
        b"reload" | b"hard-reload" => AccessLevel::Operator,
        _ => AccessLevel::User,
    };
    CommandRow { words, usage, doc, built: true, support: Support::Full, level, mode: None }
}

const fn refused(words: &'static str, why: &'static str) -> CommandRow {
    CommandRow {
        words,
        usage: "",
        doc: why,
        built: false,
        support: Support::None(why),
        level: AccessLevel::User,
        mode: None,
    }
}

/// Commands of HAProxy's master that do not exist here.
#[rustfmt::skip]
pub const REFUSED: &[CommandRow] = &[
    refused("_loadstatus",     "what HAProxy's processes tell each other: Weir's have a channel of their own"),
    refused("_send_status",    "what HAProxy's processes tell each other: Weir's have a channel of their own"),
    refused("mcli-debug-mode", "the master does nothing but start workers: there is nothing of a worker's to look at in it"),
];

/// The rows. Other commands are passed on to a worker.
#[rustfmt::skip]
pub const COMMANDS: &[CommandRow] = &[
    //  command            arguments          description
    row("@<relative pid>",   "[<command>]",   "run a command in the worker that serves (@1), or all that follow"),
    row("@!<pid>",           "[<command>]",   "run a command in the process of that number"),
    row("@master",           "[<command>]",   "run a command in the master; @ does too"),
    row("@@[!]<pid>",        "[<command>*]",  "hand the connection over to a process"),
    row("reload",            "",              "reload the configuration, tell how that went"),
    row("hard-reload",       "",              "reload the configuration, ending the old process at once"),
    row("show proc",         "",              "show the processes"),
    row("show startup-logs", "",              "show the messages of the last start or reload"),
    row("show version",      "",              "show the version"),
    row("show cli level",    "",              "show the level of this session"),
    row("show cli sockets",  "",              "show the sockets of the master's runtime API"),
    row("show env",          "[<var>]",       "show the environment"),
    row("echo",              "<text>",        "say that"),
    row("operator",          "",              "lower the level to operator"),
    row("user",              "",              "lower the level to user"),
    row("set severity-output", "[none|number|string]", "the severity before the answers of commands passed on"),
    row("prompt",            "[i|n|p]",       "toggle interactive mode with a prompt"),
    row("expert-mode",       "[on|off]",      "for the commands passed on"),
    row("experimental-mode", "[on|off]",      "for the commands passed on"),
    row("help",              "",              "this text"),
    row("quit",              "",              "disconnect"),
];
