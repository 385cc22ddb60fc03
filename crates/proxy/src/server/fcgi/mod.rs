//! Connections to FastCGI servers. The concurrent requests of many clients share each of them.
//!
//! One task per connection owns the socket ([`task`]). A request that has a share of a connection begins by sending its
//! parameters.

mod task;

use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::{Context, Poll};

use ::fcgi::{Config, Parameters};
use base::clock::WallTime;
use http::{BodyLength, Head, KnownName, Method, ParseError};
use runtime::trace;

use super::h1::{NoHead, NotExpressible};
use super::per_worker::LocalServer;
use super::pool::PoolQuery;
use super::shared::{Carrier, ConnectionList, OpenedConnection, Share};
use crate::stream;
use crate::stream::fastcgi::{FastcgiEngine, FastcgiStream};

/// Logs an application's error output.
pub(crate) type ErrorLog = Box<dyn Fn(&[u8])>;

/// A connection shared by requests.
type FcgiConnection = Carrier<FastcgiEngine, ()>;

/// One worker's FastCGI connections.
#[derive(Default)]
pub(crate) struct Applications(ConnectionList<FastcgiEngine, ()>);

/// A request's share of a connection.
pub(crate) struct FcgiStream {
    share: Share<FastcgiEngine, ()>,
    /// The parameters to send, or why the request cannot be expressed in FastCGI.
    parameters: Result<Option<Parameters>, NotExpressible>,
    method: Method,
}

impl Deref for FcgiStream {
    type Target = Share<FastcgiEngine, ()>;

    fn deref(&self) -> &Self::Target {
        &self.share
    }
}

impl DerefMut for FcgiStream {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.share
    }
}

impl Applications {
    /// Returns a share of a usable connection with room for a request, if there is one.
    #[inline]
    pub(crate) fn share(&self, server: &LocalServer, ask: PoolQuery<'_>) -> Option<Box<FcgiStream>> {
        self.0.share(server, ask).map(FcgiStream::begin)
    }

    /// Creates a connection on a socket. Returns the first request on it.
    pub(crate) fn begin(
        self: &Rc<Self>,
        opened: OpenedConnection,
        config: Config,
        error_log: ErrorLog,
    ) -> Box<FcgiStream> {
        let OpenedConnection { socket, preamble, key, ends, for_one, mut open } = opened;
        open.source = trace::TraceSource::Fcgi;
        let shared = Carrier::new((&socket, FastcgiEngine::new(config)), 0, key, ends, open, ());
        shared.is_leaving.set(for_one);
        self.0.add(&shared);
        // Created before the task starts, because a connection with a request is not idle.
        let request = FcgiStream::begin(shared.clone());
        tokio::task::spawn_local(task::run(self.clone(), shared, socket, preamble, error_log));
        request
    }

    /// Closes all connections once their requests are over, because they belong to an older plan.
    pub(crate) fn retire(&self) {
        self.0.retire();
    }

    /// Closes the idle connections to a server.
    pub(crate) fn look(&self, server: &LocalServer) {
        self.0.look(server);
    }
}

impl FcgiStream {
    fn begin(shared: Rc<FcgiConnection>) -> Box<Self> {
        Box::new(Self { share: Share::new(shared), parameters: Ok(None), method: Method::Other })
    }

    /// Prepares the request's `parameters` for sending. Returns whether FastCGI can express the request. If not,
    /// [`poll_head`](Self::poll_head) returns the error.
    pub(crate) fn prepare(
        &mut self,
        method: Method,
        parameters: impl FnOnce() -> Result<Parameters, NotExpressible>,
    ) -> bool {
        self.method = method;
        // FastCGI does not support tunnels.
        let parameters = if method == Method::Connect { Err(NotExpressible::Head) } else { parameters() };
        self.parameters = parameters.map(Some);
        self.parameters.is_ok()
    }

    /// Sends the prepared parameters. If `ends` is set, the request has no body. If the connection accepts no more requests,
    /// [`poll_head`](Self::poll_head) returns the error.
    pub(crate) fn start(&mut self, ends: bool) {
        let Ok(parameters) = &mut self.parameters else { return };
        if let Some(parameters) = parameters.take()
            && let Ok(stream) =
                FastcgiStream::open(&self.share.carrier.connection, &parameters, self.method, ends)
        {
            self.share.begin(stream);
        }
    }

    /// Takes the head of the response once it has arrived. As in HAProxy, a date is added if the application sent none, and a
    /// length if the response is complete.
    ///
    /// # Errors
    /// No head will arrive.
    pub(crate) fn poll_head(&mut self, context: &Context<'_>, head: &mut Head) -> Poll<Result<(), NoHead>> {
        let method = self.method;
        let Some(stream) = &mut self.share.stream else {
            let refused = self.parameters.as_ref().err();
            return Poll::Ready(Err(refused.map_or(NoHead::Refused, |why| NoHead::Unspeakable(*why))));
        };
        let polled = stream.poll_head(context, head).map_err(|none| match none {
            stream::NoHead::Refused => NoHead::Refused,
            stream::NoHead::Cut => NoHead::Nothing(None),
            stream::NoHead::Malformed(kind) => NoHead::Malformed(ParseError { kind, offset: 0 }),
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

    /// Returns how the end of the response's body is marked. A body without a declared length ends with the output and is
    /// reported as chunked.
    pub(crate) fn body_length(&self, head: &Head, method: Method) -> BodyLength {
        match head.response_body(method) {
            BodyLength::None => BodyLength::None,
            BodyLength::Length(length) => BodyLength::Length(length),
            BodyLength::Chunked | BodyLength::UntilClose => BodyLength::Chunked,
        }
    }
}
