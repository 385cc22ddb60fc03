//! The lines of `filter spoe` files: `spoe-agent`, `spoe-message` and `spoe-group` sections (HAProxy's doc/SPOE.txt, chapter 2).
//! `resolve::spoe` builds the engines.

use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::keyword::{self, Apply, Keyword, ReadAgent};
use crate::draft::row::{Negation, Outcome, Where};
use crate::draft::spoe::AgentDraft;

const fn row(name: &'static str, signature: &'static str, doc: &'static str, read: ReadAgent) -> Keyword {
    keyword::row(name, Where::SPOE_AGENT, signature, doc, Apply::SpoeAgent(read))
}

/// A line that HAProxy also ignores.
const fn ignored(name: &'static str) -> Keyword {
    keyword::ineffective(name, Where::SPOE_AGENT, "HAProxy ignores it since version 3.1")
}

/// A line that the section itself processes, in order.
const fn line(name: &'static str, places: Where, signature: &'static str, doc: &'static str) -> Keyword {
    keyword::row(name, places, signature, doc, Apply::Section)
}

const MESSAGE: Where = Where::SPOE_MESSAGE;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("groups",                   "<group> …",     "groups of messages that rules may send",                           |d, a| list(a, "group", &mut d.groups)),
    line("log", Where::SPOE_AGENT,  "global | <target> …", "log target for events").negatable(),
    row("max-frame-size",           "<bytes>",       "maximum frame size offered to agents",                             frame_size),
    row("messages",                 "<message> …",   "messages sent at their events",                                    |d, a| list(a, "message", &mut d.messages)),
    row("option continue-on-error", "",              "continues with the next event of a stream after an error",         |d, a| { d.continues = true; a.finish() }),
    row("option dontlog-normal",    "",              "logs only errors",                                                 |d, a| switch(a, false, &mut d.only_errors)).negatable(),
    row("option force-set-var",     "",              "lets agents create variables with process scope",                  |d, a| { d.forces = true; a.finish() }),
    row("option pipelining",        "",              "allows several requests in flight on a connection",                |d, a| switch(a, true, &mut d.pipelining)).negatable(),
    row("option set-on-error",      "<var>",         "transaction variable for the error code",                          |d, a| name(a, &mut d.on_error)),
    row("option set-process-time",  "<var>",         "transaction variable for the duration of the last event, in ms",   |d, a| name(a, &mut d.process_time)),
    row("option set-total-time",    "<var>",         "transaction variable for the duration of all events, in ms",       |d, a| name(a, &mut d.total_time)),
    row("option var-prefix",        "<prefix>",      "prefix of the agent's variables; the engine name by default",      |d, a| name(a, &mut d.prefix)),
    row("register-var-names",       "<var> …",       "additional variables that the agent may set",                      |d, a| { list(a, "variable", &mut d.variables)?; d.variables.iter().try_for_each(|word| check_name(a, word)) }),
    row("timeout processing",       "<time>",        "maximum time that a stream waits for a response",                  |d, a| { d.timeout = Some(a.duration(Milliseconds)?); a.finish() }),
    row("use-backend",              "<backend>",     "backend of the agent's servers",                                   |d, a| { d.backend = Some(a.required("a backend name")?); a.finish() }),
    ignored("maxconnrate"),
    ignored("maxerrrate"),
    ignored("max-waiting-frames"),
    ignored("option async"),
    ignored("option send-frag-payload"),
    ignored("timeout hello"),
    ignored("timeout idle"),

    line("acl",   MESSAGE, "<aclname> <criterion> [flags] [operator] <value> …", "defines a condition for the event of this section"),
    line("args",  MESSAGE, "[<name>=]<sample> …",    "contents of the message"),
    line("event", MESSAGE, "<name> [ { if | unless } <condition> ]", "event that triggers the message"),

    line("messages", Where::SPOE_GROUP, "<message> …", "messages of the group"),
];

fn list<'a>(args: &mut Args<'a, '_>, what: &str, all: &mut Vec<&'a Word>) -> Outcome {
    all.push(args.required(&format!("a {what} name"))?);
    all.extend(args.rest());
    Ok(())
}

fn switch(args: &mut Args<'_, '_>, usual: bool, place: &mut bool) -> Outcome {
    *place = match args.statement.negation {
        Negation::None => true,
        Negation::No => false,
        Negation::Default => usual,
    };
    args.finish()
}

/// Parses a part of a variable's name.
fn name<'a>(args: &mut Args<'a, '_>, place: &mut Option<&'a Word>) -> Outcome {
    let keyword = args.keyword();
    let word = args.next().ok_or_else(|| {
        Diagnostic::alert(format!("`{keyword}` needs a name"))
            .at(args.statement.end())
            .haproxy(format!("'{keyword}' expects a value."))
    })?;
    check_name(args, word)?;
    *place = Some(word);
    args.finish()
}

fn check_name(args: &Args<'_, '_>, word: &Word) -> Outcome {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
    if !word.is_empty() && word.bytes().iter().copied().all(is_fit) {
        return Ok(());
    }
    let keyword = args.keyword();
    Err(Diagnostic::alert(format!("invalid variable name `{word}`"))
        .at(word.span())
        .label("use letters, digits, `.` and `_`")
        .haproxy(format!("'{keyword}' only supports [a-zA-Z0-9_.] chars.")))
}

/// Kept as a word: the limit depends on the global section, which is processed later.
fn frame_size<'a>(draft: &mut AgentDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    draft.frame_size = Some(args.required("a number of bytes")?);
    args.finish()
}
