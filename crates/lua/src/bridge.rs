//! The access of a script to the request that it runs for. The caller that resumes the script lends it, and only while the script
//! runs.

use std::cell::Cell;

use rules::Edit;
use sample::Env;
use scoped_tls_hkt::scoped_thread_local;

use crate::payload::Payload;

/// A script's access to a request, a stream or a connection.
pub trait Bridge {
    /// Calls `look` with the view for expressions.
    fn view(&self, look: &mut dyn FnMut(&Env<'_>));

    /// Edits a head; returns whether that succeeded, or `None` if there is no such head.
    fn edit(&self, edit: &Edit<'_>) -> Option<bool> {
        let _ = edit;
        None
    }

    /// Calls `with` with the data that scripts keep for the rest of the request; returns `false` if there is none.
    fn notes(&self, with: &mut dyn FnMut(&mut Notes)) -> bool {
        let _ = with;
        false
    }

    /// Changes the treatment of the request.
    fn set(&self, setting: Setting) {
        let _ = setting;
    }

    /// Ends the request, with a reply if there is one.
    fn end(&self, reply: Option<ScriptReply>) {
        let _ = reply;
    }

    /// Sets the head of a service's response.
    fn respond(&self, reply: ScriptReply) {
        let _ = reply;
    }

    /// Sends part of a service's response, or of a stream's output; returns whether the script should wait until it has been sent.
    /// `None` if there is no receiver.
    fn send(&self, bytes: &[u8]) -> Option<bool> {
        let _ = bytes;
        None
    }

    /// Takes input, up to `most` bytes, or up to the end of a line.
    fn take(&self, most: usize, is_line: bool) -> TakenBytes {
        let _ = (most, is_line);
        TakenBytes::End
    }

    /// Calls `with` with the payload of a direction that a filter may change: the payload of an HTTP message if `of_message`,
    /// otherwise the bytes of a channel. Returns `false` if there is none.
    fn payload(&self, of_response: bool, of_message: bool, with: &mut dyn FnMut(&mut Payload)) -> bool {
        let _ = (of_response, of_message, with);
        false
    }

    /// Applies a filter's request about its stream; returns `false` if that is not possible.
    fn want(&self, wanted: FilterRequest) -> bool {
        let _ = wanted;
        false
    }

    /// Writes a message with this level (0 for `emerg` to 7 for `debug`) to the proxy's loggers; returns whether a logger accepted
    /// it.
    fn log(&self, level: u8, text: &[u8]) -> bool {
        let _ = (level, text);
        false
    }

    /// Whether the context is a response.
    fn is_response(&self) -> bool {
        false
    }
}

/// The available input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenBytes {
    /// Some bytes.
    Bytes(Vec<u8>),
    /// Nothing yet.
    Nothing,
    /// The end of the input.
    End,
}

/// A filter's request about its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterRequest {
    /// Start or stop passing the data of one direction to the filter.
    Data {
        /// The direction.
        of_response: bool,
        /// Whether to start.
        on: bool,
    },
    /// Call the filter again after this many milliseconds.
    Wake(u64),
    /// Set the length of a message's body; `None` for chunked.
    Length {
        /// The direction.
        of_response: bool,
        /// The number of bytes.
        length: Option<u64>,
    },
}

/// The treatment of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// The level of the request's log line; `None` for no line (`txn:set_loglevel`).
    LogLevel(Option<u8>),
    /// The firewall mark of packets to the client.
    Mark(u32),
    /// The type of service of packets to the client.
    Tos(u32),
    /// The queue priority class.
    PriorityClass(i32),
    /// The queue priority offset, in ms.
    PriorityOffset(i32),
    /// The delay in ms after which an action is called again that requested it.
    WakeIn(u64),
}

/// A response created by a script.
#[derive(Debug, Clone, Default)]
pub struct ScriptReply {
    /// The status.
    pub status: u16,
    /// The reason phrase; `None` for the default.
    pub reason: Option<Vec<u8>>,
    /// The header fields.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// The data that scripts keep for a request (`txn:set_priv`): one value for the shared state and one for the worker's own state.
#[derive(Debug, Default)]
pub struct Notes {
    pub(crate) kept: [Option<mlua::Value>; 2],
}

/// The bridge of a fetch or converter: read-only.
pub struct EnvBridge<'a, 'e>(pub &'a Env<'e>);

impl Bridge for EnvBridge<'_, '_> {
    fn view(&self, look: &mut dyn FnMut(&Env<'_>)) {
        look(self.0);
    }

    fn is_response(&self) -> bool {
        self.0.transaction.is_some_and(|transaction| transaction.has_response)
    }
}

/// The bridge for code outside of any request.
pub(crate) struct Nobody;

impl Bridge for Nobody {
    fn view(&self, _: &mut dyn FnMut(&Env<'_>)) {}
}

scoped_thread_local!(static BRIDGE: for<'a> &'a (dyn Bridge + 'a));

thread_local! {
    /// The number of the call running on this thread; 0 for none.
    static CALL: Cell<u64> = const { Cell::new(0) };
}

/// Makes `bridge` available to the call with number `call` while it runs.
pub(crate) fn lend<R>(call: u64, bridge: &dyn Bridge, run: impl FnOnce() -> R) -> R {
    let outer = CALL.replace(call);
    let result = BRIDGE.set(bridge, run);
    CALL.set(outer);
    result
}

/// Returns the number of the call running on this thread; 0 for none.
pub(crate) fn current() -> u64 {
    CALL.get()
}

/// The number of the running call in objects that all calls of a state share.
pub(crate) const RUNNING: u64 = 0;

/// Calls `with` with the bridge of the call with number `call`.
///
/// # Errors
/// The call has ended, but a script kept one of its objects.
#[inline]
pub(crate) fn with<R>(call: u64, with: impl FnOnce(&dyn Bridge) -> R) -> mlua::Result<R> {
    if (call != CALL.get() && call != RUNNING) || !BRIDGE.is_set() {
        return Err(mlua::Error::runtime(
            "the request of this object has ended, or belongs to another script",
        ));
    }
    Ok(BRIDGE.with(|bridge| with(bridge)))
}

/// Calls `look` with the view of the call with number `call`. Returns `None` if there is no request.
///
/// # Errors
/// The errors of [`with`].
#[inline]
pub(crate) fn view<R>(call: u64, look: impl FnOnce(&Env<'_>) -> R) -> mlua::Result<Option<R>> {
    with(call, |bridge| {
        let (mut look, mut result) = (Some(look), None);
        bridge.view(&mut |env| result = look.take().map(|look| look(env)));
        result
    })
}
