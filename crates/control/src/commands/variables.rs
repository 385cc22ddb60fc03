//! `get var` and `set var` for process-wide variables (management manual, 9.3).

use base::clock::now_ms;
use base::raw::text_of;
use sample::live::{self, Written};

use crate::invocation::{Call, CommandReply, error};

pub(crate) fn get_var(call: &mut Call<'_>) -> CommandReply {
    let name = call.arg(0);
    let found = name.strip_prefix("proc.").and_then(sample::vars::find_process_variable);
    let Some(value) = found.and_then(|variable| variable.get()) else {
        return error("Variable not found.");
    };
    let mut text = Vec::new();
    value.write_text(&mut text);
    CommandReply::Text(format!("{name}: type={} value=<{}>\n", value.kind().name(), text_of(&text)))
}

pub(crate) fn set_var(call: &mut Call<'_>) -> CommandReply {
    let [name, rest @ ..] = call.args else {
        return error("Missing process-wide variable identifier.");
    };
    let (written, words) = match rest {
        [] => return error("Missing either 'expr', 'fmt' or expression."),
        [word, words @ ..] if word == "expr" && !words.is_empty() => (Written::Expression, words),
        [word, words @ ..] if word == "fmt" && !words.is_empty() => (Written::Format, words),
        [word, _, ..] if !word.contains('(') => {
            return error(format!("'set var': arg type must be either 'expr' or 'fmt' but got '{word}'."));
        }
        words => (Written::Expression, words),
    };
    match live::set_variable(&call.runtime.statistics.process, now_ms(), name, written, words) {
        Ok(()) => CommandReply::Done,
        Err(text) => error(format!("'set var': {text}")),
    }
}
