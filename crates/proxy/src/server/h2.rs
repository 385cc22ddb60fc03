//! A connection to a server that speaks HTTP/2: many requests share it, whoever their clients are.
//!
//! One task a connection owns the socket ([`carriers`](super::carriers)). A request that has such a
//! connection opens its stream with its head.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ::h2::message::Scheme;
use http::{BodyLength, Head, Method};
use plan::proxy::Reuse;
use runtime::{Boxed, Boxes, Local};
use sample::{Endpoint, StreamFacts};
use state::counters::Multiplexed as Counters;

use super::h1::{Key, NoHead};
use super::local::LocalServer;
use super::open::Open;
use super::pool::Ask;
use crate::flow::{Flow, FlowError, Sink, Source};
use crate::stream::{Connection, Stream};

/// The scheme of requests whose target tells none, as HAProxy says it whatever is spoken.
const SCHEME: Scheme = Scheme::Https;

/// A connection that requests share.
pub(crate) struct Multiplexed {
    pub(super) connection: Rc<Connection>,
    pub(super) key: Key,
    /// Requests sent over it so far.
    pub(super) uses: Cell<u32>,
    /// Requests that have it and have not opened their stream yet.
    pub(super) waiting: Cell<u32>,
    /// Whether the server's settings are known.
    pub(super) is_settled: Cell<bool>,
    /// Requests that wait for that.
    pub(super) unsettled: RefCell<Vec<Waker>>,
    /// Whether it takes no more requests: it ends once those that it has are over.
    pub(super) is_leaving: Cell<bool>,
    pub(super) ends: Option<(Endpoint, Endpoint)>,
    pub(super) tls: Option<Arc<tls::Details>>,
    /// The backend of its server.
    pub(super) backend: Local<state::Proxy>,
    pub(super) open: Open,
    /// Who takes it to another worker, where somebody has asked for it.
    pub(super) leaves_to: RefCell<Option<Give>>,
}

/// Gives an idle connection to whoever has asked for it.
pub(crate) type Give = Box<dyn FnOnce(Handed)>;

/// An idle connection on its way to another worker.
pub(crate) struct Handed {
    pub(super) stream: net::Detached,
    pub(super) engine: ::h2::Connection<Vec<u8>>,
    pub(super) is_settled: bool,
    pub(super) uses: u32,
    pub(super) ends: Option<(Endpoint, Endpoint)>,
    pub(super) open: super::Handed,
}

thread_local! {
    /// The worker's memory for requests.
    static REQUESTS: Boxes<Request> = Boxes::default();
}

/// A [`Request`] in a box that is used again.
pub(crate) struct Held(Option<Boxed<Request>>);

impl Deref for Held {
    type Target = Request;

    fn deref(&self) -> &Request {
        self.0.as_ref().unwrap_or_else(|| unreachable!("the box is given back by Drop alone"))
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Request {
        self.0.as_mut().unwrap_or_else(|| unreachable!("the box is given back by Drop alone"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(boxed) = self.0.take() {
            // Where the thread itself ends there is nobody to give it back to.
            let _ = REQUESTS.try_with(|requests| requests.take_back(boxed));
        }
    }
}

/// A request's share of it.
pub(crate) struct Request {
    pub(crate) shared: Rc<Multiplexed>,
    /// Its stream, once its head was sent.
    stream: Option<Stream>,
    /// A head that asks for an upgrade, which waits for the server to say whether it knows of any
    /// (RFC 8441, 3).
    held: Option<Box<Head>>,
    /// Whether it cannot be said in HTTP/2, or not to this server.
    is_unspeakable: bool,
    /// Which of its connection's requests it is.
    uses: u32,
}

impl Multiplexed {
    /// Whether it takes one more request.
    pub(super) fn has_room(&self) -> bool {
        !self.is_leaving.get()
            && self.leaves_to.borrow().is_none()
            && self.open.is_current()
            && self.connection.engine.borrow().free() > self.waiting.get() as usize
            && (self.open.server.max_reuse < 0 || i64::from(self.uses.get()) <= self.open.server.max_reuse)
    }

    /// Whether what asks may use it at all.
    pub(super) fn may_serve(&self, server: &LocalServer, ask: Ask<'_>) -> bool {
        let allowed = match (ask.reuse, ask.first) {
            (Reuse::Never, _) | (Reuse::Safe, true) => false,
            (Reuse::Aggressive, true) => self.uses.get() > 1,
            _ => true,
        };
        allowed && self.open.server.is(server) && *self.key == *ask.key
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.backend.backend.mine().h2
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.get() == 0 && self.connection.engine.borrow().streams() == 0
    }
}

impl Request {
    pub(super) fn begin(shared: Rc<Multiplexed>) -> Held {
        shared.waiting.set(shared.waiting.get() + 1);
        shared.uses.set(shared.uses.get() + 1);
        let uses = shared.uses.get();
        let request = Self { shared, stream: None, held: None, is_unspeakable: false, uses };
        Held(Some(REQUESTS.with(|requests| requests.put(request))))
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

    /// What its stream is known as.
    pub(crate) fn facts(&self) -> StreamFacts {
        let none = StreamFacts { id: 0, open: 0, most: 0, reset: None };
        self.stream.as_ref().map_or(none, Stream::facts)
    }

    /// The kernel's number of its connection.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.shared.connection.descriptor
    }

    /// Breaches of the protocol that were let pass.
    pub(crate) fn glitches(&self) -> u32 {
        self.shared.connection.engine.borrow().glitches()
    }

    /// Opens the stream with the head of the request; with `ends` nothing follows. Where that is
    /// not possible any more, the next call tells.
    pub(crate) fn send_head(&mut self, head: &Head, ends: bool) {
        if head.has_upgrade() && !self.shared.is_settled.get() {
            self.held = Some(Box::new(head.clone()));
            return;
        }
        let shared = &self.shared;
        let mut engine = shared.connection.engine.borrow_mut();
        if head.has_upgrade() && !engine.peer().connect_protocol {
            drop(engine);
            return self.refuse();
        }
        let opened = engine.open(head, SCHEME, ends);
        drop(engine);
        if let Ok(key) = opened {
            shared.waiting.set(shared.waiting.get() - 1);
            shared.counters().streams.up();
            self.stream = Some(Stream::opened(shared.connection.clone(), key, ends));
        }
    }

    /// The request cannot be said in HTTP/2: an upgrade with a body, or one of a server that knows of
    /// none.
    pub(crate) fn refuse(&mut self) {
        self.is_unspeakable = true;
    }

    /// The stream, once there is one.
    pub(crate) fn stream(&mut self) -> Option<&mut Stream> {
        self.stream.as_mut()
    }

    /// Where the body of the response comes from.
    pub(crate) fn source(&mut self) -> Source<'_> {
        self.stream.as_mut().map_or(Source::Gone, Source::H2)
    }

    /// Where the body of the request goes.
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        self.stream.as_mut().map_or(Sink::Gone, Sink::H2)
    }

    /// Receives more of the response's body: 0 at its end.
    ///
    /// # Errors
    /// The stream was reset, or there is none.
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

    /// Has the server told that nobody waits for the rest.
    pub(crate) fn cancel(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.set_code(::h2::Code::Cancel);
        }
    }

    /// What was received and nobody has taken yet.
    pub(crate) fn received(&self) -> &[u8] {
        self.stream.as_ref().map_or(&[][..], Stream::received)
    }

    /// Whether all of the response has come, and lies in what was received.
    fn is_ended(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::is_ended)
    }

    /// Takes the head of the next response, interim or final, once it is there.
    ///
    /// # Errors
    /// None will come.
    pub(crate) fn poll_head(&mut self, context: &Context<'_>, head: &mut Head) -> Poll<Result<(), NoHead>> {
        if let Some(held) = self.held.take() {
            if !self.shared.is_settled.get() && !self.shared.is_leaving.get() {
                self.shared.unsettled.borrow_mut().push(context.waker().clone());
                self.held = Some(held);
                return Poll::Pending;
            }
            self.send_head(&held, false);
        }
        match &mut self.stream {
            None if self.is_unspeakable => Poll::Ready(Err(NoHead::Nothing(None))),
            None => Poll::Ready(Err(NoHead::Refused)),
            Some(stream) => stream.poll_head(context, head).map_err(|unprocessed| match unprocessed {
                true => NoHead::Refused,
                false => NoHead::Nothing(Some(io::ErrorKind::ConnectionReset.into())),
            }),
        }
    }

    /// How the body of the response ends. One whose length nobody told ends with the stream: to
    /// whoever asks, it is as one in chunks.
    pub(crate) fn body_length(&self, head: &Head, method: Method) -> BodyLength {
        match head.response_body(method) {
            BodyLength::None => BodyLength::None,
            BodyLength::UntilClose if head.is_tunnel(method) => BodyLength::UntilClose,
            BodyLength::Length(length) => BodyLength::Length(length),
            _ if self.is_ended() => BodyLength::Length(0),
            _ => BodyLength::Chunked,
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
        if self.stream.is_some() {
            self.shared.counters().streams.down();
        } else {
            self.shared.waiting.set(self.shared.waiting.get().saturating_sub(1));
        }
        // Its stream is released behind this; the connection may then be idle.
        self.shared.connection.touch();
    }
}
