//! Idle connections of servers, which requests leave behind and which checks may use between two of
//! them (`check-reuse-pool`; configuration manual, 5.2). Who keeps them is not known here: the
//! binary hands it in.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use net::stream::Stream;
use plan::Proxy;
use plan::check::{CheckScript, Connect, Family, Protocol};
use plan::server::{SendProxy, ServerSettings};

use crate::{CheckContext, Subject};

/// Whose connections are meant.
#[derive(Clone, Copy)]
pub struct IdleRequest<'a> {
    /// The backend.
    pub backend: &'a Proxy,
    /// The server.
    pub server: &'a Arc<ServerSettings>,
    /// The name under which they are told apart, empty for none (`check-pool-conn-name`).
    pub name: &'a str,
}

/// What comes of [`Idle::take`].
pub type Taking<'a> = Pin<Box<dyn Future<Output = Option<Box<dyn Lent>>> + 'a>>;

/// What comes of [`Idle::reach`].
pub type Reaching<'a> = Pin<Box<dyn Future<Output = Option<Stream>> + 'a>>;

/// Keeps idle connections to servers.
pub trait Idle: Send + Sync {
    /// Takes one that is idle, if there is one.
    fn take<'a>(&'a self, wanted: IdleRequest<'a>) -> Taking<'a>;

    /// A way to a server whose connections clients bring (`rhttp@`), over one of these; nothing where
    /// there is none.
    fn reach<'a>(&'a self, wanted: IdleRequest<'a>) -> Reaching<'a>;

    /// Keeps one that a check opened when the server's address had changed `moves` times, or closes
    /// it.
    fn keep(&self, wanted: IdleRequest<'_>, stream: Stream, moves: u32);
}

/// A connection that was idle. Dropping it closes it.
pub trait Lent {
    /// The connection.
    fn stream(&mut self) -> &mut Stream;

    /// Gives it back as it was: nothing is outstanding on it.
    fn give_back(self: Box<Self>);
}

/// Who keeps the idle connections of a server.
#[derive(Clone, Copy)]
pub(crate) struct IdleOwner<'a> {
    pub(crate) idle: &'a dyn Idle,
    pub(crate) wanted: IdleRequest<'a>,
}

/// Where this step's connection is shared with requests; `None` where it is to be one of its own,
/// or is told more or other things than those of requests are.
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
        || matches!(settings.protocol, Some(Protocol::Http2 | Protocol::FastCgi))
        || own.tls.is_some()
    {
        return None;
    }
    Some(IdleOwner {
        idle,
        wanted: IdleRequest { backend: &subject.peer.backend, server: &subject.peer.own, name },
    })
}
