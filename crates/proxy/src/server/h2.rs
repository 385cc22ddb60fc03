//! An HTTP/2 connection to a server, shared by requests from many clients.
//!
//! One task per connection owns the socket ([`carriers`](super::h2_pool)). A request that has a share of a connection opens its
//! stream by sending its head ([`http_request`](super::http_request)).

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use runtime::{Boxed, Boxes, Local};
use sample::Endpoint;
use state::counters::Multiplexed as Counters;

use super::http_request::{HttpRequest, RequestProtocol, Settling};
use super::shared::{Carrier, ProtocolState};
use crate::stream::h2::H2Engine;

/// A request's share of a connection.
pub(crate) type H2Request = HttpRequest<H2Engine, Http2>;

/// A connection shared by requests.
pub(crate) type Multiplexed = Carrier<H2Engine, Http2>;

/// The HTTP/2 state of the connection.
pub(crate) struct Http2 {
    /// The arrival of the server's settings.
    pub(super) settling: Settling,
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

impl RequestProtocol for Http2 {
    fn settling(&self) -> &Settling {
        &self.settling
    }

    fn counters(&self) -> Option<&Counters> {
        Some(&self.backend.backend.mine().h2)
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
        BoxedRequest(Some(REQUESTS.with(|requests| requests.put(Self::new(carrier)))))
    }
}
