//! An HTTP/1 health check over a connection that a client has provided (`rhttp@`), or over QUIC or QMux. The check gets one end
//! of a socket pair, and the request at the other end is converted to HTTP/2 or HTTP/3 on that connection.
//!
//! Each bridge carries one request and its response. Called by the binary, for `health`, on the worker that runs the check.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::DerefMut;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::quic::{ConnectFailure, LostReason, ServerHandshake};
use http::{Head, KnownName, ParseOptions, ParseStatus};
use net::{Stream, Target};
use plan::dial::Buffers;
use plan::{Proxy, ServerSettings};
use runtime::timer;
use sample::ConnectionError;

use crate::routing::connect_quic::NotBegun;
use crate::routing::takeover::{has_idle_elsewhere, take_over};
use crate::routing::{check_pool, connect_qmux, connect_quic};
use crate::server::h3::{OpenedHttp3, ServerTransport as _, TransportEnd};
use crate::server::http_request::{HttpRequest, RequestProtocol};
use crate::server::pool::PoolQuery;
use crate::server::{Open, SharedRequest, Upstream};
use crate::stream::{AnyStream, EngineStream, RequestEngine};

/// Maximum size of a check's request, in bytes.
const MOST: usize = 1 << 17;

/// An upper bound for the duration of a check. The limits of the check itself end it much earlier.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Returns a stream to `server` over a connection that has room for a request with the connection name `name`. Returns `None` if
/// clients have not provided a connection.
pub async fn reach(backend: &Proxy, server: &Arc<ServerSettings>, name: &str) -> Option<Stream> {
    let (worker, local) = check_pool::find(backend, server)?;
    let key = check_pool::key(name);
    let ask = PoolQuery { key: &key, reuse: backend.reuse, first: false, client: None };
    let mut request = worker.carriers.share(&local, ask);
    if request.is_none() && has_idle_elsewhere(&worker, &local, ask) {
        request = match take_over(&worker, &local, ask, true).await {
            Some(Upstream::Stream(SharedRequest::H2(request))) => Some(request),
            Some(
                Upstream::Stream(SharedRequest::H3(_) | SharedRequest::Qmux(_) | SharedRequest::Fcgi(_))
                | Upstream::Socket(_),
            )
            | None => None,
        };
    }
    bridge(request?, None).ok()
}

/// Sends the request that arrives at one end of a socket pair, and returns the other end. A check without a host gets
/// `authority`, because HTTP/3 requires one (RFC 9114, 4.3.1).
fn bridge<E, X, R>(request: R, authority: Option<SocketAddr>) -> io::Result<Stream>
where
    E: RequestEngine + 'static,
    X: RequestProtocol + 'static,
    R: DerefMut<Target = HttpRequest<E, X>> + 'static,
    EngineStream<E>: Into<AnyStream>,
{
    let (ours, theirs) = pair()?;
    tokio::task::spawn_local(async move {
        // The check notices that the bridge has ended, and needs no reason.
        let _ = timer::timeout(PATIENCE, serve(request, theirs, authority)).await;
    });
    Ok(ours)
}

fn pair() -> io::Result<(Stream, Stream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true).and_then(|()| theirs.set_nonblocking(true))?;
    Ok((Stream::from_fd(ours.into(), false), Stream::from_fd(theirs.into(), false)))
}

/// A server that a check has reached over QUIC.
pub struct QuicReached {
    /// The check's end of the conversation, in HTTP/1.
    pub stream: Stream,
    /// The local address and the server's.
    pub ends: (SocketAddr, SocketAddr),
    /// The TLS details of the connection.
    pub tls: Arc<tls::Details>,
}

/// Why a check did not reach a server over QUIC.
#[derive(Debug)]
pub enum QuicUnreached {
    /// No connection was attempted, for this reason.
    Unknown(&'static str),
    /// The socket failed.
    Socket(io::Error),
    /// The server did not answer.
    Silent,
    /// The TLS handshake failed, or the server ended the connection.
    Tls(&'static str),
}

impl From<tls::Error> for QuicUnreached {
    fn from(error: tls::Error) -> Self {
        match (error.kind, error.kind.facts().2) {
            (tls::FailureKind::TooMany, text) => Self::Unknown(text),
            (_, text) => Self::Tls(text),
        }
    }
}

/// Connects to an address of a server over QUIC for a check, with `name` as SNI. If `is_http` is not set, only the connection itself is
/// checked.
///
/// # Errors
/// The reasons are those of [`QuicUnreached`].
pub async fn connect_quic(
    backend: &Proxy,
    (server, address): (&Arc<ServerSettings>, SocketAddr),
    (name, keep): (Option<&str>, tls::Keep),
    is_http: bool,
) -> Result<QuicReached, QuicUnreached> {
    let unknown = || QuicUnreached::Unknown("the server's address is not fixed");
    let Some((worker, local)) = check_pool::find(backend, server) else { return Err(unknown()) };
    let Some(tls) = &server.tls else { return Err(unknown()) };
    let target = Target::Ip(address);
    let connector = tls.connector.clone();
    let handshake = ServerHandshake { connector, name: name.map(Box::from), keep, early: false };
    let tune = &worker.shared.plan.global.tune;
    let dial = plan::dial::to_server(server, Buffers::of_datagrams(tune), &target);
    let mut transport = connect_quic::begin(&worker, &local, (&dial, address), handshake).map_err(
        |failure| match failure {
            NotBegun::Socket(error) => QuicUnreached::Socket(error),
            NotBegun::Connection(ConnectFailure::Tls(error)) => error.into(),
            NotBegun::Connection(ConnectFailure::Address) => {
                QuicUnreached::Unknown("the server's address has no port")
            }
        },
    )?;
    let reached = poll_fn(|context| transport.poll_handshake(false, context)).await;
    let details = transport.handshake_details();
    if let Err(end) = reached {
        return Err(match (details.failure, end) {
            (Some(error), _) => error.into(),
            (None, TransportEnd::Socket(error)) => QuicUnreached::Socket(error),
            (None, TransportEnd::Lost(LostReason::TimedOut)) => QuicUnreached::Silent,
            (None, TransportEnd::Lost(_)) => {
                let kind = tls::FailureKind::Handshake;
                QuicUnreached::Tls(kind.facts().2)
            }
        });
    }
    let ends = (transport.local(), address);
    let stream = match is_http {
        true => {
            let open = Open::new(&local);
            let opened = OpenedHttp3 { transport, key: check_pool::key(""), ends: None, for_one: true, open };
            bridge(worker.quic_carriers.begin(opened, backend.state.clone()), Some(address))
        }
        false => {
            transport.abandon().await;
            pair().map(|(ours, _)| ours)
        }
    };
    Ok(QuicReached { stream: stream.map_err(QuicUnreached::Socket)?, ends, tls: details })
}

/// Starts HTTP/3 over QMux on a check's connection to a server. Returns the check's end of the conversation, in HTTP/1.
///
/// # Errors
/// The server does not support QMux, or the connection failed.
pub async fn speak_qmux(backend: &Proxy, server: &Arc<ServerSettings>, socket: Stream) -> io::Result<Stream> {
    let Some((worker, local)) = check_pool::here(backend, server) else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let authority = socket.peer();
    let mut transport = connect_qmux::transport(&worker, &local, socket, Vec::new());
    if let Err(end) = poll_fn(|context| transport.poll_parameters(context)).await {
        return Err(match end {
            TransportEnd::Socket(error) => error,
            TransportEnd::Lost(_) => io::Error::other(ConnectionError::QMUX.message()),
        });
    }
    let open = Open::new(&local);
    let opened = OpenedHttp3 { transport, key: check_pool::key(""), ends: None, for_one: true, open };
    bridge(worker.qmux_carriers.begin(opened, backend.state.clone()), authority)
}

/// Forwards the request to the server, and the response back.
async fn serve<E, X, R>(mut request: R, mut check: Stream, authority: Option<SocketAddr>) -> io::Result<()>
where
    E: RequestEngine,
    X: RequestProtocol,
    R: DerefMut<Target = HttpRequest<E, X>>,
    EngineStream<E>: Into<AnyStream>,
{
    let (mut head, body) = receive(&mut check).await?;
    head.clean_connection();
    if let Some(authority) = authority
        && head.get_known(KnownName::Host).is_none()
    {
        head.append(b"host", authority.to_string().as_bytes());
    }
    request.send_head(&head, body.is_empty());
    let mut rest = &body[..];
    while !rest.is_empty() {
        rest = &rest[poll_fn(|context| send(&mut request, context, rest)).await?..];
    }
    let mut response = Head::new();
    loop {
        let came = poll_fn(|context| {
            // The check may have ended early.
            match gone(&mut check, context) {
                true => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                false => request
                    .poll_head(context, &mut response)
                    .map_err(|_| io::ErrorKind::ConnectionReset.into()),
            }
        });
        came.await.map_err(|error: io::Error| error)?;
        if response.status() >= 200 || response.status() == 101 {
            break;
        }
        response.clear();
    }
    let mut out = Vec::new();
    write_head(&response, &mut out);
    loop {
        write(&mut check, &out).await?;
        out.clear();
        let n = poll_fn(|context| request.poll_fill(context)).await?;
        if n == 0 {
            break;
        }
        out.extend_from_slice(request.received());
        request.drain();
    }
    check.close();
    Ok(())
}

/// Whether the check has closed its end. Checks send nothing after the request.
fn gone(check: &mut Stream, context: &mut Context<'_>) -> bool {
    matches!(check.poll_read(context, &mut [0; 16]), Poll::Ready(Ok(0) | Err(_)))
}

/// Receives a check's whole request.
async fn receive(check: &mut Stream) -> io::Result<(Head, Vec<u8>)> {
    let (mut head, mut input) = (Head::new(), Vec::new());
    let options = ParseOptions { max_bytes: MOST, ..ParseOptions::default() };
    loop {
        if let Ok(ParseStatus::Complete { len }) = http::parse_request(&input, &mut head, &options) {
            let due = head.content_length().unwrap_or(0);
            if (input.len() - len) as u64 >= due {
                return Ok((head, input.split_off(len)));
            }
        }
        head.clear();
        let mut room = [0; 4096];
        let n = poll_fn(|context| check.poll_read(context, &mut room)).await?;
        if n == 0 || input.len() > MOST {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        input.extend_from_slice(&room[..n]);
    }
}

fn send<E, X>(
    request: &mut HttpRequest<E, X>,
    context: &mut Context<'_>,
    rest: &[u8],
) -> Poll<io::Result<usize>>
where
    E: RequestEngine,
    X: RequestProtocol,
    EngineStream<E>: Into<AnyStream>,
{
    match ready!(request.poll_send(context, rest)) {
        Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        sent => Poll::Ready(sent),
    }
}

/// Writes the head in HTTP/1. Its length, or the close, marks the end of the body.
fn write_head(head: &Head, out: &mut Vec<u8>) {
    head.write_start_line(out);
    for (name, value) in head.fields() {
        out.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
    }
    out.extend_from_slice(b"connection: close\r\n\r\n");
}

async fn write(check: &mut Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match poll_fn(|context| check.poll_write(context, bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}
