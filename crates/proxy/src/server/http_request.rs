//! A request on a shared connection with HTTP/2 or HTTP/3.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use ::fields::Scheme;
use http::{BodyLength, Head, Method};
use state::counters::Multiplexed as Counters;

use super::h1::NoHead;
use super::shared::{Carrier, ProtocolState, Share};
use crate::stream::{self, AnyStream, EngineStream, RequestEngine};

/// The scheme of requests without a scheme in their target. As in HAProxy, it does not depend on TLS.
const SCHEME: Scheme = Scheme::Https;

/// A protocol's state of a connection, as requests need it.
pub(crate) trait RequestProtocol: ProtocolState {
    /// Returns the state of the server's settings.
    fn settling(&self) -> &Settling;

    /// Returns the counters of the backend for this protocol, if it has any.
    fn counters(&self) -> Option<&Counters>;
}

/// The arrival of the settings in which a server announces its abilities.
#[derive(Default)]
pub(crate) struct Settling {
    is_settled: Cell<bool>,
    /// Requests waiting for the settings.
    waiting: RefCell<Vec<Waker>>,
}

impl Settling {
    /// Creates the state of a connection. Its settings may have arrived earlier.
    pub(super) fn new(is_settled: bool) -> Self {
        Self { is_settled: Cell::new(is_settled), waiting: RefCell::default() }
    }

    /// Whether the settings have arrived.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.get()
    }

    /// The settings have arrived.
    pub(super) fn settle(&self) {
        self.is_settled.set(true);
        self.wake();
    }

    /// Wakes the waiting requests.
    pub(super) fn wake(&self) {
        self.waiting.take().iter().for_each(Waker::wake_by_ref);
    }
}

/// A request head that cannot be sent yet. Either it is an upgrade, and the settings in which the server announces support for it
/// have not arrived (RFC 8441, 3; RFC 9220, 3), or the server is not reading, and enough heads are already waiting.
struct HeldHead {
    head: Head,
    ends: bool,
}

/// A request's share of a connection.
pub(crate) struct HttpRequest<E: RequestEngine, X: RequestProtocol> {
    share: Share<E, X>,
    /// A head waiting to be sent.
    held: Option<Box<HeldHead>>,
    /// Whether the request cannot be expressed in the protocol, or not for this server.
    is_unspeakable: bool,
}

impl<E: RequestEngine, X: RequestProtocol> Deref for HttpRequest<E, X> {
    type Target = Share<E, X>;

    fn deref(&self) -> &Self::Target {
        &self.share
    }
}

impl<E: RequestEngine, X: RequestProtocol> DerefMut for HttpRequest<E, X> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.share
    }
}

impl<E: RequestEngine, X: RequestProtocol> HttpRequest<E, X>
where
    EngineStream<E>: Into<AnyStream>,
{
    /// Creates a request that has not started yet.
    pub(super) fn new(carrier: Rc<Carrier<E, X>>) -> Self {
        Self { share: Share::new(carrier), held: None, is_unspeakable: false }
    }

    /// Returns the number of tolerated protocol violations.
    pub(crate) fn glitches(&self) -> u32 {
        self.carrier.connection.engine.borrow().glitches()
    }

    /// Like [`send_head`](Self::send_head), for a request with a body of this `length`. If `ends` is set, the body has already
    /// ended. An upgrade with a body cannot be expressed in these protocols.
    pub(crate) fn start(&mut self, head: &Head, length: BodyLength, ends: bool) {
        if head.has_upgrade() && length != BodyLength::None {
            return self.refuse();
        }
        let is_tunnel = head.has_upgrade() || head.method_id() == Method::Connect;
        self.send_head(head, ends && !is_tunnel);
    }

    /// Opens the stream with the head of the request. If `ends` is set, no body follows. A head that cannot be sent yet is held
    /// ([`poll_open`](Self::poll_open)). If the connection accepts no more streams, [`poll_head`](Self::poll_head) returns the
    /// error.
    pub(crate) fn send_head(&mut self, head: &Head, ends: bool) {
        let is_unsettled = head.has_upgrade() && !self.carrier.own.settling().is_settled();
        if is_unsettled || !self.carrier.connection.engine.borrow().takes_heads() {
            self.held = Some(Box::new(HeldHead { head: head.clone(), ends }));
            return;
        }
        self.open(head, ends);
    }

    /// Whether the head is held.
    #[inline]
    pub(crate) fn holds_head(&self) -> bool {
        self.held.is_some()
    }

    /// Sends a held head once that is possible. Ready when no head is held.
    pub(crate) fn poll_open(&mut self, context: &Context<'_>) -> Poll<()> {
        let Some(held) = &self.held else { return Poll::Ready(()) };
        let own = &self.carrier.own;
        if !self.carrier.is_leaving.get() {
            if held.head.has_upgrade() && !own.settling().is_settled() {
                own.settling().waiting.borrow_mut().push(context.waker().clone());
                return Poll::Pending;
            }
            ready!(self.carrier.connection.poll_head_room(context));
        }
        if let Some(held) = self.held.take() {
            self.open(&held.head, held.ends);
        }
        Poll::Ready(())
    }

    /// Called when the request timed out while it waited for its response or for room to be sent. If it was never sent, the
    /// server has read nothing in that time, so later requests use another connection.
    pub(crate) fn note_timeout(&mut self) {
        if self.holds_head() {
            self.carrier.is_leaving.set(true);
        }
    }

    fn open(&mut self, head: &Head, ends: bool) {
        let carrier = &self.carrier;
        let mut engine = carrier.connection.engine.borrow_mut();
        if head.has_upgrade() && !engine.takes_upgrades() {
            drop(engine);
            return self.refuse();
        }
        let opened = engine.open(head, SCHEME, ends);
        drop(engine);
        if let Some(key) = opened {
            if let Some(counters) = carrier.own.counters() {
                counters.streams.up();
            }
            let stream = EngineStream::opened(carrier.connection.clone(), key, ends);
            self.share.begin(stream);
        }
    }

    /// Marks the request as not expressible: it is an upgrade with a body, or an upgrade to a server without support for
    /// it.
    fn refuse(&mut self) {
        self.is_unspeakable = true;
    }

    /// Queues part of the request's body. The last part ends the body.
    ///
    /// # Errors
    /// The stream was reset, or does not exist.
    pub(crate) fn poll_send(&mut self, context: &Context<'_>, rest: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(context));
        match &mut self.share.stream {
            Some(stream) => stream.poll_write(context, rest, &[], true),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Discards the received bytes.
    pub(crate) fn drain(&mut self) {
        if let Some(stream) = &mut self.share.stream {
            *stream.input_slot() = None;
        }
    }

    /// Resets the stream, because the rest of the response is not needed.
    pub(crate) fn cancel(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.set_reset(stream::Reset::Cancelled);
        }
    }

    /// Takes the head of the next response, interim or final, once it has arrived.
    ///
    /// # Errors
    /// No head will arrive.
    pub(crate) fn poll_head(&mut self, context: &Context<'_>, head: &mut Head) -> Poll<Result<(), NoHead>> {
        ready!(self.poll_open(context));
        match &mut self.share.stream {
            None if self.is_unspeakable => Poll::Ready(Err(NoHead::Nothing(None))),
            None => Poll::Ready(Err(NoHead::Refused)),
            Some(stream) => stream.poll_head(context, head).map_err(|none| match none {
                stream::NoHead::Refused => NoHead::Refused,
                _ => NoHead::Nothing(Some(io::ErrorKind::ConnectionReset.into())),
            }),
        }
    }

    /// Returns how the end of the response's body is marked. A body without a declared length ends with the stream and is
    /// reported as chunked.
    pub(crate) fn body_length(&self, head: &Head, method: Method) -> BodyLength {
        match head.response_body(method) {
            BodyLength::None => BodyLength::None,
            BodyLength::UntilClose if head.is_tunnel(method) => BodyLength::UntilClose,
            BodyLength::Length(length) => BodyLength::Length(length),
            _ if self.has_no_rest() => BodyLength::Length(0),
            _ => BodyLength::Chunked,
        }
    }
}

impl<E: RequestEngine, X: RequestProtocol> Drop for HttpRequest<E, X> {
    fn drop(&mut self) {
        if self.stream.is_some()
            && let Some(counters) = self.carrier.own.counters()
        {
            counters.streams.down();
        }
    }
}
