//! How a script reaches the request that it runs for: through what its resumer lends it, for as long
//! as it runs and no longer.

use std::cell::Cell;

use rules::Edit;
use sample::Env;
use scoped_tls_hkt::scoped_thread_local;

use crate::payload::Payload;

/// What a script sees and changes of a request, a stream or a connection.
pub trait Bridge {
    /// Shows what expressions see.
    fn view(&self, look: &mut dyn FnMut(&Env<'_>));

    /// Changes a head; says whether that went well. `None` where there is no such head to change.
    fn edit(&self, edit: &Edit<'_>) -> Option<bool> {
        let _ = edit;
        None
    }

    /// What scripts keep for the rest of the request; `false` where nothing is kept.
    fn notes(&self, with: &mut dyn FnMut(&mut Notes)) -> bool {
        let _ = with;
        false
    }

    /// Changes how the request is treated.
    fn set(&self, setting: Setting) {
        let _ = setting;
    }

    /// The script has done with the request, which this answers, if anything does.
    fn end(&self, reply: Option<ScriptReply>) {
        let _ = reply;
    }

    /// The head of a service's response.
    fn respond(&self, reply: ScriptReply) {
        let _ = reply;
    }

    /// Sends a piece of a service's response, or of what goes out on a stream; says whether so much
    /// waits by now that the script should. `None` where there is nobody to send to.
    fn send(&self, bytes: &[u8]) -> Option<bool> {
        let _ = bytes;
        None
    }

    /// Takes what came in, up to `most` bytes, or up to the end of a line.
    fn take(&self, most: usize, is_line: bool) -> TakenBytes {
        let _ = (most, is_line);
        TakenBytes::End
    }

    /// Shows the payload of a direction that a filter may change, `of_message` that of HTTP, else the
    /// bytes of a channel; `false` where there is none.
    fn payload(&self, of_response: bool, of_message: bool, with: &mut dyn FnMut(&mut Payload)) -> bool {
        let _ = (of_response, of_message, with);
        false
    }

    /// What a filter wants of its stream; `false` where that cannot be.
    fn want(&self, wanted: FilterRequest) -> bool {
        let _ = wanted;
        false
    }

    /// Logs a message of this level (0 for `emerg` to 7 for `debug`) where those of the proxy go;
    /// says whether anything took it.
    fn log(&self, level: u8, text: &[u8]) -> bool {
        let _ = (level, text);
        false
    }

    /// Whether it is about a response.
    fn is_response(&self) -> bool {
        false
    }
}

/// What there is of what comes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenBytes {
    /// This.
    Bytes(Vec<u8>),
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    End,
}

/// What a filter wants of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterRequest {
    /// To see what passes in one direction, or no more.
    Data {
        /// Which.
        of_response: bool,
        /// Whether it does.
        on: bool,
    },
    /// To be called again after so many milliseconds.
    Wake(u64),
    /// The body of a message to be of this length, `None` for one in chunks.
    Length {
        /// Whose.
        of_response: bool,
        /// How many bytes.
        length: Option<u64>,
    },
}

/// How a request is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// The level of its log line; `None` for no line (`txn:set_loglevel`).
    LogLevel(Option<u8>),
    /// The firewall mark of what goes to the client.
    Mark(u32),
    /// The type of service of what goes to the client.
    Tos(u32),
    /// The class in queues.
    PriorityClass(i32),
    /// The offset in queues, in ms.
    PriorityOffset(i32),
    /// After how many ms an action that says so is called again.
    WakeIn(u64),
}

/// An answer that a script made.
#[derive(Debug, Clone, Default)]
pub struct ScriptReply {
    /// The status.
    pub status: u16,
    /// The words behind it; `None` for the usual ones.
    pub reason: Option<Vec<u8>>,
    /// Fields.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What scripts keep of a request (`txn:set_priv`), one value for the state that all workers share
/// and one for the worker's own.
#[derive(Debug, Default)]
pub struct Notes {
    pub(crate) kept: [Option<mlua::Value>; 2],
}

/// The bridge of a fetch or converter: it only looks.
pub struct EnvBridge<'a, 'e>(pub &'a Env<'e>);

impl Bridge for EnvBridge<'_, '_> {
    fn view(&self, look: &mut dyn FnMut(&Env<'_>)) {
        look(self.0);
    }

    fn is_response(&self) -> bool {
        self.0.transaction.is_some_and(|transaction| transaction.has_response)
    }
}

/// The bridge of what is of no request.
pub(crate) struct Nobody;

impl Bridge for Nobody {
    fn view(&self, _: &mut dyn FnMut(&Env<'_>)) {}
}

scoped_thread_local!(static BRIDGE: for<'a> &'a (dyn Bridge + 'a));

thread_local! {
    /// The number of the call that runs on this thread; 0 for none.
    static CALL: Cell<u64> = const { Cell::new(0) };
}

/// Lends `bridge` to call number `call` while it runs.
pub(crate) fn lend<R>(call: u64, bridge: &dyn Bridge, run: impl FnOnce() -> R) -> R {
    let outer = CALL.replace(call);
    let result = BRIDGE.set(bridge, run);
    CALL.set(outer);
    result
}

/// The number of the call that runs on this thread; 0 for none.
pub(crate) fn current() -> u64 {
    CALL.get()
}

/// Calls `with` the bridge of call number `call`.
///
/// # Errors
/// That call is over: a script kept one of its objects.
pub(crate) fn with<R>(call: u64, with: impl FnOnce(&dyn Bridge) -> R) -> mlua::Result<R> {
    if call != CALL.get() || !BRIDGE.is_set() {
        return Err(mlua::Error::runtime("the request of this object is over, or not this script's"));
    }
    Ok(BRIDGE.with(|bridge| with(bridge)))
}

/// Shows the view of call number `call`.
///
/// # Errors
/// As [`with`].
pub(crate) fn view<R>(call: u64, look: impl FnOnce(&Env<'_>) -> R) -> mlua::Result<Option<R>> {
    with(call, |bridge| {
        let (mut look, mut result) = (Some(look), None);
        bridge.view(&mut |env| result = look.take().map(|look| look(env)));
        result
    })
}
