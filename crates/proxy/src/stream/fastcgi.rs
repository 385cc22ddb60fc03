//! One request of a connection that speaks FastCGI, as its client's side sees it: heads and payload
//! come in, payload goes out, and no record shows.
//!
//! As with HTTP/2, a [`Stream`] is held by the request; the [`Connection`] behind it by the task
//! that owns the socket (`server::fcgi`).

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use fcgi::{Broken, Key, OpenError, Parameters};
use http::{BodyLength, ErrorKind, Head, Method};
use runtime::Buffer;
use sample::StreamFacts;

use super::place::Place;

/// What the requests of one connection share.
pub(crate) struct Connection {
    pub(crate) engine: RefCell<fcgi::Connection>,
    /// The kernel's number of the socket.
    pub(crate) descriptor: RawFd,
    /// What came for each request, by the number of its key.
    places: RefCell<Vec<Slot>>,
    /// Wakes the task that owns the socket.
    owner: RefCell<Option<Waker>>,
    /// Whether requests left something to be sent, or took something, since that task looked.
    is_touched: Cell<bool>,
}

/// What came for one request, and what is wrong with it.
#[derive(Default)]
struct Slot {
    place: Place,
    malformed: Option<ErrorKind>,
}

/// Why no head comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoHead {
    /// The application, or the connection, has ended it.
    Cut,
    /// What came is no response.
    Malformed(ErrorKind),
    /// The application has not looked at the request.
    Refused,
}

/// A request. Dropping it aborts what is still open of it.
pub(crate) struct Stream {
    incoming: Incoming,
    /// Payload received and not used yet; `None` while there is none.
    pub(crate) input: Option<Buffer>,
    /// Whether we said that nothing more comes from us.
    ended: bool,
}

/// What comes in for a request.
pub(crate) struct Incoming {
    connection: Rc<Connection>,
    key: Key,
}

impl Connection {
    /// One without requests.
    pub(crate) fn new(engine: fcgi::Connection, descriptor: RawFd) -> Self {
        Self {
            engine: RefCell::new(engine),
            descriptor,
            places: RefCell::default(),
            owner: RefCell::default(),
            is_touched: Cell::new(false),
        }
    }

    /// Who owns the socket waits for requests to leave something.
    pub(crate) fn set_owner(&self, waker: &Waker) {
        let mut owner = self.owner.borrow_mut();
        if !owner.as_ref().is_some_and(|owner| owner.will_wake(waker)) {
            *owner = Some(waker.clone());
        }
    }

    /// Whether requests left something since the last call.
    pub(crate) fn take_touched(&self) -> bool {
        self.is_touched.replace(false)
    }

    /// A request left something to be looked at.
    pub(crate) fn touch(&self) {
        if !self.is_touched.replace(true)
            && let Some(owner) = &*self.owner.borrow()
        {
            owner.wake_by_ref();
        }
    }

    fn with<R>(&self, key: Key, with: impl FnOnce(&mut Slot) -> R) -> R {
        let mut places = self.places.borrow_mut();
        if places.len() <= key.index() {
            places.resize_with(key.index() + 1, Slot::default);
        }
        with(&mut places[key.index()])
    }

    /// The head of a response has come: the engine's.
    pub(crate) fn put_head(&self, key: Key) {
        let head = std::mem::take(self.engine.borrow_mut().head_mut());
        self.with(key, |slot| slot.place.put_head(head));
    }

    /// A piece of payload has come.
    pub(crate) fn put(&self, key: Key, payload: &[u8]) {
        self.with(key, |slot| slot.place.put(payload, false));
    }

    /// The end of a response has come; trailers are the engine's.
    pub(crate) fn put_end(&self, key: Key, has_trailers: bool) {
        let mut trailers = has_trailers.then(|| std::mem::take(self.engine.borrow_mut().head_mut()));
        self.with(key, |slot| slot.place.put_end(trailers.as_mut()));
    }

    /// There will be no more of a response. Of one that is malformed nothing is good that was not
    /// taken yet.
    pub(crate) fn put_broken(&self, key: Key, how: Broken) {
        self.with(key, |slot| {
            if let Broken::Malformed(kind) = how {
                slot.malformed = Some(kind);
                slot.place.close();
            }
            slot.place.put_reset(h2::Code::InternalError, how == Broken::Refused);
        });
    }

    /// The connection has ended, and every response with it.
    pub(crate) fn put_end_of_all(&self) {
        for slot in self.places.borrow_mut().iter_mut() {
            slot.place.put_reset(h2::Code::InternalError, false);
        }
    }

    /// What was sent made room: those that waited for it go on.
    pub(crate) fn wake_writable(&self) {
        loop {
            // Nobody is woken while the engine is borrowed.
            let next = self.engine.borrow_mut().next_writable();
            let Some(key) = next else { return };
            self.with(key, |slot| slot.place.wake());
        }
    }

    /// Gives memory back that only requests have a use for: there are none.
    pub(crate) fn shrink(&self) {
        self.engine.borrow_mut().shrink();
        self.places.take();
    }
}

impl Stream {
    /// Begins a request; with `ends` it has no body.
    ///
    /// # Errors
    /// There is no place for it any more.
    pub(crate) fn open(
        connection: &Rc<Connection>,
        parameters: &Parameters,
        method: Method,
        ends: bool,
    ) -> Result<Self, OpenError> {
        let key = connection.engine.borrow_mut().open(parameters, method, ends)?;
        connection.with(key, |slot| {
            slot.place.open();
            slot.malformed = None;
        });
        connection.touch();
        let incoming = Incoming { connection: connection.clone(), key };
        Ok(Self { incoming, input: None, ended: ends })
    }

    /// Takes the head of the response once it is there; whether all of the response is.
    ///
    /// # Errors
    /// None will come.
    pub(crate) fn poll_head(&mut self, context: &Context<'_>, head: &mut Head) -> Poll<Result<(), NoHead>> {
        let polled = self.incoming.with(|slot| {
            let polled = ready!(slot.place.poll_head(context.waker()));
            Poll::Ready(polled.map_err(|unprocessed| match slot.malformed {
                Some(kind) => NoHead::Malformed(kind),
                None if unprocessed => NoHead::Refused,
                None => NoHead::Cut,
            }))
        });
        polled.map_ok(|next| *head = next)
    }

    /// What comes in, and where it is kept until it is used.
    pub(crate) fn halves(&mut self) -> (&mut Incoming, &mut Option<Buffer>) {
        (&mut self.incoming, &mut self.input)
    }

    /// What was received and nobody has taken yet.
    pub(crate) fn received(&self) -> &[u8] {
        self.input.as_ref().map_or(&[][..], Buffer::filled)
    }

    /// What is here of the body, into `out`; says whether that is all of it.
    pub(crate) fn decode(&self, length: BodyLength, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.extend_from_slice(self.received());
        match length {
            BodyLength::None => true,
            BodyLength::Length(length) => out.len() as u64 >= length,
            BodyLength::Chunked | BodyLength::UntilClose => self.incoming.is_at_end(),
        }
    }

    /// The length of the body, where all of it has come.
    pub(crate) fn whole_length(&self) -> Option<u64> {
        let here = self.received().len() as u64;
        self.incoming.with(|slot| slot.place.whole_length()).map(|rest| here + rest)
    }

    /// Whether there is room for more.
    pub(crate) fn has_room(&mut self) -> bool {
        let input = self.input.get_or_insert_with(Buffer::small);
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
    /// The response is broken, or its connection has ended; `OutOfMemory` where there is no room.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.has_room() {
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        let (incoming, input) = self.halves();
        let read = incoming.poll_read(context, input.get_or_insert_with(Buffer::small));
        self.release();
        read
    }

    /// Leaves payload to be sent, as much as is taken now; `is_last` where the message ends behind
    /// all of it.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn poll_write(
        &mut self,
        context: &Context<'_>,
        first: &[u8],
        second: &[u8],
        is_last: bool,
    ) -> Poll<io::Result<usize>> {
        if self.incoming.with(|slot| slot.place.reset).is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let Incoming { connection, key } = &self.incoming;
        let mut engine = connection.engine.borrow_mut();
        let mut taken = 0;
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
            self.incoming.with(|slot| slot.place.watch(context.waker()));
            return Poll::Pending;
        }
        connection.touch();
        Poll::Ready(Ok(taken))
    }

    /// Sends the end of the message, unless it left with what was written last.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            let Incoming { connection, key } = &self.incoming;
            connection.engine.borrow_mut().send_data(*key, &[], true);
            connection.touch();
        }
    }

    /// What it is known as.
    pub(crate) fn facts(&self) -> StreamFacts {
        let engine = self.incoming.connection.engine.borrow();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        StreamFacts {
            id: self.incoming.key.id(),
            open: number(engine.streams()),
            most: number(engine.most()),
            reset: None,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Incoming { connection, key } = &self.incoming;
        connection.with(*key, |slot| slot.place.close());
        connection.engine.borrow_mut().release(*key);
        connection.touch();
    }
}

impl Incoming {
    fn with<R>(&self, with: impl FnOnce(&mut Slot) -> R) -> R {
        self.connection.with(self.key, with)
    }

    /// Whether all of the message was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.with(|slot| slot.place.is_at_end())
    }

    /// Whether there is payload to read.
    pub(crate) fn has_payload(&self) -> bool {
        self.with(|slot| slot.place.has_payload())
    }

    /// The trailers that came behind the message, once.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Head>> {
        self.with(|slot| slot.place.take_trailers())
    }

    /// Receives payload into `buffer`: 0 at the end of the message.
    ///
    /// # Errors
    /// The response is broken, or its connection has ended.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<usize>> {
        let before = buffer.len();
        let read = self.with(|slot| slot.place.poll_take(context.waker(), buffer));
        if let Poll::Ready(Ok(1..)) = read {
            self.connection.engine.borrow_mut().consume(self.key, buffer.len() - before);
            self.connection.touch();
        }
        read
    }
}
