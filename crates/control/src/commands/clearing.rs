//! `clear counters` (management manual, 9.3): resets counters in this process and in the processes that share them.

use std::sync::Arc;

use state::Server;
use statistics::sharing::Cleared;

use crate::access::AccessLevel;
use crate::commands::sets::server;
use crate::invocation::{Call, CommandReply, Severity, denied, error};
use crate::offload::{CommandAnswer, aside};

pub(crate) fn clear_counters(call: &mut Call<'_>) -> CommandReply {
    let view = call.runtime.view();
    match call.arg(0) {
        "all" | "server" if call.settings.level < AccessLevel::Admin => denied(),
        "server" => match server(&view, call.arg(1)) {
            Ok((_, server)) => clear_server(call, server),
            Err(reply) => reply,
        },
        what => {
            let all = what == "all";
            for proxy in &view.proxies {
                state::clear::proxy(&proxy.state, all);
            }
            state::clear::process(&call.runtime.statistics.process);
            if !all {
                return CommandReply::Done;
            }
            let nameservers = view.resolvers.iter().flat_map(|section| &section.nameservers);
            nameservers.for_each(|nameserver| nameserver.counters.clear());
            clear_shared(call, Cleared::All, String::new())
        }
    }
}

/// Clears one server. If other processes share its counters, `force` is required.
fn clear_server(call: &Call<'_>, server: Arc<Server>) -> CommandReply {
    let is_shared = call.runtime.statistics.shared_counters().is_some_and(|shared| shared.holds(&server));
    if is_shared && call.arg(2) != "force" {
        return error(
            "Server counters are shared with other processes (\"shm-stats-file\"); use \"force\" to clear them for all.\n",
        );
    }
    state::clear::server(&server, true);
    let message = "Server counters cleared.\n".to_owned();
    if is_shared { clear_shared(call, Cleared::Server(server), message) } else { notice(message) }
}

fn notice(text: String) -> CommandReply {
    if text.is_empty() { CommandReply::Done } else { CommandReply::Message(Severity::Notice, text) }
}

/// Lets other processes clear the same counters if they share them, then responds.
fn clear_shared(call: &Call<'_>, what: Cleared, message: String) -> CommandReply {
    let Some(shared) = call.runtime.statistics.shared_counters().cloned() else { return notice(message) };
    let view = call.runtime.view();
    aside(move || match shared.clear(&what, view.states()) {
        Ok(()) if message.is_empty() => CommandAnswer::Text(message),
        Ok(()) => CommandAnswer::Notice(message),
        Err(why) => CommandAnswer::Error(format!("Cleared only in this process: {why}.\n")),
    })
}
