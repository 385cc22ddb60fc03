//! The script state of an exchange, and the effects of scripts that do not change heads.

use std::sync::Arc;

use http::Head;
use rules::ScriptCall;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::log::LogLine;

/// A service that answers the request.
pub(crate) struct ScriptService {
    pub(crate) call: Arc<ScriptCall>,
    /// The running call to the service, between its steps.
    pub(crate) running: Option<lua::RunningCall>,
    /// The head of the response, once available.
    pub(crate) head: Option<lua::ScriptReply>,
    /// Input that the service has not read yet.
    pub(crate) input: Vec<u8>,
    pub(crate) is_ended: bool,
    /// Output that has not been sent yet.
    pub(crate) output: Vec<u8>,
    /// How much of the declared body length has not been sent yet.
    pub(crate) left: Option<u64>,
}

impl ScriptService {
    pub(crate) fn new(call: Arc<ScriptCall>) -> Self {
        Self {
            call,
            running: None,
            head: None,
            input: Vec::new(),
            is_ended: false,
            output: Vec::new(),
            left: None,
        }
    }
}

/// The script state of an exchange.
#[derive(Default)]
pub(crate) struct Scripting {
    /// Private data of scripts (`txn:set_priv`).
    pub(crate) notes: lua::Notes,
    /// How a script ended the exchange.
    pub(crate) ended: Option<ScriptEnd>,
    /// The service that answers the request.
    pub(crate) service: Option<ScriptService>,
    /// The bytes of a stream while an action changes them.
    pub(crate) edited: Option<lua::Payload>,
    /// Bytes that actions forwarded before the stream had a server.
    pub(crate) forwarded: Vec<u8>,
    /// Bytes that an action writes to the client. They are sent when the action waits or ends.
    pub(crate) replied: Option<lua::Payload>,
    /// The delay in ms after which an action must be called again.
    pub(crate) wake_in: Option<u64>,
}

/// How a script ended an exchange (`txn:done`).
pub(crate) enum ScriptEnd {
    /// Without a response.
    Closed,
    /// With this response.
    Answered(lua::ScriptReply),
}

/// Returns the script state, creating it if necessary.
pub(crate) fn of(x: &mut Exchange) -> &mut Scripting {
    x.scripting.get_or_insert_default()
}

/// Applies a script's setting to the request.
pub(crate) fn set(client: &Client, x: &mut Exchange, setting: lua::Setting) {
    match setting {
        lua::Setting::LogLevel(level) => x.txn.log_level = Some(level),
        // A stream opened on behalf of a client has no client packets to mark.
        lua::Setting::Mark(_) | lua::Setting::Tos(_) if client.session.listener.is_placeholder() => {}
        lua::Setting::Mark(mark) => client.side.set_mark(mark),
        lua::Setting::Tos(tos) => client.side.set_tos(tos),
        lua::Setting::PriorityClass(class) => x.txn.priority.0 = class,
        lua::Setting::PriorityOffset(offset) => x.txn.priority.1 = offset,
        lua::Setting::WakeIn(ms) => of(x).wake_in = Some(ms),
    }
}

/// Converts a script's reply to a head. Invalid fields are left out.
pub(crate) fn write_head(reply: &lua::ScriptReply, head: &mut Head) {
    head.clear();
    head.start_response(reply.status, reply.reason.as_deref());
    for (name, value) in &reply.headers {
        let _ = head.append(name, value);
    }
}

/// Makes a script's reply the response to the client.
pub(crate) fn answer(x: &mut Exchange, reply: lua::ScriptReply) {
    let head = &mut x.txn.response;
    write_head(&reply, head);
    x.reply.clear();
    x.reply.bytes = reply.body;
    head.set_content_length(x.reply.bytes.len() as u64);
}

/// Sends a script's message to the loggers of its proxy. Returns whether any logger accepted it.
pub(crate) fn log(client: &Client, x: &Exchange, level: u8, text: &[u8]) -> bool {
    let proxy = x.backend.as_ref().map_or(&client.frontend, |backend| backend);
    let loggers = &proxy.loggers;
    if loggers.is_empty() {
        return false;
    }
    // Each message is one line, with control characters replaced.
    let text: Vec<u8> = text.iter().map(|byte| if byte.is_ascii_control() { b'.' } else { *byte }).collect();
    let line = LogLine::own(level, &proxy.log_tag, &text);
    client.worker.outbox.borrow_mut().send_all(&client.worker.shared, loggers, &line);
    true
}
