//! What is known of one exchange, an HTTP request and its response, or of one TCP stream, from its
//! first byte to its log line; and what may be told of it: to expressions ([`view`]), to logs
//! ([`report`]), to counters ([`finish`]).

pub(crate) mod cache;
pub(crate) mod compression;
pub(crate) mod ending;
mod extra_attempt;
mod fastcgi_params;
pub(crate) mod filters;
pub(crate) mod finish;
pub(crate) mod lua;
mod mirror;
pub(crate) mod report;
mod server_choice;
pub(crate) mod sockets;
mod spoe;
pub(crate) mod trace;
pub(crate) mod unique_id;
pub(crate) mod view;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use http::{BodyLength, Method};
use plan::Proxy;
use rules::Spoken;
use runtime::timer::now_ms;
use sample::track::{self, CountedEvent};
use sample::transaction::TimeoutSlot;
use sample::{Endpoint, Phase, Scratch, Transaction};

use crate::client::Client;
use crate::fault::Fault;
use crate::flow::{Flow, MemoryBody, Trace};
use crate::server::per_worker::LocalProxy;
use compression::Coded;
use sockets::ServerSocket;

pub(crate) use self::cache::state::{Caching, Given};
pub(crate) use extra_attempt::ExtraAttempt;
pub(crate) use fastcgi_params::FcgiParams;
pub(crate) use mirror::Mirrors;
pub(crate) use server_choice::{BoundServer, Choice, CookieServer, Dates};
pub(crate) use spoe::Engaged;

/// What a request in progress needs beside its connection. Reused, so that a warm request allocates
/// nothing.
#[derive(Default)]
pub(crate) struct Exchange {
    /// What rules and logs see of it.
    pub(crate) txn: Transaction,
    /// Where it is, for the termination state.
    pub(crate) phase: Phase,
    /// How far the stream came in TCP mode, if it began so.
    pub(crate) upgrade: Upgrade,
    pub(crate) backend: Option<Rc<LocalProxy>>,
    /// Which server it is for.
    pub(crate) choice: Choice,
    /// Keys that are noted with the server, by their `stick` lines.
    pub(crate) sticky: Vec<(usize, Scratch)>,
    /// What compression does with it, where there is any.
    pub(crate) coded: Option<Box<Coded>>,
    /// What `filter trace` is told, where a proxy has one.
    pub(crate) trace: Option<Rc<Trace>>,
    /// What is copied of it for other backends (`mirror`), where a rule says so.
    pub(crate) mirrors: Option<Box<Mirrors>>,
    /// The engines that ask agents about it (SPOE), where a proxy has one.
    pub(crate) engaged: Option<Box<Engaged>>,
    /// What a cache has to do with it, where rules asked one.
    pub(crate) caching: Option<Box<Caching>>,
    /// What scripts have to do with it, where any had.
    pub(crate) scripting: Option<Box<lua::scripting::Scripting>>,
    /// The filters of scripts that see it, where a proxy has any.
    pub(crate) filtering: Option<Box<lua::filtering::Filtering>>,
    /// The request as it came, where it may have to be made once more.
    pub(crate) original: Option<Box<http::Head>>,
    /// From the client to the server.
    pub(crate) upload: Flow,
    /// From the server to the client.
    pub(crate) download: Flow,
    pub(crate) request_body: RequestBody,
    pub(crate) response_body: ResponseBody,
    /// The body of an answer made here.
    pub(crate) reply: MemoryBody,
    /// The error that the answer made here stands for, whatever its page says (`errorloc`,
    /// `errorfile`); 0 for none.
    pub(crate) error_status: u16,
    /// Whether any byte of a final response was sent to the client.
    pub(crate) answered: bool,
    /// Whether the client asked with HEAD, whatever rules made of it.
    pub(crate) head_only: bool,
    /// Whether the server's answer makes a tunnel of both connections.
    pub(crate) is_tunnel: bool,
    /// Whether the client's connection can take another request.
    pub(crate) keep_alive: bool,
    /// Whether the server said, before our own edits, that it closes.
    pub(crate) server_closes: bool,
    /// Whether rules said that the server's connection closes behind the response.
    pub(crate) closes_server: bool,
    /// What rules say of the parameters that an application gets.
    pub(crate) fastcgi: Option<Box<FcgiParams>>,
    /// The connection to the server, for what asks the kernel about it.
    pub(crate) server_socket: ServerSocket,
    /// Bytes from and to the client that the counters have already.
    pub(crate) counted: (u64, u64),
    /// The attempt beyond the first that is being made, where such are limited.
    pub(crate) extra: Option<Box<ExtraAttempt>>,
}

/// What is known of the request's body, apart from its way to the server.
#[derive(Default)]
pub(crate) struct RequestBody {
    /// How it ends, as it came: rules cannot change it.
    pub(crate) length: BodyLength,
    /// Whether it comes as payload alone, whose end its stream tells.
    pub(crate) is_bare: bool,
    /// What rules see of it: buffered and decoded; empty unless something asked for it.
    pub(crate) seen: Vec<u8>,
    /// Whether `seen` is all of it.
    pub(crate) is_complete: bool,
    /// Whether the client closed before all of it was there.
    pub(crate) is_cut: bool,
    /// Whether the client said nothing for its whole time while rules waited for more.
    pub(crate) is_late: bool,
    /// When the client was last heard of while rules waited for more, in ms of the worker's clock; 0
    /// where none did.
    pub(crate) heard_ms: u64,
    /// What a retry sends again.
    pub(crate) kept: Vec<u8>,
    /// Whether rules took its framing away: it is read and not sent.
    pub(crate) is_dropped: bool,
    /// Whether the client waits for a 100 that nobody has sent yet.
    pub(crate) expects_continue: bool,
}

/// What is known of the response's body, apart from its way to the client.
#[derive(Default)]
pub(crate) struct ResponseBody {
    /// How it ends, as the server sends it.
    pub(crate) length: BodyLength,
    /// Whether it comes as payload alone, whose end its stream tells.
    pub(crate) is_bare: bool,
    /// What rules see of its beginning.
    pub(crate) seen: Vec<u8>,
    /// Whether a rule waited for something since its head was there: the time is no longer that of
    /// the head.
    pub(crate) waited: bool,
    /// Whether the server said nothing for its whole time while rules looked at what there was.
    pub(crate) is_silent: bool,
    /// When the server was last heard of while rules waited for more, in ms of the worker's clock; 0
    /// where none did.
    pub(crate) heard_ms: u64,
    /// Whether its connection broke meanwhile.
    pub(crate) is_broken: bool,
}

/// What ended the wait for a request.
pub(crate) enum Arrival {
    /// Bytes, or the end of the stream.
    Ready,
    /// Bytes that were looked at before: the first came at this instant (µs of the monotonic clock),
    /// and `late` where no more came in time.
    Begun {
        /// When the first came.
        since: u64,
        /// Whether the time for more is over.
        late: bool,
    },
    /// Nothing within the time allowed.
    Expired,
    /// A request on a stream of its own, whose head is there.
    Stream(Box<Exchange>),
    /// The head is in the exchange.
    Received,
    /// A stream of TCP that goes on as a request.
    Upgraded(Box<Exchange>),
}

/// What to do with the connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for another request.
    KeepAlive,
    /// Do that once the rest of this one has been read and thrown away.
    Drain,
    /// Close.
    Close,
    /// Close, once the client has had time to read what it was sent although it sends on itself.
    Linger,
}

/// How far a stream of TCP came before it became one of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Upgrade {
    /// It did not begin as one.
    #[default]
    None,
    /// A rule of the frontend's `tcp-request content` switched (`switch-mode`).
    ByRule(Spoken),
    /// Its backend is one of HTTP, and is chosen.
    ByBackend,
}

/// How a step ends the usual course.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Something went wrong.
    Fault(Fault),
    /// The answer was made here and lies in the transaction's response and `reply`.
    Reply,
    /// What was found in a cache answers it.
    Cached,
    /// A service of a script answers it.
    Script,
    /// The connection just ends.
    Close,
    /// The stream goes on in HTTP mode.
    Upgrade(Upgrade),
    /// The connection just ends, and no log line tells of it.
    Silent,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

thread_local! {
    // Boxed, so that handing one out moves a pointer.
    #[allow(clippy::vec_box)]
    static FREE: RefCell<Vec<Box<Exchange>>> = const { RefCell::new(Vec::new()) };
}

impl Exchange {
    /// One of the worker's, as new.
    pub(crate) fn take() -> Box<Self> {
        FREE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Gives it back for the next request.
    pub(crate) fn give(mut self: Box<Self>) {
        self.reset();
        FREE.with_borrow_mut(|free| free.push(self));
    }

    fn reset(&mut self) {
        let Self { txn, choice, upload, download, request_body, response_body, reply, .. } = self;
        txn.reset();
        choice.reset();
        upload.start(BodyLength::None, Default::default());
        download.start(BodyLength::None, Default::default());
        request_body.reset();
        response_body.length = BodyLength::None;
        response_body.is_bare = false;
        response_body.seen.clear();
        response_body.waited = false;
        response_body.is_silent = false;
        response_body.heard_ms = 0;
        response_body.is_broken = false;
        reply.clear();
        self.phase = Phase::Request;
        self.upgrade = Upgrade::None;
        self.trace = None;
        self.engaged = None;
        self.mirrors = None;
        self.fastcgi = None;
        self.caching = None;
        self.scripting = None;
        self.filtering = None;
        self.original = None;
        self.coded = None;
        self.backend = None;
        self.error_status = 0;
        self.answered = false;
        self.head_only = false;
        self.is_tunnel = false;
        self.keep_alive = false;
        self.server_closes = false;
        self.closes_server = false;
        self.server_socket = ServerSocket::None;
        self.counted = (0, 0);
        self.extra = None;
        self.sticky.clear();
    }

    /// Counts `event` in what the request and its connection track in stick tables.
    #[inline]
    pub(crate) fn note(&self, client: &Client, event: CountedEvent) {
        track::note(&client.session, &self.txn.trackers, event, now_ms());
    }

    /// Counts the request in the entries of stick tables that it and its connection track.
    #[inline]
    pub(crate) fn note_request(&mut self, client: &Client) {
        track::note_request(&client.session, &mut self.txn.trackers, now_ms());
    }

    /// Whether the request has a body.
    pub(crate) fn has_body(&self) -> bool {
        !self.upload.is_received() || self.upload.is_blocked()
    }

    /// Whether the request can be sent from its beginning again: nothing of its body was taken yet,
    /// or all of it was kept.
    pub(crate) fn can_rewind(&self) -> bool {
        self.upload.consumed() == 0 || !self.request_body.kept.is_empty()
    }

    /// Whether the client's ending its side ends the request (`option abortonclose`). Who asked for
    /// a tunnel may end its side of it at once.
    pub(crate) fn aborts_on_close(&self, client: &Client, backend: &Proxy) -> bool {
        client.aborts_on_close(backend) && self.txn.request.method_id() != Method::Connect
    }

    /// Whether all of the request was here when it was first sent, and can be sent again whatever
    /// the server took of it.
    pub(crate) fn is_kept(&self) -> bool {
        // What follows a CONNECT is the tunnel's, and has no end yet.
        !self.request_body.kept.is_empty()
            || matches!(self.request_body.length, BodyLength::None | BodyLength::Length(0))
                && self.txn.request.method_id() != Method::Connect
    }

    /// The timeout of `slot`: what a rule set, or the configured one.
    pub(crate) fn timeout(&self, slot: TimeoutSlot, configured: Option<Duration>) -> Option<Duration> {
        match self.txn.timeouts[slot as usize] {
            Some(0) => None,
            Some(ms) => Some(Duration::from_millis(ms.into())),
            None => configured,
        }
    }

    /// The client's address as this request sees it.
    pub(crate) fn source(&self, client: &Client) -> Endpoint {
        self.txn.source.unwrap_or_else(|| client.session.source())
    }

    /// The address it was sent to, as this request sees it.
    pub(crate) fn destination(&self, client: &Client) -> Endpoint {
        self.txn.destination.unwrap_or_else(|| client.session.destination())
    }

    /// What expressions see of the request's content.
    pub(crate) fn request_bytes<'a>(&'a self, client: &'a Client) -> &'a [u8] {
        if self.txn.is_http { &self.request_body.seen } else { client.side.received() }
    }
}

impl RequestBody {
    /// Checks that the client did not fail while rules waited for the body.
    ///
    /// # Errors
    /// The client closed, or was silent for too long.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        match (self.is_cut, self.is_late) {
            (true, _) => Err(Fault::ClientCut),
            (false, true) => Err(Fault::ClientTimeout),
            (false, false) => Ok(()),
        }
    }

    fn reset(&mut self) {
        self.length = BodyLength::None;
        self.is_bare = false;
        self.seen.clear();
        self.is_complete = false;
        self.is_cut = false;
        self.is_late = false;
        self.heard_ms = 0;
        self.kept.clear();
        self.is_dropped = false;
        self.expects_continue = false;
    }
}
