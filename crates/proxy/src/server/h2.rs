//! A connection to a server that speaks HTTP/2: many requests share it, whoever their clients are.
//!
//! One task a connection owns the socket ([`run`]): it reads, puts what came into the places of the
//! streams, and sends what their requests left once after all of them. A request that has such a
//! connection opens its stream with its head.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ::h2::message::Scheme;
use ::h2::{Event, Role};
use http::{BodyLength, Head, Method};
use net::Stream as Socket;
use plan::proxy::Reuse;
use runtime::timer::{Timer, now_ms};
use runtime::{Boxed, Boxes};
use sample::{Endpoint, StreamFacts};
use state::counters::Multiplexed as Counters;

use super::h1::{Key, NoHead};
use super::local::{LocalProxy, LocalServer};
use super::open::Open;
use super::pool::Ask;
use crate::flow::{Flow, FlowError, Sink, Source};
use crate::glitch;
use crate::stream::{Connection, Engine, Ping, Reader, Received, Stream};

/// The scheme of requests whose target tells none, as HAProxy says it whatever is spoken.
const SCHEME: Scheme = Scheme::Https;

/// A connection that requests share.
pub(crate) struct Multiplexed {
    connection: Rc<Connection>,
    key: Key,
    /// Requests sent over it so far.
    uses: Cell<u32>,
    /// Requests that have it and have not opened their stream yet.
    waiting: Cell<u32>,
    /// Whether the server's settings are known.
    is_settled: Cell<bool>,
    /// Requests that wait for that.
    unsettled: RefCell<Vec<Waker>>,
    /// Whether it takes no more requests: it ends once those that it has are over.
    is_leaving: Cell<bool>,
    ends: Option<(Endpoint, Endpoint)>,
    tls: Option<Arc<tls::Details>>,
    /// The backend of its server.
    backend: Rc<LocalProxy>,
    open: Open,
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

/// What is known of a connection when it is opened.
pub(crate) struct Opened {
    pub(crate) socket: Socket,
    /// What is sent before anything else (PROXY protocol).
    pub(crate) preamble: Vec<u8>,
    pub(crate) key: Key,
    pub(crate) ends: Option<(Endpoint, Endpoint)>,
    /// The backend of its server.
    pub(crate) backend: Rc<LocalProxy>,
    /// Whether it serves one request alone (`http-reuse never`).
    pub(crate) for_one: bool,
    pub(crate) open: Open,
}

/// The connections of one worker that requests share.
pub(crate) struct Carriers {
    all: RefCell<Vec<Weak<Multiplexed>>>,
    /// How busy the worker has to be for connections to end that glitch too often, in percent.
    busy_from: u8,
}

impl Multiplexed {
    /// Whether it takes one more request.
    fn has_room(&self) -> bool {
        !self.is_leaving.get()
            && self.open.is_current()
            && self.connection.engine.borrow().free() > self.waiting.get() as usize
            && (self.open.server.max_reuse < 0 || i64::from(self.uses.get()) <= self.open.server.max_reuse)
    }

    fn counters(&self) -> &Counters {
        &self.backend.state.backend.mine().h2
    }

    fn is_idle(&self) -> bool {
        self.waiting.get() == 0 && self.connection.engine.borrow().streams() == 0
    }
}

impl Carriers {
    /// None yet.
    pub(crate) fn new(busy_from: u8) -> Rc<Self> {
        Rc::new(Self { all: RefCell::default(), busy_from })
    }

    /// A connection that has room for a request, if there is one that this may use.
    #[inline]
    pub(crate) fn share(&self, server: &LocalServer, ask: Ask<'_>) -> Option<Held> {
        if self.all.borrow().is_empty() { None } else { self.find(server, ask) }
    }

    fn find(&self, server: &LocalServer, ask: Ask<'_>) -> Option<Held> {
        let all = self.all.borrow();
        let found = all.iter().filter_map(Weak::upgrade).find(|one| {
            let allowed = match (ask.reuse, ask.first) {
                (Reuse::Never, _) | (Reuse::Safe, true) => false,
                (Reuse::Aggressive, true) => one.uses.get() > 1,
                _ => true,
            };
            allowed && one.open.server.is(server) && *one.key == *ask.key && one.has_room()
        })?;
        Some(Request::begin(found))
    }

    /// How many connections lead to this server.
    fn count(&self, server: &LocalServer) -> usize {
        self.all.borrow().iter().filter_map(Weak::upgrade).filter(|one| one.open.server.is(server)).count()
    }

    /// Makes a connection of a socket on which HTTP/2 is spoken; its first request comes back.
    pub(crate) fn begin(self: &Rc<Self>, opened: Opened, config: &Arc<::h2::Config>) -> Held {
        let Opened { socket, preamble, key, ends, backend, for_one, open } = opened;
        let tls = socket.tls().map(|session| session.details().clone());
        let shared = Rc::new(Multiplexed {
            connection: Connection::new(Engine::new(Role::Client, config), socket.as_fd().as_raw_fd()),
            key,
            uses: Cell::new(0),
            waiting: Cell::new(0),
            is_settled: Cell::new(false),
            unsettled: RefCell::default(),
            is_leaving: Cell::new(for_one),
            ends,
            tls,
            backend,
            open,
        });
        shared.counters().connections.up();
        shared.counters().connections_total.add(1);
        let mut all = self.all.borrow_mut();
        all.retain(|one| one.strong_count() > 0);
        all.push(Rc::downgrade(&shared));
        let request = Request::begin(shared.clone());
        tokio::task::spawn_local(run(self.clone(), shared, socket, preamble));
        request
    }
}

impl Request {
    fn begin(shared: Rc<Multiplexed>) -> Held {
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

/// Why a connection ends.
enum End {
    Socket,
    Protocol,
    Agreed,
    Idle,
}

/// Serves the socket of a connection until it ends.
async fn run(all: Rc<Carriers>, shared: Rc<Multiplexed>, mut socket: Socket, mut preamble: Vec<u8>) {
    let mut reader = Reader::default();
    let timer = Timer::new();
    let mut idle_since = None;
    let mut ping = shared.open.server.idle_ping.map(|every| Box::new(Ping::new(every)));
    let end = poll_fn(|context| {
        shared.connection.set_owner(context.waker());
        loop {
            shared.connection.take_touched();
            let received = match receive(&shared, &mut socket, &mut reader, all.busy_from, context) {
                Ok(received) => received,
                Err(end) => return Poll::Ready(end),
            };
            if let Err(end) = send(&shared, &mut socket, &mut preamble, context) {
                return Poll::Ready(end);
            }
            // What was sent made room for those that wait.
            shared.connection.wake_writable();
            if !received {
                break;
            }
            if reader.is_fresh() {
                // Others of the worker have their turn too.
                context.waker().wake_by_ref();
                break;
            }
            if let Some(ping) = &mut ping {
                ping.note_life();
            }
        }
        if shared.is_idle()
            && let Some(ping) = &mut ping
        {
            if ping.poll_silence(&shared.connection, context).is_ready() {
                return Poll::Ready(End::Socket);
            }
            if let Err(end) = send(&shared, &mut socket, &mut preamble, context) {
                return Poll::Ready(end);
            }
        }
        poll_idle(&all, &shared, &timer, &mut idle_since, context)
    })
    .await;
    shared.is_leaving.set(true);
    shared.counters().connections.down();
    if idle_since.is_some() {
        shared.open.server.state.counters.mine().idle.down();
    }
    shared.unsettled.take().iter().for_each(Waker::wake_by_ref);
    shared.connection.put_end_of_all();
    if matches!(end, End::Protocol | End::Agreed | End::Idle) {
        // GOAWAY, if there is one; a socket that takes nothing does without.
        poll_fn(|context| {
            let _ = send(&shared, &mut socket, &mut preamble, context);
            Poll::Ready(())
        })
        .await;
    }
    socket.close();
}

/// Reads once, and puts what came where it belongs; whether there was anything.
fn receive(
    shared: &Multiplexed,
    socket: &mut Socket,
    reader: &mut Reader,
    busy_from: u8,
    context: &mut Context<'_>,
) -> Result<bool, End> {
    match reader.receive(&shared.connection, socket, context, || glitch::is_busy(busy_from)) {
        Ok(Received::Nothing) => return Ok(false),
        Ok(Received::Bytes) => {}
        Ok(Received::End) | Err(_) => return Err(End::Socket),
    }
    let outcome = loop {
        match reader.next(&shared.connection) {
            Ok(Some(event)) => happen(shared, event, reader),
            Ok(None) => break Ok(true),
            Err(_) => break Err(End::Protocol),
        }
    };
    shared.connection.count(shared.counters());
    outcome
}

fn happen(shared: &Multiplexed, event: Event, reader: &Reader) {
    let connection = &shared.connection;
    match event {
        Event::Head { key, end, .. } => {
            connection.put_head(key);
            if end {
                connection.put_end(key, None);
            }
        }
        Event::Data { key, range, end } => connection.put(key, reader.bytes(range), end),
        Event::Trailers { key } => connection.put_end(key, Some(connection.engine.borrow_mut().head_mut())),
        Event::End { key } => connection.put_end(key, None),
        Event::Reset { key, code, by } => connection.put_reset(key, code, by.is_unprocessed(code)),
        Event::Goaway { .. } => shared.is_leaving.set(true),
        Event::Settings => {
            shared.is_settled.set(true);
            shared.unsettled.take().iter().for_each(Waker::wake_by_ref);
        }
        Event::Refused { .. } | Event::Pong => {}
    }
}

/// Sends what is in the output, as much as the socket takes.
fn send(
    shared: &Multiplexed,
    socket: &mut Socket,
    preamble: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Result<(), End> {
    while !preamble.is_empty() {
        match socket.poll_write(context, preamble) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(n)) if n > 0 => drop(preamble.drain(..n)),
            Poll::Ready(_) => return Err(End::Socket),
        }
    }
    shared.connection.send(socket, context).map_err(|_| End::Socket)
}

/// Whether the connection is of no more use.
fn poll_idle(
    all: &Carriers,
    shared: &Multiplexed,
    timer: &Timer,
    idle_since: &mut Option<u64>,
    context: &mut Context<'_>,
) -> Poll<End> {
    let server = &shared.open.server;
    if !shared.is_idle() {
        if idle_since.take().is_some() {
            server.state.counters.mine().idle.down();
        }
        return Poll::Pending;
    }
    if !shared.has_room() || !server.state.is_up() || server.pool_purge_delay.is_zero() {
        return Poll::Ready(End::Agreed);
    }
    if idle_since.is_none() {
        *idle_since = Some(now_ms());
        server.state.counters.mine().idle.up();
        timer.set_after(now_ms(), Some(server.pool_purge_delay));
    }
    while timer.poll_expired(context).is_ready() {
        // One is always kept.
        if all.count(server) > 1 || !server.state.is_up() {
            return Poll::Ready(End::Idle);
        }
        shared.connection.shrink();
        timer.set_after(now_ms(), Some(server.pool_purge_delay));
    }
    Poll::Pending
}
