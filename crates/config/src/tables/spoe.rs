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

/// A line that HAProxy ignores too.
const fn ignored(name: &'static str) -> Keyword {
    keyword::ineffective(name, Where::SPOE_AGENT, "HAProxy ignores it since version 3.1")
}

/// A line that the section processes itself, in order.
const fn line(name: &'static str, places: Where, signature: &'static str, doc: &'static str) -> Keyword {
    keyword::row(name, places, signature, doc, Apply::Section)
}

const MESSAGE: Where = Where::SPOE_MESSAGE;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("groups",                   "<group> …",     "the groups of messages that rules may send",                       |d, a| list(a, "group", &mut d.groups)),
    line("log", Where::SPOE_AGENT,  "global | <target> …", "where a line about each event goes").negatable(),
    row("max-frame-size",           "<bytes>",       "the largest frame that agents are offered",                        frame_size),
    row("messages",                 "<message> …",   "the messages that are sent at their events",                       |d, a| list(a, "message", &mut d.messages)),
    row("option continue-on-error", "",              "goes on with the next event of a stream when one failed",          |d, a| { d.continues = true; a.finish() }),
    row("option dontlog-normal",    "",              "logs errors alone",                                                |d, a| switch(a, false, &mut d.only_errors)).negatable(),
    row("option force-set-var",     "",              "lets agents set variables of the process that do not exist yet",   |d, a| { d.forces = true; a.finish() }),
    row("option pipelining",        "",              "has a connection carry several questions at a time",               |d, a| switch(a, true, &mut d.pipelining)).negatable(),
    row("option set-on-error",      "<var>",         "the variable of a transaction that tells what went wrong",         |d, a| name(a, &mut d.on_error)),
    row("option set-process-time",  "<var>",         "the variable of a transaction that tells how long the last event took, in ms", |d, a| name(a, &mut d.process_time)),
    row("option set-total-time",    "<var>",         "the variable of a transaction that tells how long all events took, in ms", |d, a| name(a, &mut d.total_time)),
    row("option var-prefix",        "<prefix>",      "what the names of the agent's variables begin with; its own name otherwise", |d, a| name(a, &mut d.prefix)),
    row("register-var-names",       "<var> …",       "variables that the agent may set and no line names",               |d, a| { list(a, "variable", &mut d.variables)?; d.variables.iter().try_for_each(|word| check_name(a, word)) }),
    row("timeout processing",       "<time>",        "how long a stream waits for an answer",                            |d, a| { d.timeout = Some(a.duration(Milliseconds)?); a.finish() }),
    row("use-backend",              "<backend>",     "the backend whose servers are the agent",                          |d, a| { d.backend = Some(a.required("the name of a backend")?); a.finish() }),
    ignored("maxconnrate"),
    ignored("maxerrrate"),
    ignored("max-waiting-frames"),
    ignored("option async"),
    ignored("option send-frag-payload"),
    ignored("timeout hello"),
    ignored("timeout idle"),

    line("acl",   MESSAGE, "<aclname> <criterion> [flags] [operator] <value> …", "a condition of this section's event"),
    line("args",  MESSAGE, "[<name>=]<sample> …",    "what the message tells"),
    line("event", MESSAGE, "<name> [ { if | unless } <condition> ]", "when the message is sent"),

    line("messages", Where::SPOE_GROUP, "<message> …", "the messages of the group"),
];

fn list<'a>(args: &mut Args<'a, '_>, what: &str, all: &mut Vec<&'a Word>) -> Outcome {
    all.push(args.required(&format!("the name of a {what}"))?);
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
    Err(Diagnostic::alert(format!("`{word}` is no name of a variable"))
        .at(word.span())
        .label("letters, digits, `.` and `_` are")
        .haproxy(format!("'{keyword}' only supports [a-zA-Z0-9_.] chars.")))
}

/// The limit depends on the global section, which is processed later.
fn frame_size<'a>(draft: &mut AgentDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    draft.frame_size = Some(args.required("a number of bytes")?);
    args.finish()
}
