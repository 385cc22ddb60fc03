//! `show peers` (management manual, 9.3): the sections tell themselves, each on its worker.

use crate::call::{Call, Reply, error};

pub(crate) fn show(call: &mut Call<'_>) -> Reply {
    let (with_names, section) = match call.arg(0) {
        "dict" => (true, call.arg(1)),
        "-" => (false, call.arg(1)),
        section => (false, section),
    };
    let section = Some(section).filter(|name| !name.is_empty());
    let shown = call.runtime.peers.get().and_then(|show| show(section, with_names));
    match (shown, section) {
        (Some(text), _) => Reply::Later(Box::pin(async { Reply::Text(text.await) })),
        (None, Some(_)) => error("No such peers\n"),
        (None, None) => Reply::Text(String::new()),
    }
}
