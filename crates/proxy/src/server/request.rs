//! A request on a connection that it shares with others, for all protocols of servers. A new protocol is a new variant of this
//! type.

use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::fcgi::Parameters;
use http::{BodyLength, Head, Method};
use runtime::Buffer;
use sample::{Endpoint, StreamFacts};

use super::h1::{NoHead, NotExpressible};
use super::per_worker::LocalServer;
use super::private::Reservable;
use super::{fcgi, h2, h3};
use crate::flow::{Flow, FlowError, Sink, Source};
use crate::stream::WireProtocol;

/// A request on a shared connection.
pub(crate) enum SharedRequest {
    H2(h2::BoxedRequest),
    H3(Box<h3::QuicRequest>),
    Qmux(Box<h3::QmuxRequest>),
    Fcgi(Box<fcgi::FcgiStream>),
}

/// Calls the same method on every variant.
macro_rules! each {
    ($any:expr, $request:ident => $call:expr) => {
        match $any {
            Self::H2($request) => $call,
            Self::H3($request) => $call,
            Self::Qmux($request) => $call,
            Self::Fcgi($request) => $call,
        }
    };
}

impl SharedRequest {
    /// The protocol of the connection.
    pub(crate) fn protocol(&self) -> WireProtocol {
        match self {
            Self::H2(_) => WireProtocol::Http2,
            Self::H3(_) | Self::Qmux(_) => WireProtocol::Http3,
            Self::Fcgi(_) => WireProtocol::FastCgi,
        }
    }

    /// Returns the connection, to reserve it for a client.
    pub(crate) fn connection(&self) -> Rc<dyn Reservable> {
        each!(self, request => request.connection())
    }

    /// Whether the protocol allows switching to another one (upgrades, WebSocket).
    pub(crate) fn can_upgrade(&self) -> bool {
        match self {
            Self::H2(_) | Self::H3(_) | Self::Qmux(_) => true,
            Self::Fcgi(_) => false,
        }
    }

    /// Prepares a head that needs more than the fields of the request, such as FastCGI's `parameters`. Returns whether the
    /// protocol can express the request. If not, [`poll_head`](Self::poll_head) returns the error.
    pub(crate) fn prepare(
        &mut self,
        method: Method,
        parameters: impl FnOnce() -> Result<Parameters, NotExpressible>,
    ) -> bool {
        match self {
            Self::H2(_) | Self::H3(_) | Self::Qmux(_) => true,
            Self::Fcgi(request) => request.prepare(method, parameters),
        }
    }

    /// Sends the head of a prepared request, or holds it until the connection has room for it. `length` is the length of the
    /// body. If `ends` is set, no part of the body follows.
    pub(crate) fn send_head(&mut self, head: &Head, length: BodyLength, ends: bool) {
        match self {
            Self::H2(request) => request.start(head, length, ends),
            Self::H3(request) => request.start(head, length, ends),
            Self::Qmux(request) => request.start(head, length, ends),
            Self::Fcgi(request) => request.start(ends),
        }
    }

    /// Whether the head was not sent yet.
    #[inline]
    pub(crate) fn holds_head(&self) -> bool {
        match self {
            Self::H2(request) => request.holds_head(),
            Self::H3(request) => request.holds_head(),
            Self::Qmux(request) => request.holds_head(),
            Self::Fcgi(_) => false,
        }
    }

    /// Sends a held head once that is possible.
    pub(crate) fn poll_open(&mut self, context: &Context<'_>) -> Poll<()> {
        match self {
            Self::H2(request) => request.poll_open(context),
            Self::H3(request) => request.poll_open(context),
            Self::Qmux(request) => request.poll_open(context),
            Self::Fcgi(_) => Poll::Ready(()),
        }
    }

    /// Called when no response arrived in time.
    pub(crate) fn note_timeout(&mut self) {
        match self {
            Self::H2(request) => request.note_timeout(),
            Self::H3(request) => request.note_timeout(),
            Self::Qmux(request) => request.note_timeout(),
            Self::Fcgi(_) => {}
        }
    }

    /// Takes the head of the next response.
    ///
    /// # Errors
    /// No head will arrive.
    pub(crate) fn poll_head(&mut self, context: &Context<'_>, head: &mut Head) -> Poll<Result<(), NoHead>> {
        each!(self, request => request.poll_head(context, head))
    }

    /// Returns how the end of the response's body is marked. A body of unknown length ends with the stream and is reported as
    /// chunked.
    pub(crate) fn body_length(&self, head: &Head, method: Method) -> BodyLength {
        each!(self, request => request.body_length(head, method))
    }

    /// Abandons the request: the stream is reset, so that the server stops sending.
    pub(crate) fn cancel(&mut self) {
        match self {
            Self::H2(request) => request.cancel(),
            Self::H3(request) => request.cancel(),
            Self::Qmux(request) => request.cancel(),
            // The request is aborted when it is dropped.
            Self::Fcgi(_) => {}
        }
    }

    /// Returns the number of tolerated protocol violations on the connection.
    pub(crate) fn glitches(&self) -> u32 {
        match self {
            Self::H2(request) => request.glitches(),
            Self::H3(request) => request.glitches(),
            Self::Qmux(request) => request.glitches(),
            Self::Fcgi(_) => 0,
        }
    }

    /// Whether the server refused the connection's early data, and thus the request, without processing it.
    pub(crate) fn refused_early(&self) -> bool {
        match self {
            Self::H3(request) => request.refused_early(),
            Self::H2(_) | Self::Qmux(_) | Self::Fcgi(_) => false,
        }
    }

    /// Returns the server of the connection.
    pub(crate) fn server(&self) -> &Rc<LocalServer> {
        each!(self, request => request.server())
    }

    /// Returns the number of requests sent over the connection so far, including this one.
    pub(crate) fn uses(&self) -> u32 {
        each!(self, request => request.uses())
    }

    /// Returns the local and the remote endpoint of the connection.
    pub(crate) fn ends(&self) -> Option<(Endpoint, Endpoint)> {
        each!(self, request => request.ends())
    }

    /// Returns the TLS parameters of the connection.
    pub(crate) fn tls(&self) -> Option<&Arc<tls::Details>> {
        each!(self, request => request.tls())
    }

    /// Returns the descriptor of the connection.
    pub(crate) fn descriptor(&self) -> RawFd {
        each!(self, request => request.descriptor())
    }

    /// Returns the number, limits, and reset code of the stream.
    pub(crate) fn facts(&self) -> StreamFacts {
        each!(self, request => request.facts())
    }

    /// Returns the received bytes of the response's body that were not taken yet.
    pub(crate) fn received(&self) -> &[u8] {
        each!(self, request => request.received())
    }

    /// Whether the response is complete and the rest of its body is in [`received`](Self::received).
    pub(crate) fn is_ended(&self) -> bool {
        each!(self, request => request.is_ended())
    }

    /// Returns the buffer of received bytes, or `None` if no stream was opened.
    pub(crate) fn input(&mut self) -> Option<&mut Buffer> {
        each!(self, request => request.input())
    }

    /// Receives more of the response's body. Returns 0 at its end.
    ///
    /// # Errors
    /// The response is truncated, or there is no stream.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        each!(self, request => request.poll_fill(context))
    }

    /// Passes the received bytes of the body to `flow`.
    ///
    /// # Errors
    /// No body causes an error.
    pub(crate) fn admit(&mut self, flow: &mut Flow) -> Result<(), FlowError> {
        each!(self, request => request.admit(flow))
    }

    /// Returns the source of the response's body.
    pub(crate) fn source(&mut self) -> Source<'_> {
        each!(self, request => request.source())
    }

    /// Returns the sink of the request's body.
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        each!(self, request => request.sink())
    }
}
