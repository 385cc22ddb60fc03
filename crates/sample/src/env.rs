//! What an expression can see when it is evaluated.

use std::cell::Cell;

use state::Process;

use crate::log_origin::LogOrigin;
use crate::session::Session;
use crate::slots::Slots;
use crate::socket::TcpFacts;
use crate::transaction::Transaction;

/// Everything an expression reads. Made for a moment and dropped before anything is changed.
pub struct Env<'a> {
    /// The process.
    pub process: &'a Process,
    /// The client connection; `None` in health checks and at boot (`set-var` in global).
    pub session: Option<&'a Session>,
    /// The request; `None` before there is a stream.
    pub transaction: Option<&'a Transaction>,
    /// Bytes received from the client and not forwarded: the body as far as it came, decoded of
    /// chunks in HTTP mode; raw bytes in TCP mode.
    pub request_bytes: &'a [u8],
    /// The same of what was received from the server.
    pub response_bytes: &'a [u8],
    /// Whether no more bytes will come into what is being looked at: end of stream, full buffer or
    /// delay over.
    pub complete: bool,
    /// Set by a fetch whose result may change when more bytes come. The caller waits if it may.
    pub may_change: Cell<bool>,
    /// Milliseconds of the monotonic clock.
    pub now_ms: u64,
    /// Where the log line is made that is being written.
    pub log_origin: LogOrigin,
    /// The sockets of the connections; `None` where there are none to ask.
    pub sockets: Option<&'a dyn Sockets>,
    /// The variables of a health check; `None` elsewhere.
    pub check_vars: Option<&'a Slots>,
}

/// A text that is made from a view: a log format.
pub trait FormatText {
    /// Appends the text to `out`.
    fn write(&self, env: &Env<'_>, out: &mut Vec<u8>);
}

/// Facts about a stream that `proxy` provides: its sockets, and the format of its id.
pub trait Sockets {
    /// The kernel's measurements of the client's connection; `None` unless it is a TCP connection.
    fn client_tcp(&self) -> Option<TcpFacts>;
    /// The same of the connection to the server; `None` also before it is open.
    fn server_tcp(&self) -> Option<TcpFacts>;
    /// The SYN of the client's connection if the listener saves it (`tcp-ss`); the first call takes it.
    fn saved_syn(&self) -> Option<Vec<u8>>;
    /// The numbers of the descriptors: the client's, the server's.
    fn descriptors(&self) -> [Option<i32>; 2];
    /// The frontend's `unique-id-format`.
    fn unique_id_format(&self) -> Option<&dyn FormatText> {
        None
    }
}

impl<'a> Env<'a> {
    /// The unique id of the stream, made now if nothing used it before; `None` without
    /// `unique-id-format`.
    pub fn unique_id(&self) -> Option<&'a [u8]> {
        let transaction = self.transaction?;
        if let Some(id) = transaction.kept(transaction.unique_id) {
            return Some(id);
        }
        if transaction.is_http && transaction.request.method().is_empty() {
            // A malformed request has none.
            return None;
        }
        let format = self.sockets?.unique_id_format()?;
        transaction.early_id.get_or_make(|id| format.write(self, id))
    }

    /// A view of nothing but the process: boot, and the base of the others.
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

    /// A view of a session and its request.
    pub fn of(process: &'a Process, session: &'a Session, transaction: &'a Transaction, now_ms: u64) -> Self {
        Self { session: Some(session), transaction: Some(transaction), ..Self::new(process, now_ms) }
    }

    /// Says that more of a connection's bytes might change the result, so that the caller waits for
    /// them. Of HTTP messages are looked at instead, where none come that would.
    pub(crate) fn want_bytes(&self, wanted: bool) {
        let is_http = self.transaction.is_some_and(|transaction| transaction.is_http);
        self.may_change.set(wanted && !self.complete && !is_http);
    }
}
