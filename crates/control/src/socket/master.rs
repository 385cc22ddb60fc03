//! The commands of a master's socket (`-S`; management manual, 9.4), for its help and the reference. The binary implements them.

use crate::access::AccessLevel;
use crate::socket::table::CommandRow;
use base::keyword_support::Support;

/// The level that a command of the master requires.
pub const fn required_level(words: &str) -> AccessLevel {
    match words.as_bytes() {
        b"reload" | b"hard-reload" => AccessLevel::Operator,
        _ => AccessLevel::User,
    }
}

const fn row(words: &'static str, usage: &'static str, doc: &'static str) -> CommandRow {
    CommandRow {
        words,
        usage,
        doc,
        built: true,
        support: Support::Full,
        level: required_level(words),
        mode: None,
    }
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

/// Commands of HAProxy's master that Weir does not have.
#[rustfmt::skip]
pub const REFUSED: &[CommandRow] = &[
    refused("_loadstatus",     "internal to HAProxy's processes: Weir's processes use a different channel"),
    refused("_send_status",    "internal to HAProxy's processes: Weir's processes use a different channel"),
    refused("mcli-debug-mode", "the master only starts workers and has no worker state to inspect"),
];

/// The commands of the master. Other commands are forwarded to a worker.
#[rustfmt::skip]
pub const COMMANDS: &[CommandRow] = &[
    //  command            arguments          description
    row("@<relative pid>",   "[<command>]",   "run a command in the current worker (@1), or all following commands"),
    row("@!<pid>",           "[<command>]",   "run a command in the process with that PID"),
    row("@master",           "[<command>]",   "run a command in the master (@ is an alias)"),
    row("@@[!]<pid>",        "[<command>*]",  "hand the connection over to a process"),
    row("reload",            "",              "reload the configuration and report the result"),
    row("hard-reload",       "",              "reload the configuration and stop the old process immediately"),
    row("show proc",         "",              "show the processes"),
    row("show startup-logs", "",              "show the messages of the last startup or reload"),
    row("show version",      "",              "show the version"),
    row("show cli level",    "",              "show the level of the current session"),
    row("show cli sockets",  "",              "show the sockets of the master"),
    row("show env",          "[<var>]",       "show the environment variables"),
    row("echo",              "<text>",        "print text to the output"),
    row("operator",          "",              "lower the level to operator"),
    row("user",              "",              "lower the level to user"),
    row("set severity-output", "[none|number|string]", "set the severity prefix of answers to forwarded commands"),
    row("prompt",            "[i|n|p]",       "toggle interactive mode with a prompt"),
    row("expert-mode",       "[on|off]",      "enable or disable it for forwarded commands"),
    row("experimental-mode", "[on|off]",      "enable or disable it for forwarded commands"),
    row("help",              "",              "list the commands"),
    row("quit",              "",              "disconnect"),
];
