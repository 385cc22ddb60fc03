//! One stream of a multiplexed connection (HTTP/2 in [`h2`], FastCGI in [`fastcgi`], the agents' protocol in [`spop`]) as a
//! request sees it: it receives payload and sends heads and payload, without frames or records.
//!
//! The request owns a [`Stream`]. The task that owns the socket (`serve::multiplexed`, `server::h2_pool`, `server::h3`, `server::fcgi`,
//! `server::agents`) owns the [`Connection`] behind it; it passes received data to the streams' mailboxes and sends the engine's
//! output. Both types are generic over the [`Protocol`].

mod any;
mod driver;
mod engines;
pub(crate) mod fastcgi;
pub(crate) mod h2;
pub(crate) mod h3;
mod hand_over;
mod ping;
mod place;
mod protocol;
mod qmux_tracer;
pub(crate) mod quic;
mod quic_entry;
mod quic_tracer;
mod reader;
mod reset;
pub(crate) mod spop;
mod wish;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Head;
use runtime::Buffer;
use sample::StreamFacts;
use state::counters::Multiplexed;

pub(crate) use any::{AnyIncoming, AnyStream, WireProtocol};
pub(crate) use driver::{ConnectionEvent, Driver, DriverFailure, Notice, Received};
pub(crate) use ping::Ping;
pub(crate) use place::NoHead;
use place::{Piece, StreamMailbox};
pub(crate) use protocol::{Lifecycle, Messages, Protocol, RequestEngine, SocketOutput};
pub(crate) use qmux_tracer::QmuxTracer;
pub(crate) use quic_entry::QuicEntry;
pub(crate) use quic_tracer::QuicTracer;
pub(crate) use reader::ReceivedBytes;
pub(crate) use reset::Reset;
pub(crate) use wish::Wish;

/// How long a connection must have no streams before it frees the memory that only streams need. If thousands of connections are
/// opened at the same time, only the active ones keep that memory.
pub(crate) const REST: Duration = Duration::from_millis(50);

/// How many spare heads a connection keeps allocated.
const SPARE_HEADS: usize = 16;

/// The state shared by the streams of one connection.
pub(crate) struct EngineConnection<E: Protocol> {
    pub(crate) engine: RefCell<E>,
    /// The file descriptor of the socket.
    pub(crate) descriptor: RawFd,
    /// Whether payload may be sent without a copy. This is not useful with TLS, which copies it anyway and makes larger records
    /// from a single piece.
    gathers: bool,
    /// Changes to the connection requested by streams' rules.
    wish: Cell<Wish>,
    /// The mailbox of each stream, by the number of its key.
    places: RefCell<Vec<StreamMailbox>>,
    /// Streams with the maximum number of untaken heads.
    crowded: Cell<u32>,
    /// The wakers of streams that have a head to send and no room for it.
    head_senders: RefCell<Vec<Waker>>,
    /// Spare heads for reuse.
    spare_heads: RefCell<Vec<Head>>,
    /// Wakes the task that owns the socket.
    owner: RefCell<Option<Waker>>,
    /// Whether streams have queued output since that task last checked.
    is_touched: Cell<bool>,
}

/// A stream. Dropping it resets the parts of it that have not ended, and releases its mailbox.
pub(crate) struct EngineStream<E: Protocol> {
    incoming: IncomingHalf<E>,
    /// The received payload that was not consumed yet, if any.
    pub(crate) input: Option<Buffer>,
    /// Whether the local side of the stream has ended.
    ended: bool,
}

/// The incoming half of a stream.
pub(crate) struct IncomingHalf<E: Protocol> {
    connection: Rc<EngineConnection<E>>,
    key: E::Key,
    /// The reason to give if the stream is dropped before its message is complete.
    reset: Option<Reset>,
}

impl<E: Protocol> EngineConnection<E> {
    /// Creates a connection without streams, on a socket with or without TLS.
    pub(crate) fn new(engine: E, descriptor: RawFd, is_tls: bool) -> Rc<Self> {
        Rc::new(Self {
            engine: RefCell::new(engine),
            descriptor,
            gathers: !is_tls,
            wish: Cell::default(),
            places: RefCell::default(),
            crowded: Cell::new(0),
            head_senders: RefCell::default(),
            spare_heads: RefCell::default(),
            owner: RefCell::default(),
            is_touched: Cell::new(false),
        })
    }

    /// Returns the engine of a connection that is not used any more, or `None` if it is.
    pub(crate) fn into_engine(self: Rc<Self>) -> Option<E> {
        Rc::into_inner(self).map(|connection| connection.engine.into_inner())
    }

    /// Sets the waker of the task that owns the socket. It is woken when streams have output.
    pub(crate) fn set_owner(&self, waker: &Waker) {
        let mut owner = self.owner.borrow_mut();
        if !owner.as_ref().is_some_and(|owner| owner.will_wake(waker)) {
            *owner = Some(waker.clone());
        }
    }

    /// Whether streams have queued output since the last call.
    pub(crate) fn take_touched(&self) -> bool {
        self.is_touched.replace(false)
    }

    /// Called when a stream has queued output.
    pub(crate) fn touch(&self) {
        if !self.is_touched.replace(true)
            && let Some(owner) = &*self.owner.borrow()
        {
            owner.wake_by_ref();
        }
    }

    fn with_place<R>(&self, key: E::Key, with: impl FnOnce(&mut StreamMailbox) -> R) -> R {
        let mut places = self.places.borrow_mut();
        let index = E::place(key);
        if places.len() <= index {
            if places.is_empty() {
                places.reserve_exact(1);
            }
            places.resize_with(index + 1, StreamMailbox::default);
        }
        with(&mut places[index])
    }

    /// Adds received payload.
    pub(crate) fn put(&self, key: E::Key, payload: &[u8], is_last: bool) {
        let piece = if is_last { Piece::Last } else { Piece::Whole };
        self.put_silently(key, payload, piece);
        self.wake(key);
    }

    /// Adds payload without waking the waiting task.
    fn put_silently(&self, key: E::Key, payload: &[u8], piece: Piece) {
        self.with_place(key, |place| place.put(payload, piece));
    }

    /// Wakes the task waiting for a stream.
    fn wake(&self, key: E::Key) {
        self.with_place(key, StreamMailbox::wake);
    }

    fn put_received_head(&self, key: E::Key, head: Head) {
        let is_crowded = self.with_place(key, |place| {
            let before = place.is_crowded();
            place.put_head(head);
            place.is_crowded() && !before
        });
        self.crowded.set(self.crowded.get() + u32::from(is_crowded));
    }

    /// Whether a request has too many (interim) heads that it has not taken yet. The connection is not read until the request
    /// takes one or has ended.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.get() > 0
    }

    /// Called when a request with too many heads has taken one.
    fn note_uncrowded(&self) {
        self.crowded.set(self.crowded.get().saturating_sub(1));
        self.touch();
    }

    /// Marks the message as ended, with or without trailers.
    pub(crate) fn put_end(&self, key: E::Key, trailers: Option<&mut Head>) {
        self.with_place(key, |place| place.put_end(trailers));
    }

    /// Keeps the memory of a head that was taken, in case others follow soon.
    fn keep_head(&self, mut head: Head) {
        let mut spare = self.spare_heads.borrow_mut();
        if spare.len() < SPARE_HEADS {
            head.clear();
            spare.push(head);
        }
    }

    /// Frees memory that only streams use, when there are none.
    pub(crate) fn shrink(&self) {
        self.engine.borrow_mut().shrink();
        self.spare_heads.take();
        self.places.take();
    }

    /// Requests a change of the socket, which is made before anything else is sent.
    pub(crate) fn want(&self, change: impl FnOnce(&mut Wish)) {
        let mut wish = self.wish.get();
        change(&mut wish);
        self.wish.set(wish);
    }

    /// Returns the socket changes requested by streams since the last call.
    pub(crate) fn take_wish(&self) -> Wish {
        self.wish.take()
    }

    /// The stream ended before its message. `why` is the error for a request that waits for a head.
    pub(crate) fn put_reset(&self, key: E::Key, reset: Reset, why: NoHead) {
        self.with_place(key, |place| {
            if let NoHead::Malformed(_) = why {
                // No part of a malformed message is of use.
                place.close();
            }
            place.put_reset(reset, why);
        });
    }

    /// Ends every stream, since the connection has ended.
    pub(crate) fn put_end_of_all(&self) {
        let reset = |place: &mut StreamMailbox| place.put_reset(Reset::Internal, NoHead::Cut);
        self.places.borrow_mut().iter_mut().for_each(reset);
    }
}

impl<E: SocketOutput> EngineConnection<E> {
    /// Writes as much of the output as the socket accepts. Returns whether anything was written.
    ///
    /// # Errors
    /// The errors of the socket.
    pub(crate) fn send(&self, socket: &mut net::Stream, context: &mut Context<'_>) -> io::Result<bool> {
        self.engine.borrow_mut().send(socket, context)
    }
}

impl<E: Messages> EngineConnection<E> {
    /// Moves a received head out of the engine, which gets memory for the next one.
    pub(crate) fn put_head(&self, key: E::Key) {
        let next = self.spare_heads.borrow_mut().pop().unwrap_or_default();
        let head = std::mem::replace(self.engine.borrow_mut().head_mut(), next);
        self.put_received_head(key, head);
    }

    /// Ready once the output has room for another head.
    pub(crate) fn poll_head_room(&self, context: &Context<'_>) -> Poll<()> {
        if self.engine.borrow().takes_heads() {
            return Poll::Ready(());
        }
        let mut waiting = self.head_senders.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Wakes waiting streams after sending has made room.
    pub(crate) fn wake_writable(&self) {
        if !self.head_senders.borrow().is_empty() && self.engine.borrow().takes_heads() {
            self.head_senders.take().iter().for_each(Waker::wake_by_ref);
        }
        loop {
            // Streams are woken only while the engine is not borrowed.
            let next = self.engine.borrow_mut().next_writable();
            let Some(key) = next else { return };
            self.wake(key);
        }
    }
}

impl<E: Lifecycle> EngineConnection<E> {
    /// Adds the counts since the last call to `counters`.
    pub(crate) fn count(&self, counters: &Multiplexed) {
        self.engine.borrow_mut().count(counters);
    }

    /// Announces the end of the connection: the peer opens no more streams, and open ones continue.
    pub(crate) fn shutdown(&self) {
        self.engine.borrow_mut().shutdown();
    }

    /// Ends the connection at once, without an error if `reset` is `None`.
    pub(crate) fn close(&self, reset: Option<Reset>) {
        self.engine.borrow_mut().close(reset);
    }
}

impl<E: Protocol> EngineStream<E> {
    /// Creates the stream of `key`, which the peer opened.
    pub(crate) fn new(connection: Rc<EngineConnection<E>>, key: E::Key) -> Self {
        Self::begin(connection, key, false)
    }

    /// Creates a stream that the local side opened. If `ended` is set, nothing follows its head.
    pub(crate) fn opened(connection: Rc<EngineConnection<E>>, key: E::Key, ended: bool) -> Self {
        let stream = Self::begin(connection, key, ended);
        stream.incoming.connection.touch();
        stream
    }

    /// Creates the stream of `key`; with `ended`, the local side has ended.
    fn begin(connection: Rc<EngineConnection<E>>, key: E::Key, ended: bool) -> Self {
        connection.with_place(key, StreamMailbox::open);
        Self { incoming: IncomingHalf { connection, key, reset: None }, input: None, ended }
    }

    /// Takes the next received head.
    ///
    /// # Errors
    /// No head will arrive.
    pub(crate) fn poll_head(&mut self, context: &Context<'_>, head: &mut Head) -> Poll<Result<(), NoHead>> {
        let (polled, uncrowded) = self.incoming.with(|place| {
            let before = place.is_crowded();
            let polled = place.poll_head(context.waker());
            (polled, before && !place.is_crowded())
        });
        if uncrowded {
            self.incoming.connection.note_uncrowded();
        }
        polled.map_ok(|next| self.incoming.connection.keep_head(std::mem::replace(head, next)))
    }

    /// Returns the incoming half, and the slot of its buffer.
    pub(crate) fn halves(&mut self) -> (&mut IncomingHalf<E>, &mut Option<Buffer>) {
        (&mut self.incoming, &mut self.input)
    }

    /// Returns the bytes received but not consumed yet.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        self.input.as_ref().map_or(&[][..], Buffer::filled)
    }

    /// Whether all received bytes have been consumed.
    pub(crate) fn is_drained(&self) -> bool {
        self.received().is_empty()
    }

    /// Whether the whole message has arrived, and the rest is in the buffer.
    pub(crate) fn is_ended(&self) -> bool {
        self.incoming.with(|place| place.is_at_end())
    }

    /// Whether the rest of the message is empty: it has ended, without trailers.
    pub(crate) fn has_no_rest(&self) -> bool {
        self.incoming.with(|place| place.is_empty_at_end())
    }

    /// Returns the length of the rest of the body, if the message is complete.
    pub(crate) fn whole_length(&self) -> Option<u64> {
        let here = self.received().len() as u64;
        self.incoming.with(|place| place.whole_length()).map(|rest| here + rest)
    }

    /// Returns the buffer of received payload.
    pub(crate) fn input(&mut self) -> &mut Buffer {
        self.input.get_or_insert_with(Buffer::small)
    }

    /// Releases the buffer if it is empty.
    pub(crate) fn release(&mut self) {
        if self.input.as_ref().is_some_and(Buffer::is_empty) {
            self.input = None;
        }
    }

    /// Receives more payload. Returns 0 at the end of the message.
    ///
    /// # Errors
    /// The stream was reset, or its connection has ended; `OutOfMemory` if there is no room.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.input().has_room() {
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        let (incoming, input) = self.halves();
        let read = incoming.poll_read(context, input.get_or_insert_with(Buffer::small));
        self.release();
        read
    }

    /// Returns the identity of the stream, and whether the peer reset it.
    pub(crate) fn facts(&self) -> StreamFacts {
        let reset = self.incoming.with(|place| place.reset);
        self.incoming.connection.engine.borrow().facts(self.incoming.key, reset)
    }

    /// Whether the peer has reset the stream, or its connection has ended.
    pub(crate) fn is_reset(&self) -> bool {
        self.incoming.with(|place| place.reset.is_some())
    }

    /// Returns why the stream ended before its message: because the peer reset it or because the connection has ended. If it has
    /// not ended, returns `None`, and the task is woken when it does.
    pub(crate) fn poll_reset(&self, context: &Context<'_>) -> Option<Reset> {
        self.incoming.with(|place| {
            place.watch(context.waker());
            place.reset
        })
    }

    /// Sets the reason to give if the stream is dropped before its message is complete.
    pub(crate) fn set_reset(&mut self, reset: Reset) {
        self.incoming.reset = Some(reset);
    }

    /// Returns the connection of the stream.
    pub(crate) fn connection(&self) -> &Rc<EngineConnection<E>> {
        &self.incoming.connection
    }
}

impl<E: Messages> EngineStream<E> {
    /// Queues as much payload as is accepted now. If `is_last` is set, the message ends after all of it.
    ///
    /// # Errors
    /// The stream was reset.
    pub(crate) fn poll_write(
        &mut self,
        context: &Context<'_>,
        first: &[u8],
        second: &[u8],
        is_last: bool,
    ) -> Poll<io::Result<usize>> {
        if self.incoming.with(|place| place.reset).is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut taken = 0;
        let IncomingHalf { connection, key, .. } = &self.incoming;
        let mut engine = connection.engine.borrow_mut();
        for (piece, ends) in [(first, is_last && second.is_empty()), (second, is_last)] {
            if piece.is_empty() {
                continue;
            }
            let n = engine.send_data(*key, piece, ends);
            taken += n;
            if n < piece.len() {
                break;
            }
            self.ended |= ends;
        }
        drop(engine);
        if taken == 0 {
            self.incoming.with(|place| place.watch(context.waker()));
            return Poll::Pending;
        }
        connection.touch();
        Poll::Ready(Ok(taken))
    }

    /// Ready once the connection has room for a head. Must be called before each interim head, because the server decides how
    /// many it sends.
    ///
    /// # Errors
    /// The stream was reset.
    pub(crate) fn poll_head_room(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.poll_reset(context).is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.incoming.connection.poll_head_room(context).map(Ok)
    }

    /// Sends a head; with `ends` nothing follows it.
    pub(crate) fn send_head(&mut self, head: &Head, ends: bool) {
        let IncomingHalf { connection, key, .. } = &self.incoming;
        if !self.ended {
            connection.engine.borrow_mut().send_head(*key, head, ends);
            self.ended = ends;
            connection.touch();
        }
    }

    /// Sends trailers, which end the message.
    pub(crate) fn send_trailers(&mut self, trailers: &Head) {
        if !std::mem::replace(&mut self.ended, true) {
            let IncomingHalf { connection, key, .. } = &self.incoming;
            connection.engine.borrow_mut().send_trailers(*key, trailers);
            connection.touch();
        }
    }

    /// Whether payload is sent without a copy ([`poll_hand_over`](Self::poll_hand_over)).
    #[inline]
    pub(crate) fn gathers(&self) -> bool {
        E::SENDS_OWNED && self.incoming.connection.gathers
    }

    /// Sends the end of the message, unless it was sent with the last write.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            let IncomingHalf { connection, key, .. } = &self.incoming;
            connection.engine.borrow_mut().send_data(*key, &[], true);
            connection.touch();
        }
    }
}

impl<E: Protocol> Drop for EngineStream<E> {
    fn drop(&mut self) {
        let IncomingHalf { connection, key, reset } = &self.incoming;
        let was_crowded = connection.with_place(*key, |place| {
            let was_crowded = place.is_crowded();
            place.close();
            was_crowded
        });
        if was_crowded {
            connection.note_uncrowded();
        }
        connection.engine.borrow_mut().release(*key, *reset);
        connection.touch();
    }
}

impl<E: Protocol> IncomingHalf<E> {
    fn with<R>(&self, with: impl FnOnce(&mut StreamMailbox) -> R) -> R {
        self.connection.with_place(self.key, with)
    }

    /// Whether the whole message was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.with(|place| place.is_at_end())
    }

    /// Whether there is payload to read.
    pub(crate) fn has_payload(&self) -> bool {
        self.with(|place| place.has_payload())
    }

    /// Takes the trailers of the message.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Head>> {
        self.with(StreamMailbox::take_trailers)
    }

    /// Receives payload into `buffer`. Returns 0 at the end of the message.
    ///
    /// # Errors
    /// The stream was reset, or its connection has ended.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<usize>> {
        let read = self.with(|place| place.poll_take(context.waker(), buffer));
        if let Poll::Ready(Ok(n)) = read
            && n > 0
        {
            self.connection.engine.borrow_mut().consume(self.key, n);
            self.connection.touch();
        }
        read
    }
}
