//! Idle server connections left by requests, which checks may use in the meantime (`check-reuse-pool`; configuration manual, 5.2).
//! The pool is passed in by the binary.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use net::stream::Stream;
use plan::Proxy;
use plan::check::{CheckScript, Connect, Family, Protocol};
use plan::server::{SendProxy, ServerSettings};

use crate::{CheckContext, Subject};

/// Selects connections.
#[derive(Clone, Copy)]
pub struct IdleRequest<'a> {
    /// The backend.
    pub backend: &'a Proxy,
    /// The server.
    pub server: &'a Arc<ServerSettings>,
    /// The name that distinguishes connections to the server; empty for none (`check-pool-conn-name`).
    pub name: &'a str,
}

/// The future of [`Idle::take`].
pub type Taking<'a> = Pin<Box<dyn Future<Output = Option<Box<dyn Lent>>> + 'a>>;

/// The future of [`Idle::reach`].
pub type Reaching<'a> = Pin<Box<dyn Future<Output = Option<Stream>> + 'a>>;

/// The future of [`Idle::connect_quic`].
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<QuicReached, QuicUnreached>> + 'a>>;

/// The future of [`Idle::speak_qmux`].
pub type Speaking<'a> = Pin<Box<dyn Future<Output = std::io::Result<Stream>> + 'a>>;

/// A server reached over QUIC.
pub struct QuicReached {
    /// A stream for one HTTP/1 request, which reaches the server as HTTP/3.
    pub stream: Stream,
    /// Our address and the server's.
    pub ends: (SocketAddr, SocketAddr),
    /// The TLS details of the connection.
    pub tls: Arc<tls::Details>,
}

/// Why a server was not reached over QUIC.
#[derive(Debug)]
pub enum QuicUnreached {
    /// No connection was attempted.
    Unknown(&'static str),
    /// The socket failed.
    Socket(std::io::Error),
    /// The server did not answer.
    Silent,
    /// The TLS handshake failed, or the server ended the connection.
    Tls(&'static str),
}

/// The connections to servers that belong to requests, and those over QUIC.
pub trait Idle: Send + Sync {
    /// Takes an idle connection, if there is one.
    fn take<'a>(&'a self, wanted: IdleRequest<'a>) -> Taking<'a>;

    /// Reaches a server over a connection provided by a client (`rhttp@`), or `None` if no connection is available.
    fn reach<'a>(&'a self, wanted: IdleRequest<'a>) -> Reaching<'a>;

    /// Connects to an address of a server over QUIC, with the name as SNI, and keeps the TLS data. Without `is_http` only the
    /// connection is checked.
    fn connect_quic<'a>(
        &'a self,
        wanted: IdleRequest<'a>,
        address: SocketAddr,
        tls: (Option<&'a str>, tls::Keep),
        is_http: bool,
    ) -> Connecting<'a>;

    /// Starts HTTP/3 over QMux on a connection. Returns a stream for one HTTP/1 request, which reaches the server as HTTP/3.
    fn speak_qmux<'a>(&'a self, wanted: IdleRequest<'a>, stream: Stream) -> Speaking<'a>;

    /// Adds a connection to the pool, or closes it. A check opened it when the server's address had changed `moves` times.
    fn keep(&self, wanted: IdleRequest<'_>, stream: Stream, moves: u32);
}

/// An idle connection lent by the pool. Dropping it closes the connection.
pub trait Lent {
    /// The connection.
    fn stream(&mut self) -> &mut Stream;

    /// Returns the connection to the pool. The connection must be idle.
    fn give_back(self: Box<Self>);
}

/// The owner of a server's idle connections.
#[derive(Clone, Copy)]
pub(crate) struct IdleOwner<'a> {
    pub(crate) idle: &'a dyn Idle,
    pub(crate) wanted: IdleRequest<'a>,
}

/// Returns the owner of this step's connection if it is shared with requests, or `None` if the check needs its own connection or
/// other connection options.
pub(crate) fn home<'a>(
    subject: &'a Subject,
    context: &'a CheckContext,
    script: &CheckScript,
    step: &Connect,
) -> Option<IdleOwner<'a>> {
    let (settings, own, health) = (&subject.settings, subject.own(), &subject.server().health);
    let (name, idle) = (settings.reuse.as_deref()?, context.idle.as_deref()?);
    let elsewhere = health.port.load(Relaxed) != 0 || health.address.load().is_some();
    let introduced = settings.send_proxy || own.send_proxy != SendProxy::None;
    if script.family != Family::Http
        || !step.is_usual()
        || elsewhere
        || introduced
        || own.socks4.is_some()
        || matches!(
            settings.protocol,
            Some(Protocol::Http2 | Protocol::FastCgi | Protocol::Quic | Protocol::Qmux)
        )
        || own.tls.is_some()
    {
        return None;
    }
    Some(IdleOwner {
        idle,
        wanted: IdleRequest { backend: &subject.peer.backend, server: &subject.peer.own, name },
    })
}
