//! A connection that is kept between requests to the same server.

use net::Stream;
use runtime::timer::{self, now_ms};

use crate::error::{Error, ErrorKind};
use crate::exchange::{exchange, open};
use crate::grpc::{GrpcLink, GrpcReply, GrpcRequest};
use crate::message::{Request, Response};
use crate::settings::ClientSettings;
use crate::url::Url;

/// A connection is not used again after this time without a request, in ms. A firewall may have forgotten it.
const MOST_IDLE_MS: u64 = 60_000;

/// A connection is not used for longer than this time, in ms, so that a changed address takes effect.
const MOST_AGE_MS: u64 = 300_000;

/// Makes one request after the other, if possible on the same connection. All requests must have the same [`ClientSettings`].
///
/// Requests are not retried (`retries`), except once on a new connection if the server closed the kept one without a response.
#[derive(Default)]
pub struct KeptConnection(Option<IdleConnection>);

impl std::fmt::Debug for KeptConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptConnection(open: {})", self.0.is_some())
    }
}

/// An open connection.
struct IdleConnection {
    stream: Stream,
    /// The state of a connection for gRPC.
    grpc: Option<GrpcLink>,
    /// The server: its name and port, and whether TLS is used.
    server: (String, bool),
    opened_ms: u64,
    used_ms: u64,
}

fn server(url: &Url) -> (String, bool) {
    (url.host_header(), url.is_tls)
}

/// Whether the server closed the connection without an answer, as it may between requests.
fn is_closed((error, heard): &(Error, bool)) -> bool {
    !heard && error.kind == ErrorKind::Broken
}

impl KeptConnection {
    /// Sends `request` and waits for the complete response, like [`send`](crate::send). The caller adds `Connection: keep-alive`;
    /// otherwise the server closes the connection. Dropping the future closes it.
    ///
    /// # Errors
    /// The connection failed, or the response is malformed. A response with any status is a success.
    pub async fn send(&mut self, settings: &ClientSettings, request: &Request) -> Result<Response, Error> {
        within(settings, self.send_now(settings, request)).await
    }

    /// Makes a unary gRPC call and waits for the response, like [`call`](crate::call). Dropping the future closes the connection.
    ///
    /// # Errors
    /// The connection failed, or the response is not one of gRPC. A response with any gRPC status is a success.
    pub async fn call(
        &mut self,
        settings: &ClientSettings,
        request: &GrpcRequest,
    ) -> Result<GrpcReply, Error> {
        within(settings, self.call_now(settings, request)).await
    }

    async fn send_now(&mut self, settings: &ClientSettings, request: &Request) -> Result<Response, Error> {
        let bytes = request.write(false)?;
        let method = http::Method::from_bytes(request.method.as_bytes());
        let mut kept = self.take(&request.url).filter(|kept| kept.grpc.is_none());
        if kept.as_mut().is_some_and(|kept| !kept.stream.is_idle()) {
            kept = None;
        }
        loop {
            let is_first = kept.is_none();
            let mut link = match kept.take() {
                Some(kept) => kept,
                None => IdleConnection::open(settings, &request.url).await?,
            };
            match exchange(settings, method, &bytes, &mut link.stream).await {
                Ok((response, keeps)) => {
                    if keeps {
                        self.put(link);
                    } else {
                        link.stream.close();
                    }
                    return Ok(response);
                }
                Err(failure) => {
                    link.stream.close();
                    if is_first || !is_closed(&failure) {
                        return Err(failure.0);
                    }
                }
            }
        }
    }

    async fn call_now(
        &mut self,
        settings: &ClientSettings,
        request: &GrpcRequest,
    ) -> Result<GrpcReply, Error> {
        let mut kept = self.take(&request.url);
        if let Some(link) = &mut kept {
            let is_usable = match &mut link.grpc {
                Some(grpc) => grpc.is_usable(&mut link.stream).await,
                None => false,
            };
            if !is_usable {
                kept = None;
            }
        }
        loop {
            let is_first = kept.is_none();
            let mut link = match kept.take() {
                Some(kept) => kept,
                None => IdleConnection::open(settings, &request.url).await?,
            };
            let grpc = link.grpc.get_or_insert_default();
            match grpc.call(settings, request, &mut link.stream).await {
                Ok(reply) => {
                    self.put(link);
                    return Ok(reply);
                }
                Err(failure) => {
                    link.stream.close();
                    if is_first || !is_closed(&failure) {
                        return Err(failure.0);
                    }
                }
            }
        }
    }

    /// Takes the connection if it is for the server of a URL, and not too old.
    fn take(&mut self, url: &Url) -> Option<IdleConnection> {
        let now = now_ms();
        self.0.take().filter(|kept| {
            kept.server == server(url)
                && now.saturating_sub(kept.used_ms) < MOST_IDLE_MS
                && now.saturating_sub(kept.opened_ms) < MOST_AGE_MS
        })
    }

    fn put(&mut self, link: IdleConnection) {
        self.0 = Some(IdleConnection { used_ms: now_ms(), ..link });
    }
}

impl IdleConnection {
    async fn open(settings: &ClientSettings, url: &Url) -> Result<Self, Error> {
        let stream = open(settings, url).await?;
        let now = now_ms();
        Ok(Self { stream, grpc: None, server: server(url), opened_ms: now, used_ms: now })
    }
}

/// Limits the time of a request.
async fn within<T>(
    settings: &ClientSettings,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let overdue = Error::new(ErrorKind::Timeout, "the request timed out");
    timer::timeout(settings.total_timeout, request).await.unwrap_or(Err(overdue))
}
