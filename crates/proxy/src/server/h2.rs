//! An HTTP/2 connection to a server, shared by the requests of many clients.
//!
//! One task per connection owns the socket ([`carriers`](super::h2_pool)). A request with a share of a connection opens its stream
//! by sending its head.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use ::fields::Scheme;
use http::{BodyLength, Head, Method};
use runtime::{Boxed, Boxes, Local};
use sample::Endpoint;
use state::counters::Multiplexed as Counters;

use super::h1::NoHead;
use super::shared::{Carrier, ProtocolState, Share};
use crate::stream;
use crate::stream::h2::{H2Engine, H2Stream};

/// The scheme of requests without one in their target. As in HAProxy, it does not depend on TLS.
const SCHEME: Scheme = Scheme::Https;

/// A connection shared by requests.
pub(crate) type Multiplexed = Carrier<H2Engine, Http2>;

/// The HTTP/2 state of the connection.
pub(crate) struct Http2 {
    /// Whether the server's settings have been received.
    pub(super) is_settled: Cell<bool>,
    /// Requests waiting for the settings.
    pub(super) unsettled: RefCell<Vec<Waker>>,
    /// The backend that the server belongs to.
    pub(super) backend: Local<state::Proxy>,
    /// The callback that passes the connection to another worker, if one has requested it.
    pub(super) leaves_to: RefCell<Option<Give>>,
}

impl ProtocolState for Http2 {
    fn is_free(&self) -> bool {
        self.leaves_to.borrow().is_none()
    }
}

/// Passes an idle connection to the worker that requested it.
pub(crate) type Give = Box<dyn FnOnce(H2Transfer)>;

/// An idle connection that is passed to another worker.
pub(crate) struct H2Transfer {
    pub(super) stream: net::Detached,
    pub(super) engine: ::h2::Connection<Vec<u8>>,
    pub(super) is_settled: bool,
    pub(super) uses: u32,
    pub(super) ends: Option<(Endpoint, Endpoint)>,
    pub(super) open: super::OpenTransfer,
}

thread_local! {
    /// The worker's pool of requests.
    static REQUESTS: Boxes<H2Request> = Boxes::default();
}

/// An [`H2Request`] in a reused box.
pub(crate) struct BoxedRequest(Option<Boxed<H2Request>>);

impl Deref for BoxedRequest {
    type Target = H2Request;

    fn deref(&self) -> &H2Request {
        self.0.as_ref().unwrap_or_else(|| unreachable!("the box is given back by Drop alone"))
    }
}

impl DerefMut for BoxedRequest {
    fn deref_mut(&mut self) -> &mut H2Request {
        self.0.as_mut().unwrap_or_else(|| unreachable!("the box is given back by Drop alone"))
    }
}

impl Drop for BoxedRequest {
    fn drop(&mut self) {
        if let Some(boxed) = self.0.take() {
            // At thread exit the pool no longer exists.
            let _ = REQUESTS.try_with(|requests| requests.take_back(boxed));
        }
    }
}

/// A request head that cannot be sent yet. Either it is an upgrade, and the settings in which the server announces support for that
/// have not arrived (RFC 8441, 3); or the server does not read, and enough heads wait for it already.
struct HeldHead {
    head: Head,
    ends: bool,
}

/// A request's share of a connection.
pub(crate) struct H2Request {
    share: Share<H2Engine, Http2>,
    /// A head waiting to be sent.
    held: Option<Box<HeldHead>>,
    /// Whether the request cannot be expressed in HTTP/2, or not for this server.
    is_unspeakable: bool,
}

impl Deref for H2Request {
    type Target = Share<H2Engine, Http2>;

    fn deref(&self) -> &Self::Target {
        &self.share
    }
}

impl DerefMut for H2Request {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.share
    }
}

impl Multiplexed {
    pub(super) fn counters(&self) -> &Counters {
        &self.own.backend.backend.mine().h2
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.get() == 0 && self.connection.engine.borrow().streams() == 0
    }
}

impl H2Request {
    pub(super) fn begin(carrier: Rc<Multiplexed>) -> BoxedRequest {
        let request = Self { share: Share::new(carrier), held: None, is_unspeakable: false };
        BoxedRequest(Some(REQUESTS.with(|requests| requests.put(request))))
    }

    /// Returns the number of tolerated protocol violations.
    pub(crate) fn glitches(&self) -> u32 {
        self.carrier.connection.engine.borrow().glitches()
    }

    /// Like [`send_head`](Self::send_head), for a request with a body of this `length`, which has ended if `ends`. An upgrade with
    /// a body cannot be expressed in HTTP/2.
    pub(crate) fn start(&mut self, head: &Head, length: BodyLength, ends: bool) {
        if head.has_upgrade() && length != BodyLength::None {
            return self.refuse();
        }
        let is_tunnel = head.has_upgrade() || head.method_id() == Method::Connect;
        self.send_head(head, ends && !is_tunnel);
    }

    /// Opens the stream with the head of the request; with `ends`, there is no body. A head that cannot be sent yet is held
    /// ([`poll_open`](Self::poll_open)). If the connection accepts no more streams, [`poll_head`](Self::poll_head) returns the
    /// error.
    pub(crate) fn send_head(&mut self, head: &Head, ends: bool) {
        let is_unsettled = head.has_upgrade() && !self.carrier.own.is_settled.get();
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

    /// Sends a held head once that is possible; ready when no head is held.
    pub(crate) fn poll_open(&mut self, context: &Context<'_>) -> Poll<()> {
        let Some(held) = &self.held else { return Poll::Ready(()) };
        let own = &self.carrier.own;
        if !self.carrier.is_leaving.get() {
            if held.head.has_upgrade() && !own.is_settled.get() {
                own.unsettled.borrow_mut().push(context.waker().clone());
                return Poll::Pending;
            }
            ready!(self.carrier.connection.poll_head_room(context));
        }
        if let Some(held) = self.held.take() {
            self.open(&held.head, held.ends);
        }
        Poll::Ready(())
    }

    /// Called when the request timed out while it waited for its response, or for room to be sent. If it was never sent, the server
    /// has read nothing in that time, and later requests use another connection.
    pub(crate) fn note_timeout(&mut self) {
        if self.holds_head() {
            self.carrier.is_leaving.set(true);
        }
    }

    fn open(&mut self, head: &Head, ends: bool) {
        let carrier = &self.carrier;
        let mut engine = carrier.connection.engine.borrow_mut();
        if head.has_upgrade() && !engine.peer().connect_protocol {
            drop(engine);
            return self.refuse();
        }
        let opened = engine.open(head, SCHEME, ends);
        drop(engine);
        if let Ok(key) = opened {
            carrier.counters().streams.up();
            let stream = H2Stream::opened(carrier.connection.clone(), key, ends);
            self.share.begin(stream);
        }
    }

    /// Marks the request as not expressible in HTTP/2: it is an upgrade with a body, or an upgrade to a server without support for
    /// it.
    fn refuse(&mut self) {
        self.is_unspeakable = true;
    }

    /// Queues part of the request's body; with the last part the body ends.
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

    /// Returns how the body of the response ends. A body without a declared length ends with the stream, and is reported as
    /// chunked.
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

impl Drop for H2Request {
    fn drop(&mut self) {
        if self.stream.is_some() {
            self.carrier.counters().streams.down();
        }
    }
}
