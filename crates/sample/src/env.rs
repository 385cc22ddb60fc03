//! What an expression can see when it is evaluated ([`Env`]), and what names mean when it is compiled ([`Scope`]).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use state::{Mode, Process, Proxy};

use crate::log_profile::{LogOrigin, LogProfile};
use crate::session::Session;
use crate::socket::Sockets;
use crate::transaction::Transaction;

/// Everything an expression reads. Made for a moment and dropped before anything is changed.
pub struct Env<'a> {
    /// The process.
    pub process: &'a Process,
    /// The client connection; `None` in health checks and at boot (`set-var` in global).
    pub session: Option<&'a Session>,
    /// The request; `None` before there is a stream.
    pub transaction: Option<&'a Transaction>,
    /// Bytes received from the client and not forwarded: the body as far as it came, decoded of chunks in HTTP
    /// mode; raw bytes in TCP mode.
    pub request_bytes: &'a [u8],
    /// Likewise from the server.
    pub response_bytes: &'a [u8],
    /// Whether no more bytes will come into what is being looked at: end of stream, full buffer or delay over.
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
    pub check_vars: Option<&'a crate::vars::Slots>,
}

impl<'a> Env<'a> {
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

    /// Says that more of a connection's bytes might change the result, so that the caller waits for them. Of HTTP messages
    /// are looked at instead, where none come that would.
    pub(crate) fn want_bytes(&self, wanted: bool) {
        let is_http = self.transaction.is_some_and(|transaction| transaction.is_http);
        self.may_change.set(wanted && !self.complete && !is_http);
    }
}

/// Where an expression stands: decides which fetches may be used (the columns of `-dKsmp`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Place {
    /// `tcp-request connection`.
    TcpConnection,
    /// `tcp-request session`.
    TcpSession,
    /// `tcp-request content` of a frontend or backend.
    TcpRequestContent,
    /// `http-request`, `use_backend`, `redirect` …
    HttpRequest,
    /// `use-server`, `balance`, server names and `source`: the request on the backend's side.
    BackendRequest,
    /// `tcp-response content`.
    TcpResponseContent,
    /// `http-response`, and `http-after-response`.
    HttpResponse,
    /// Log formats, when all is over.
    Log,
    /// Health checks.
    Check,
    /// `global`, at boot.
    Boot,
    /// A command of the runtime socket.
    Command,
}

impl Place {
    /// What rules that stand there are called; `None` where no rules stand.
    pub(crate) fn rules(self) -> Option<&'static str> {
        Some(match self {
            Self::TcpConnection => "tcp-request connection",
            Self::TcpSession => "tcp-request session",
            Self::TcpRequestContent => "tcp-request content",
            Self::HttpRequest => "http-request header",
            Self::BackendRequest => "use-server",
            Self::TcpResponseContent => "tcp-response content",
            Self::HttpResponse => "http-response header",
            Self::Log | Self::Check | Self::Boot | Self::Command => return None,
        })
    }
}

/// The messages of an `http-errors` section: status, and the bytes of the file.
pub type HttpErrors = Arc<[(u16, Arc<[u8]>)]>;

/// All proxies by name, for what looks one up at run time.
#[derive(Debug, Default)]
pub struct Directory {
    /// Those with a frontend's side.
    pub frontends: HashMap<Box<str>, Arc<Proxy>>,
    /// Those with a backend's side.
    pub backends: HashMap<Box<str>, Arc<Proxy>>,
}

/// What names mean while a plan is resolved. Implemented by `config`.
pub trait Names {
    /// The proxy with a backend's side of that name.
    fn backend(&self, name: &str) -> Option<Arc<Proxy>>;
    /// The proxy with a frontend's side of that name.
    fn frontend(&self, name: &str) -> Option<Arc<Proxy>>;
    /// The users of a `userlist`: checks a name and password, and tells groups.
    fn userlist(&self, name: &str) -> Option<Arc<crate::auth::Userlist>> {
        let _ = name;
        None
    }
    /// Whether `expose-experimental-directives` allows what is experimental.
    fn experimental(&self) -> bool {
        true
    }
    /// The raw messages of an `http-errors` section, by status.
    fn http_errors(&self, name: &str) -> Option<HttpErrors> {
        let _ = name;
        None
    }
    /// Reads a file named in the configuration (error files, keys), relative to the working directory. At run time none is.
    fn read_file(&self, path: &str) -> Result<Vec<u8>, String> {
        Err(format!("`{path}`: no file is read at run time"))
    }
    /// Reads a file of patterns, which is often large and read once: its bytes are the caller's, and nobody keeps a copy.
    fn read_patterns(&self, path: &str) -> Result<Vec<u8>, String> {
        self.read_file(path)
    }
    /// An environment variable (`env`). The configuration may have changed what the process was started with.
    fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        std::env::var_os(std::ffi::OsStr::from_bytes(name)).map(OsStringExt::into_vec)
    }
    /// The ring of that name, for the converter `debug`.
    fn ring(&self, name: &str) -> Option<Arc<state::Ring>> {
        let _ = name;
        None
    }
    /// The certificates that expressions name, those of `crt-store` sections with `jwt on` among them.
    fn certificates(&self) -> Arc<crate::keys::Certificates> {
        Arc::default()
    }
    /// All proxies, for names that are only known at run time; made once and shared.
    fn directory(&self) -> Option<Arc<Directory>> {
        None
    }
    /// The bandwidth filter of that name in the proxy being compiled.
    fn bandwidth(&self, name: &str) -> Option<Arc<crate::bandwidth::BandwidthFilter>> {
        let _ = name;
        None
    }
    /// The `resolvers` section of that name.
    fn resolvers(&self, name: &str) -> Option<Arc<state::resolvers::Section>> {
        let _ = name;
        None
    }
    /// The names of all `resolvers` sections, for suggestions.
    fn resolvers_names(&self) -> Vec<Box<str>> {
        Vec::new()
    }
    /// A new capture slot of the current frontend for values of up to `length` bytes; `None` outside frontends.
    fn capture_slot(&self, length: usize) -> Option<usize> {
        let _ = length;
        None
    }
    /// The `log-profile` sections by name, where rules may name them.
    fn log_profiles(&self) -> Option<&HashMap<Box<str>, Arc<LogProfile>>> {
        None
    }
    /// Keeps a warning about what is being compiled.
    fn warn(&self, warning: diag::Diagnostic) {
        let _ = warning;
    }
    /// The file and line of a place, for `last_rule_file` and `last_rule_line`.
    fn position(&self, span: diag::Span) -> (String, u32) {
        let _ = span;
        (String::new(), 0)
    }
}

/// The setting in which expressions, conditions and rules of one proxy are compiled.
pub struct Scope<'a> {
    /// What names mean.
    pub names: &'a dyn Names,
    /// The variables of the whole plan: names become slots.
    pub variables: &'a RefCell<crate::vars::Variables>,
    /// Pattern files and other pattern sets of the whole plan, shared between ACLs and maps.
    pub patterns: &'a RefCell<crate::pattern::PatternSets>,
    /// The ACLs of the proxy declared so far, by name.
    pub acls: &'a crate::acl::Acls,
    /// The proxy itself; `None` in global.
    pub proxy: Option<&'a Arc<Proxy>>,
    /// Its mode.
    pub mode: Mode,
    /// Where the expression stands.
    pub place: Place,
    /// Whether it is inherited from a defaults section, which has no servers of its own.
    pub inherited: bool,
}
