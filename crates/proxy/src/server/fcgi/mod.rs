//! Connections to servers that speak FastCGI: one or many requests at a time share each, whoever
//! their clients are.
//!
//! One task a connection owns the socket ([`task`]). A request that has such a connection begins on
//! it with its parameters.

mod task;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};

use ::fcgi::{Config, Parameters};
use base::clock::WallTime;
use http::{BodyLength, Head, KnownName, Method, ParseError};
use plan::proxy::Reuse;
use sample::{Endpoint, StreamFacts};

use super::h1::{Key, NoHead, Refused};
use super::local::LocalServer;
use super::open::Open;
use super::pool::Ask;
use crate::flow::{Flow, FlowError, Sink, Source};
use crate::stream::fastcgi::{self, Connection, Stream};

/// Logs what an application says.
pub(crate) type Say = Box<dyn Fn(&[u8])>;

/// What is known of a connection when it is opened.
pub(crate) struct Opened {
    pub(crate) socket: net::Stream,
    /// What is sent before anything else (PROXY protocol).
    pub(crate) preamble: Vec<u8>,
    pub(crate) key: Key,
    pub(crate) ends: Option<(Endpoint, Endpoint)>,
    /// Whether it serves one request alone (`http-reuse never`).
    pub(crate) for_one: bool,
    pub(crate) say: Say,
    pub(crate) open: Open,
}

/// A connection that requests share.
pub(crate) struct Shared {
    connection: Rc<Connection>,
    key: Key,
    /// Requests sent over it so far.
    uses: Cell<u32>,
    /// Requests that have it and have not begun yet.
    waiting: Cell<usize>,
    /// Whether it takes no more requests: it ends once those that it has are over.
    is_leaving: Cell<bool>,
    /// Whether its task has ended.
    is_over: Cell<bool>,
    ends: Option<(Endpoint, Endpoint)>,
    tls: Option<Arc<tls::Details>>,
    open: Open,
}

/// The connections of one worker that speak FastCGI.
#[derive(Default)]
pub(crate) struct Applications(RefCell<Vec<Weak<Shared>>>);

/// A request's share of a connection.
pub(crate) struct Request {
    shared: Rc<Shared>,
    /// Its stream, once it has begun.
    stream: Option<Box<Stream>>,
    /// Why it cannot be said in FastCGI.
    refused: Option<Refused>,
    method: Method,
    /// Which of its connection's requests it is.
    uses: u32,
}

impl Applications {
    /// A connection that has room for a request, if there is one that this may use.
    #[inline]
    pub(crate) fn share(&self, server: &LocalServer, ask: Ask<'_>) -> Option<Box<Request>> {
        if self.0.borrow().is_empty() { None } else { self.find(server, ask) }
    }

    fn find(&self, server: &LocalServer, ask: Ask<'_>) -> Option<Box<Request>> {
        let all = self.0.borrow();
        let mut fitting = all.iter().filter_map(Weak::upgrade).filter(|one| one.may_serve(server, ask));
        Some(Request::begin(fitting.find(|one| one.has_room())?))
    }

    /// Makes a connection of a socket; its first request comes back.
    pub(crate) fn begin(self: &Rc<Self>, opened: Opened, config: Config) -> Box<Request> {
        let Opened { socket, preamble, key, ends, for_one, say, open } = opened;
        let tls = socket.tls().map(|session| session.details().clone());
        let shared = Rc::new(Shared {
            connection: Rc::new(Connection::new(::fcgi::Connection::new(config), socket.as_fd().as_raw_fd())),
            key,
            uses: Cell::new(0),
            waiting: Cell::new(0),
            is_leaving: Cell::new(for_one),
            is_over: Cell::new(false),
            ends,
            tls,
            open,
        });
        let mut all = self.0.borrow_mut();
        all.retain(|one| one.strong_count() > 0);
        all.push(Rc::downgrade(&shared));
        drop(all);
        // Before the task begins: a connection that is to serve a request is not idle.
        let request = Request::begin(shared.clone());
        tokio::task::spawn_local(task::run(self.clone(), shared, socket, preamble, say));
        request
    }

    /// How many connections lead to this server.
    fn count(&self, server: &LocalServer) -> usize {
        self.0.borrow().iter().filter_map(Weak::upgrade).filter(|one| one.open.server.is(server)).count()
    }

    /// Has all connections end once their requests are over: they are of an older plan.
    pub(crate) fn retire(&self) {
        for one in self.0.borrow().iter().filter_map(Weak::upgrade) {
            one.is_leaving.set(true);
            one.connection.touch();
        }
    }

    /// Has the connections to a server end that are idle.
    pub(crate) fn look(&self, server: &LocalServer) {
        let all = self.0.borrow();
        let mine = |one: &Rc<Shared>| one.open.server.is(server);
        all.iter().filter_map(Weak::upgrade).filter(mine).for_each(|one| one.connection.touch());
    }
}

impl Shared {
    /// Whether it takes one more request.
    fn has_room(&self) -> bool {
        !self.is_leaving.get()
            && self.open.is_current()
            && self.connection.engine.borrow().free() > self.waiting.get()
            && (self.open.server.max_reuse < 0 || i64::from(self.uses.get()) <= self.open.server.max_reuse)
    }

    /// Whether what asks may use it at all.
    fn may_serve(&self, server: &LocalServer, ask: Ask<'_>) -> bool {
        let allowed = match (ask.reuse, ask.first) {
            (Reuse::Never, _) | (Reuse::Safe, true) => false,
            (Reuse::Aggressive, true) => self.uses.get() > 1,
            _ => true,
        };
        allowed && self.open.server.is(server) && *self.key == *ask.key
    }

    /// Whether no request has it.
    fn is_free(&self) -> bool {
        self.waiting.get() == 0 && self.connection.engine.borrow().is_forgotten()
    }
}

impl Request {
    fn begin(shared: Rc<Shared>) -> Box<Self> {
        shared.waiting.set(shared.waiting.get() + 1);
        shared.uses.set(shared.uses.get() + 1);
        let uses = shared.uses.get();
        Box::new(Self { shared, stream: None, refused: None, method: Method::Other, uses })
    }

    /// Where it leads.
    pub(crate) fn server(&self) -> &Rc<LocalServer> {
        &self.shared.open.server
    }

    /// Requests sent over its connection so far, this one included.
    pub(crate) fn uses(&self) -> u32 {
        self.uses
    }

    /// Our end of its connection and theirs.
    pub(crate) fn ends(&self) -> Option<(Endpoint, Endpoint)> {
        self.shared.ends
    }

    /// What is known of TLS on its connection.
    pub(crate) fn tls(&self) -> Option<&Arc<tls::Details>> {
        self.shared.tls.as_ref()
    }

    /// What it is known as.
    pub(crate) fn facts(&self) -> StreamFacts {
        let none = StreamFacts { id: 0, open: 0, most: 0, reset: None };
        self.stream.as_ref().map_or(none, |stream| stream.facts())
    }

    /// The kernel's number of its connection.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.shared.connection.descriptor
    }

    /// Begins the request with its parameters; with `ends` it has no body. Where that is not
    /// possible any more, the next call tells.
    pub(crate) fn send_head(&mut self, parameters: &Parameters, method: Method, ends: bool) {
        self.method = method;
        let shared = &self.shared;
        if shared.is_over.get() {
            return;
        }
        if let Ok(stream) = Stream::open(&shared.connection, parameters, method, ends) {
            shared.waiting.set(shared.waiting.get() - 1);
            self.stream = Some(Box::new(stream));
        }
    }

    /// The request cannot be said in FastCGI.
    pub(crate) fn refuse(&mut self, why: Refused) {
        self.refused = Some(why);
    }

    /// Whether there is room for more of the response.
    pub(crate) fn has_room(&mut self) -> bool {
        self.stream.as_mut().is_some_and(|stream| stream.has_room())
    }

    /// Where the body of the response comes from.
    pub(crate) fn source(&mut self) -> Source<'_> {
        self.stream.as_mut().map_or(Source::Gone, |stream| Source::Fcgi(stream))
    }

    /// Where the body of the request goes.
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        self.stream.as_mut().map_or(Sink::Gone, |stream| Sink::Fcgi(stream))
    }

    /// Receives more of the response's body: 0 at its end.
    ///
    /// # Errors
    /// The response is broken, or there is none.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Some(stream) => stream.poll_fill(context),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Has `flow` take in what is here of the body.
    ///
    /// # Errors
    /// None that a body could bring.
    pub(crate) fn admit(&mut self, flow: &mut Flow) -> Result<(), FlowError> {
        let input = self.stream.as_mut().and_then(|stream| stream.input.as_mut());
        input.map_or(Ok(()), |input| flow.admit(input))
    }

    /// What was received and nobody has taken yet.
    pub(crate) fn received(&self) -> &[u8] {
        self.stream.as_ref().map_or(&[][..], |stream| stream.received())
    }

    /// Takes the head of the response, once it is there. Its date is said where the application does
    /// not, and its length where all of it is here, as HAProxy does.
    ///
    /// # Errors
    /// None will come.
    pub(crate) fn poll_head(&mut self, context: &Context<'_>, head: &mut Head) -> Poll<Result<(), NoHead>> {
        let method = self.method;
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Err(self.refused.map_or(NoHead::Refused, NoHead::Unspeakable)));
        };
        let polled = stream.poll_head(context, head).map_err(|none| match none {
            fastcgi::NoHead::Refused => NoHead::Refused,
            fastcgi::NoHead::Cut => NoHead::Nothing(None),
            fastcgi::NoHead::Malformed(kind) => NoHead::Malformed(ParseError { kind, offset: 0 }),
        });
        if matches!(polled, Poll::Ready(Ok(()))) && head.get_known(KnownName::Date).is_none() {
            head.append(b"date", http::date::format(WallTime::now().seconds).as_bytes());
        }
        if let Poll::Ready(Ok(())) = polled
            && let BodyLength::UntilClose | BodyLength::Chunked = head.response_body(method)
            && let Some(length) = stream.whole_length()
        {
            head.set_content_length(length);
        }
        polled
    }

    /// How the body of the response ends. One whose length nobody told ends with the output: to
    /// whoever asks, it is as one in chunks.
    pub(crate) fn body_length(&self, head: &Head, method: Method) -> BodyLength {
        match head.response_body(method) {
            BodyLength::None => BodyLength::None,
            BodyLength::Length(length) => BodyLength::Length(length),
            BodyLength::Chunked | BodyLength::UntilClose => BodyLength::Chunked,
        }
    }

    /// What is here of the body; says whether that is all of it.
    pub(crate) fn decode(&self, length: BodyLength, out: &mut Vec<u8>) -> bool {
        match &self.stream {
            Some(stream) => stream.decode(length, out),
            None => {
                out.clear();
                !matches!(length, BodyLength::Length(1..))
            }
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.stream.is_none() {
            self.shared.waiting.set(self.shared.waiting.get().saturating_sub(1));
        }
        // Its stream is released behind this; the connection may then be idle.
        self.shared.connection.touch();
    }
}
