//! One stream of a connection that carries many (HTTP/2; FastCGI in [`fastcgi`]), as a request sees it: payload comes in,
//! heads and payload go out, and nothing of frames shows.
//!
//! A [`Stream`] is held by the request; the [`Connection`] behind it by the task that owns the
//! socket (`serve::multiplexed`), which puts what it receives into the streams' places and sends
//! what they left in the engine's output.

pub(crate) mod fastcgi;
mod ping;
mod place;
mod reader;

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use h2::{Code, Counts, Key};
use http::{BodyLength, Head};
use runtime::Buffer;
use sample::StreamFacts;
use state::counters::Multiplexed;

pub(crate) use ping::Ping;
use place::Place;
pub(crate) use reader::{Reader, Received};

/// The engine of HTTP/2 over the worker's buffers.
pub(crate) type Engine = h2::Connection<Buffer>;

/// How many heads a connection has memory for beyond those that are in use.
const SPARE_HEADS: usize = 16;

/// What the streams of one connection share.
pub(crate) struct Connection {
    pub(crate) engine: RefCell<Engine>,
    /// The kernel's number of the socket.
    pub(crate) descriptor: RawFd,
    /// What rules of streams want of the connection.
    wish: Cell<Wish>,
    /// What came for each stream, by the number of its key.
    places: RefCell<Vec<Place>>,
    /// Memory of heads that were taken, for those to come.
    spare_heads: RefCell<Vec<Head>>,
    /// Wakes the task that owns the socket.
    owner: RefCell<Option<Waker>>,
    /// Whether streams left something to be sent since that task looked.
    is_touched: Cell<bool>,
}

/// What rules of streams want of the socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Another type of service.
    pub(crate) tos: Option<u32>,
    /// Another firewall mark.
    pub(crate) mark: Option<u32>,
    /// That it ends without a word, and with which time to live of a last reset (`silent-drop`).
    pub(crate) vanish: Option<Option<u8>>,
}

/// A stream. Dropping it resets what is still open of it and gives its place back.
pub(crate) struct Stream {
    incoming: Incoming,
    /// Payload received and not used yet; `None` while there is none.
    pub(crate) input: Option<Buffer>,
    /// Whether we said that nothing more comes from us.
    ended: bool,
}

/// What comes in on a stream.
pub(crate) struct Incoming {
    connection: Rc<Connection>,
    key: Key,
    /// What the reset is to say where the message is not whole by the end of the request.
    code: Option<Code>,
}

impl Connection {
    /// One without streams.
    pub(crate) fn new(engine: Engine, descriptor: RawFd) -> Rc<Self> {
        Rc::new(Self {
            engine: RefCell::new(engine),
            descriptor,
            wish: Cell::default(),
            places: RefCell::default(),
            spare_heads: RefCell::default(),
            owner: RefCell::default(),
            is_touched: Cell::new(false),
        })
    }

    /// Who owns the socket waits for streams to leave something.
    pub(crate) fn set_owner(&self, waker: &Waker) {
        let mut owner = self.owner.borrow_mut();
        if !owner.as_ref().is_some_and(|owner| owner.will_wake(waker)) {
            *owner = Some(waker.clone());
        }
    }

    /// Has something done with the socket before anything else is sent.
    pub(crate) fn want(&self, change: impl FnOnce(&mut Wish)) {
        let mut wish = self.wish.get();
        change(&mut wish);
        self.wish.set(wish);
    }

    /// What streams wanted since the last call.
    pub(crate) fn take_wish(&self) -> Wish {
        self.wish.take()
    }

    /// Adds what was counted since the last call to `counters`.
    pub(crate) fn count(&self, counters: &Multiplexed) {
        let counts = self.engine.borrow_mut().take_counts();
        if counts == Counts::default() {
            return;
        }
        let each = [
            (&counters.headers, counts.headers_received),
            (&counters.data, counts.data_received),
            (&counters.settings, counts.settings_received),
            (&counters.resets, counts.resets_received),
            (&counters.goaways, counts.goaways_received),
            (&counters.connection_errors, counts.connection_errors),
            (&counters.stream_errors, counts.stream_errors),
            (&counters.resets_answered, counts.resets_answered),
            (&counters.goaways_answered, counts.goaways_answered),
            (&counters.streams_total, counts.streams),
        ];
        for (counter, count) in each.into_iter().filter(|(_, count)| *count > 0) {
            counter.add(count.into());
        }
    }

    /// Whether streams left something since the last call.
    pub(crate) fn take_touched(&self) -> bool {
        self.is_touched.replace(false)
    }

    /// A stream left something in the output.
    pub(crate) fn touch(&self) {
        if !self.is_touched.replace(true)
            && let Some(owner) = &*self.owner.borrow()
        {
            owner.wake_by_ref();
        }
    }

    fn with_place<R>(&self, key: Key, with: impl FnOnce(&mut Place) -> R) -> R {
        let mut places = self.places.borrow_mut();
        let index = key.index();
        if places.len() <= index {
            if places.is_empty() {
                places.reserve_exact(1);
            }
            places.resize_with(index + 1, Place::default);
        }
        with(&mut places[index])
    }

    /// A piece of payload has come.
    pub(crate) fn put(&self, key: Key, payload: &[u8], is_last: bool) {
        self.with_place(key, |place| place.put(payload, is_last));
    }

    /// The end of the message has come, with trailers or without.
    pub(crate) fn put_end(&self, key: Key, trailers: Option<&mut Head>) {
        self.with_place(key, |place| place.put_end(trailers));
    }

    /// A head has come: the engine's, which gets memory for the next.
    pub(crate) fn put_head(&self, key: Key) {
        let next = self.spare_heads.borrow_mut().pop().unwrap_or_default();
        let head = std::mem::replace(self.engine.borrow_mut().head_mut(), next);
        self.with_place(key, |place| place.put_head(head));
    }

    /// Keeps the memory of a head that was taken, as long as others may come soon.
    fn keep_head(&self, mut head: Head) {
        let mut spare = self.spare_heads.borrow_mut();
        if spare.len() < SPARE_HEADS {
            head.clear();
            spare.push(head);
        }
    }

    /// Gives memory back that only streams have a use for: there are none.
    pub(crate) fn shrink(&self) {
        self.engine.borrow_mut().shrink();
        self.spare_heads.take();
        self.places.take();
    }

    /// The peer, or the end of the connection, has ended the stream; `unprocessed` where the peer
    /// promises that it has not looked at it.
    pub(crate) fn put_reset(&self, key: Key, code: Code, unprocessed: bool) {
        self.with_place(key, |place| place.put_reset(code, unprocessed));
    }

    /// Sends what is in the output, as much as the socket takes.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn send(&self, socket: &mut net::Stream, context: &mut Context<'_>) -> io::Result<()> {
        let mut engine = self.engine.borrow_mut();
        loop {
            let mut slices = [IoSlice::new(&[]); 2];
            if engine.output(&mut slices) == 0 {
                break;
            }
            let [first, second] = slices;
            match socket.poll_write_both(context, &first, &second, false) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => engine.sent(n),
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        match socket.poll_flush(context) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }

    /// A stream that waited for its turn to send has it.
    fn wake(&self, key: Key) {
        self.with_place(key, Place::wake);
    }

    /// What was sent made room: those that waited for it go on.
    pub(crate) fn wake_writable(&self) {
        loop {
            // No stream is woken while the engine is borrowed.
            let next = self.engine.borrow_mut().next_writable();
            let Some(key) = next else { return };
            self.wake(key);
        }
    }

    /// Every stream ends: the connection has.
    pub(crate) fn put_end_of_all(&self) {
        self.places.borrow_mut().iter_mut().for_each(|place| place.put_reset(Code::InternalError, false));
    }
}

impl Stream {
    /// The stream of `key`.
    pub(crate) fn new(connection: Rc<Connection>, key: Key) -> Self {
        connection.with_place(key, Place::open);
        Self { incoming: Incoming { connection, key, code: None }, input: None, ended: false }
    }

    /// One that we opened; with `ended` nothing follows its head.
    pub(crate) fn opened(connection: Rc<Connection>, key: Key, ended: bool) -> Self {
        let mut stream = Self::new(connection, key);
        stream.ended = ended;
        stream.incoming.connection.touch();
        stream
    }

    /// Takes the next head that came.
    ///
    /// # Errors
    /// None will; whether the peer promises that it has not looked at the request.
    pub(crate) fn poll_head(&mut self, context: &Context<'_>, head: &mut Head) -> Poll<Result<(), bool>> {
        let polled = self.incoming.with(|place| place.poll_head(context.waker()));
        polled.map_ok(|next| self.incoming.connection.keep_head(std::mem::replace(head, next)))
    }

    /// What comes in, and where it is kept until it is used.
    pub(crate) fn halves(&mut self) -> (&mut Incoming, &mut Option<Buffer>) {
        (&mut self.incoming, &mut self.input)
    }

    /// What was received and nobody has taken yet.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        self.input.as_ref().map_or(&[][..], Buffer::filled)
    }

    /// Whether nothing is left of what was received.
    pub(crate) fn is_drained(&self) -> bool {
        self.received().is_empty()
    }

    /// What is here of the body, into `out`; says whether that is all of it.
    pub(crate) fn decode(&self, length: BodyLength, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.extend_from_slice(self.received());
        match length {
            BodyLength::None => true,
            BodyLength::Length(length) => out.len() as u64 >= length,
            BodyLength::Chunked | BodyLength::UntilClose => self.is_ended(),
        }
    }

    /// Whether all of the message has come, and lies in what was received.
    pub(crate) fn is_ended(&self) -> bool {
        self.incoming.with(|place| place.is_at_end())
    }

    /// The buffer of received payload.
    pub(crate) fn input(&mut self) -> &mut Buffer {
        self.input.get_or_insert_with(Buffer::small)
    }

    /// Whether there is room for more.
    pub(crate) fn has_room(&mut self) -> bool {
        let input = self.input();
        input.compact();
        input.room_len() > 0
    }

    /// Gives memory back that holds nothing.
    pub(crate) fn release(&mut self) {
        if self.input.as_ref().is_some_and(Buffer::is_empty) {
            self.input = None;
        }
    }

    /// Receives more payload: 0 at the end of the message.
    ///
    /// # Errors
    /// The stream was reset, or its connection has ended; `OutOfMemory` where there is no room.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.has_room() {
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        let (incoming, input) = self.halves();
        let read = incoming.poll_read(context, input.get_or_insert_with(Buffer::small));
        self.release();
        read
    }

    /// Whether the peer reset the stream, or the connection has ended. Otherwise wakes when that
    /// happens.
    pub(crate) fn poll_reset(&self, context: &Context<'_>) -> Option<Code> {
        self.incoming.with(|place| {
            place.watch(context.waker());
            place.reset
        })
    }

    /// Sends a head; with `ends` nothing follows it.
    pub(crate) fn send_head(&mut self, head: &Head, ends: bool) {
        let Incoming { connection, key, .. } = &self.incoming;
        if !self.ended {
            connection.engine.borrow_mut().send_head(*key, head, ends);
            self.ended = ends;
            connection.touch();
        }
    }

    /// Leaves payload to be sent, as much as is taken now; `is_last` where the message ends behind
    /// all of it.
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
        let Incoming { connection, key, .. } = &self.incoming;
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

    /// Sends the end of the message, unless it left with what was written last.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            let Incoming { connection, key, .. } = &self.incoming;
            connection.engine.borrow_mut().send_data(*key, &[], true);
            connection.touch();
        }
    }

    /// Sends trailers, which end the message.
    pub(crate) fn send_trailers(&mut self, trailers: &Head) {
        if !std::mem::replace(&mut self.ended, true) {
            let Incoming { connection, key, .. } = &self.incoming;
            connection.engine.borrow_mut().send_trailers(*key, trailers);
            connection.touch();
        }
    }

    /// Sets what the reset is to say if the stream ends before its message.
    pub(crate) fn set_code(&mut self, code: Code) {
        self.incoming.code = Some(code);
    }

    /// What it is known as, and whether the peer reset it.
    pub(crate) fn facts(&self) -> StreamFacts {
        let reset = self.incoming.with(|place| place.reset).map(Code::number);
        let engine = self.incoming.connection.engine.borrow();
        let open = u32::try_from(engine.streams()).unwrap_or(u32::MAX);
        StreamFacts { id: self.incoming.key.id(), open, most: engine.most_streams(), reset }
    }

    /// The connection that it is one of.
    pub(crate) fn connection(&self) -> &Rc<Connection> {
        &self.incoming.connection
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Incoming { connection, key, code } = &self.incoming;
        connection.with_place(*key, Place::close);
        let mut engine = connection.engine.borrow_mut();
        if let Some(code) = code {
            engine.reset(*key, *code);
        }
        engine.release(*key);
        drop(engine);
        connection.touch();
    }
}

impl Incoming {
    fn with<R>(&self, with: impl FnOnce(&mut Place) -> R) -> R {
        self.connection.with_place(self.key, with)
    }

    /// Whether all of the message was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.with(|place| place.is_at_end())
    }

    /// Whether there is payload to read.
    pub(crate) fn has_payload(&self) -> bool {
        self.with(|place| place.has_payload())
    }

    /// The trailers that came behind the message, once.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Head>> {
        self.with(Place::take_trailers)
    }

    /// Receives payload into `buffer`: 0 at the end of the message.
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
