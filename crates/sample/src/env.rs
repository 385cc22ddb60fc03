//! The environment in which expressions are evaluated: the data that they may read.

use std::cell::Cell;

use state::Process;

use crate::log_origin::LogOrigin;
use crate::session::{Endpoint, Session};
use crate::slots::Slots;
use crate::socket::TcpFacts;
use crate::transaction::Transaction;

/// The data that an expression reads. Created for one evaluation, and dropped before anything is modified.
pub struct Env<'a> {
    /// The process state.
    pub process: &'a Process,
    /// The client connection, or `None` in health checks and at startup (`set-var` in `global`).
    pub session: Option<&'a Session>,
    /// The request, or `None` before the stream exists.
    pub transaction: Option<&'a Transaction>,
    /// The bytes that were received from the client but not forwarded. In HTTP mode, this is the received part of the body
    /// without chunk framing; in TCP mode, these are the raw bytes.
    pub request_bytes: &'a [u8],
    /// Bytes received from the server but not forwarded.
    pub response_bytes: &'a [u8],
    /// Whether the bytes are final: the stream has ended, the buffer is full or the delay has expired.
    pub complete: bool,
    /// Set by a fetch if further bytes may change its result. The caller may then wait.
    pub may_change: Cell<bool>,
    /// Monotonic time in milliseconds.
    pub now_ms: u64,
    /// The context in which the current log line is written.
    pub log_origin: LogOrigin,
    /// Access to the connections' sockets, if any.
    pub sockets: Option<&'a dyn Sockets>,
    /// The variables of a health check; `None` elsewhere.
    pub check_vars: Option<&'a Slots>,
}

/// A log format, evaluated in an [`Env`].
pub trait FormatText {
    /// Appends the formatted text to `out`.
    fn write(&self, env: &Env<'_>, out: &mut Vec<u8>);
}

/// Facts about a stream that `proxy` provides: its sockets and the format of its ID.
pub trait Sockets {
    /// The kernel's metrics of the client connection, or `None` if it is not TCP.
    fn client_tcp(&self) -> Option<TcpFacts>;
    /// The kernel's metrics of the server connection; `None` also before it is open.
    fn server_tcp(&self) -> Option<TcpFacts>;
    /// The client connection's SYN if the listener saves it (`tcp-ss`); the first call consumes it.
    fn saved_syn(&self) -> Option<Vec<u8>>;
    /// The file descriptors of the client and the server connection.
    fn descriptors(&self) -> [Option<i32>; 2];
    /// The frontend's `unique-id-format`.
    fn unique_id_format(&self) -> Option<&dyn FormatText> {
        None
    }
}

impl<'a> Env<'a> {
    /// The stream's unique ID, generated on first use, or `None` without `unique-id-format`.
    pub fn unique_id(&self) -> Option<&'a [u8]> {
        let transaction = self.transaction?;
        if let Some(id) = transaction.kept(transaction.unique_id) {
            return Some(id);
        }
        if transaction.is_http && transaction.request.method().is_empty() {
            // A malformed request has no ID.
            return None;
        }
        let format = self.sockets?.unique_id_format()?;
        transaction.early_id.get_or_make(|id| format.write(self, id))
    }

    /// An environment that only has the process, for startup and as the basis of others.
    pub fn new(process: &'a Process, now_ms: u64) -> Self {
        Self {
            process,
            session: None,
            transaction: None,
            request_bytes: &[],
            response_bytes: &[],
            complete: true,
            may_change: Cell::new(false),
            now_ms,
            log_origin: LogOrigin::Unspecified,
            sockets: None,
            check_vars: None,
        }
    }

    /// An environment with a session and its transaction.
    pub fn of(process: &'a Process, session: &'a Session, transaction: &'a Transaction, now_ms: u64) -> Self {
        Self { session: Some(session), transaction: Some(transaction), ..Self::new(process, now_ms) }
    }

    /// The client's address, including changes by rules, or `None` without a client.
    pub fn source(&self) -> Option<Endpoint> {
        let changed = self.transaction.and_then(|transaction| transaction.source);
        changed.or_else(|| self.session.map(|session| session.source()))
    }

    /// Reports that further bytes of a connection may change the result, so that the caller waits for them. HTTP messages are
    /// evaluated as a whole and never wait.
    pub(crate) fn want_bytes(&self, wanted: bool) {
        let is_http = self.transaction.is_some_and(|transaction| transaction.is_http);
        self.may_change.set(wanted && !self.complete && !is_http);
    }
}
