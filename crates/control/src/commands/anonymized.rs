//! `set anon`, `show anon`, `debug dev hash` (management manual, 9.3).

use std::sync::atomic::Ordering::Relaxed;

use crate::access::AccessLevel;
use crate::anonymous::Anonymous;
use crate::invocation::{Call, CommandReply, error, info};

/// Parses a key, from 1 on.
fn key(text: &str) -> Option<u32> {
    text.parse().ok().filter(|key| *key > 0)
}

pub(crate) fn on(call: &mut Call<'_>) -> CommandReply {
    let global = call.runtime.anonymous_key.load(Relaxed);
    let key = match call.arg(0) {
        "" if global > 0 => global,
        "" => fastrand::u32(1..),
        text => match key(text) {
            Some(key) => key,
            None => return error("Value out of range (1 to 4294967295 expected)."),
        },
    };
    call.settings.anonymous = Anonymous::with_key(key);
    CommandReply::Done
}

pub(crate) fn off(call: &mut Call<'_>) -> CommandReply {
    call.settings.anonymous = Anonymous::default();
    CommandReply::Done
}

pub(crate) fn global_key(call: &mut Call<'_>) -> CommandReply {
    match call.arg(0).parse::<u32>() {
        Ok(key) => {
            call.runtime.anonymous_key.store(key, Relaxed);
            CommandReply::Done
        }
        Err(_) => error("Value out of range (0 to 4294967295 expected)."),
    }
}

pub(crate) fn show(call: &mut Call<'_>) -> CommandReply {
    // With the key, anonymized words can be guessed and compared.
    let shows_key = call.settings.level >= AccessLevel::Operator;
    info(match call.settings.anonymous.key() {
        0 => "Anonymized mode disabled".to_owned(),
        _ if !shows_key => "Anonymized mode enabled".to_owned(),
        key => format!("Anonymized mode enabled\nKey : {key}"),
    })
}

/// `debug dev hash`: the current replacement of a word.
pub(crate) fn hash(call: &mut Call<'_>) -> CommandReply {
    CommandReply::Text(call.settings.anonymous.word(call.arg(0)).into_owned())
}
