//! A connection of a check: opened with the server line's options, then used for I/O until a deadline.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, ready};
use std::time::Duration;

use net::dial::Target;
use net::socks4;
use net::stream::Stream;
use plan::check::{CheckKind, CheckSettings, Connect, Family, Port, Protocol};
use plan::dial;
use plan::server::SendProxy;
use runtime::timer::{Elapsed, now_ms, timeout_at};
use state::server::ServerAddress;
use tokio::net::UdpSocket;

use crate::check_env::CheckEnv;
use crate::idle::{IdleOwner, IdleRequest, Lent, QuicUnreached};
use crate::{CheckContext, CheckedServer, Subject};

/// The maximum size of a read.
const ROOM: usize = 4096;

/// A connection of a check.
pub(crate) struct CheckLink<'a> {
    /// The connection, or `None` once it was given away.
    carrier: Option<Carrier>,
    /// In ms of the worker's clock.
    deadline: u64,
    /// Whether the connection is closed normally instead of with a reset.
    linger: bool,
    /// The pool that may get the connection afterwards.
    home: Option<IdleOwner<'a>>,
    settled: bool,
    /// Whether the connection is HTTP/1, regardless of the server's protocol.
    pub(crate) is_bridged: bool,
    /// The facts of the connection behind a bridge, over QUIC or QMux.
    bridged: Option<BridgedFacts>,
}

/// The facts of a connection that the check's stream does not have.
struct BridgedFacts {
    /// Our address and the server's.
    ends: Option<(SocketAddr, SocketAddr)>,
    tls: Option<Arc<tls::Details>>,
}

/// The ownership of a connection.
enum Carrier {
    /// A connection of the check itself. The number is how often the server's address had changed when it was opened.
    Own(Stream, u32),
    /// A connection lent from the pool of requests.
    Lent(Box<dyn Lent>),
    /// A UDP socket that is connected to the server (`option udp-check`).
    Datagrams(UdpSocket),
}

/// Why a link failed.
pub(crate) enum LinkError {
    Timeout,
    Io(io::Error),
}

impl<'a> CheckLink<'a> {
    fn new(carrier: Carrier, deadline: u64, linger: bool, home: Option<IdleOwner<'a>>) -> Self {
        Self {
            carrier: Some(carrier),
            deadline,
            linger,
            home,
            settled: false,
            is_bridged: false,
            bridged: None,
        }
    }

    fn stream(&mut self) -> io::Result<&mut Stream> {
        match &mut self.carrier {
            Some(Carrier::Own(stream, _)) => Ok(stream),
            Some(Carrier::Lent(lent)) => Ok(lent.stream()),
            // Its callers have another way for datagrams.
            Some(Carrier::Datagrams(_)) => Err(io::ErrorKind::Unsupported.into()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Marks the connection as idle: if it may be shared with requests, it is returned to the pool when it is dropped.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }

    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), LinkError> {
        let deadline = self.deadline;
        if let Some(Carrier::Datagrams(socket)) = &self.carrier {
            return flatten(timeout_at(deadline, async { socket.send(bytes).await.map(drop) }).await);
        }
        let writing = async {
            let stream = self.stream()?;
            while !bytes.is_empty() {
                match poll_fn(|context| stream.poll_write(context, bytes)).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    n => bytes = &bytes[n..],
                }
            }
            poll_fn(|context| stream.poll_flush(context)).await
        };
        flatten(timeout_at(deadline, writing).await)
    }

    /// Appends the next data to `buffer`, up to a length of `limit`. Returns 0 at the end of the stream.
    pub(crate) async fn read(&mut self, buffer: &mut Vec<u8>, limit: usize) -> Result<usize, LinkError> {
        let deadline = self.deadline;
        let wanted = limit.saturating_sub(buffer.len()).clamp(1, ROOM);
        if let Some(Carrier::Datagrams(socket)) = &self.carrier {
            let reading = async {
                let mut room = vec![0u8; wanted];
                let n = socket.recv(&mut room).await?;
                buffer.extend_from_slice(&room[..n]);
                Ok(n)
            };
            return flatten(timeout_at(deadline, reading).await);
        }
        let stream = self.stream().map_err(LinkError::Io)?;
        let reading = poll_fn(|context| {
            // On the stack of this call, because a waiting check holds no buffer.
            let mut room = [0u8; ROOM];
            let n = ready!(stream.poll_read(context, &mut room[..wanted]))?;
            buffer.extend_from_slice(&room[..n]);
            Poll::Ready(Ok(n))
        });
        flatten(timeout_at(deadline, reading).await)
    }

    /// Returns both addresses of the connection, if it has any.
    pub(crate) fn ends(&mut self) -> Option<(SocketAddr, SocketAddr)> {
        if let Some(bridged) = &self.bridged {
            return bridged.ends;
        }
        if let Some(Carrier::Datagrams(socket)) = &self.carrier {
            return socket.local_addr().ok().zip(socket.peer_addr().ok());
        }
        let stream = self.stream().ok()?;
        stream.local().zip(stream.peer())
    }

    /// Whether HTTP/2 was negotiated in TLS.
    pub(crate) fn agreed_on_h2(&mut self) -> bool {
        self.agreed_on(b"h2")
    }

    fn agreed_on(&mut self, name: &[u8]) -> bool {
        let session = self.stream().ok().and_then(|stream| stream.tls());
        session.is_some_and(|session| session.details().alpn.as_deref() == Some(name))
    }

    /// Returns the TLS details of the connection, if it uses TLS.
    pub(crate) fn tls(&mut self) -> Option<Arc<tls::Details>> {
        if let Some(bridged) = &self.bridged {
            return bridged.tls.clone();
        }
        self.stream().ok()?.tls().map(|session| session.details().clone())
    }
}

impl Drop for CheckLink<'_> {
    fn drop(&mut self) {
        if self.settled
            && let Some(IdleOwner { idle, wanted }) = self.home
        {
            match self.carrier.take() {
                Some(Carrier::Own(stream, moves)) => idle.keep(wanted, stream, moves),
                Some(Carrier::Lent(lent)) => lent.give_back(),
                Some(Carrier::Datagrams(_)) | None => {}
            }
        }
        // Checks leave no connections in TIME_WAIT.
        if !self.linger
            && let Ok(stream) = self.stream()
        {
            stream.reset_on_close();
        }
    }
}

/// Returns `start` plus `limit`, in ms of the worker's clock.
fn after(start: u64, limit: Duration) -> u64 {
    start.saturating_add(limit.as_millis() as u64)
}

fn flatten<T>(result: Result<io::Result<T>, Elapsed>) -> Result<T, LinkError> {
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(LinkError::Io(error)),
        Err(_) => Err(LinkError::Timeout),
    }
}

/// Why connecting failed.
pub(crate) enum ConnectError {
    /// No connection was attempted: the address is unknown, or not allowed.
    Unknown(&'static str),
    /// The attempt failed.
    Failed(io::Error),
    /// The attempt took too long.
    Timeout,
    /// The connection was established, but a header or a proxy on the way failed.
    Broken(io::Error),
    /// The connection was established, but TLS failed.
    Tls(&'static str),
    /// The connection was established, but the TLS handshake timed out.
    TlsTimeout,
}

/// Returns the connection of a `connect` step: an idle one from `home` if available, otherwise a new one. The data that precedes
/// the conversation has been sent on it.
pub(crate) async fn obtain<'a>(
    subject: &Subject,
    context: &CheckContext,
    step: &Connect,
    facts: &CheckEnv,
    home: Option<IdleOwner<'a>>,
) -> Result<CheckLink<'a>, ConnectError> {
    if step.datagrams {
        return open_datagrams(subject, context, step, facts).await;
    }
    if let Some(IdleOwner { idle, wanted }) = home
        && let Some(lent) = idle.take(wanted).await
    {
        let allowed = subject.settings.timeout.unwrap_or(subject.settings.inter);
        return Ok(CheckLink::new(Carrier::Lent(lent), after(now_ms(), allowed), false, home));
    }
    if **subject.server().address.load() == ServerAddress::Reverse {
        return reach(subject, context, step).await;
    }
    if uses_quic(subject, step) {
        return open_quic(subject, context, step, facts).await;
    }
    open(subject, context, step, facts, home).await
}

/// How long an empty datagram of a check without rules may be refused, at most.
const REFUSAL: Duration = Duration::from_millis(500);

/// Opens a UDP socket. Without rules, an empty datagram is sent; the check fails if the server's system refuses it.
async fn open_datagrams<'a>(
    subject: &Subject,
    context: &CheckContext,
    step: &Connect,
    facts: &CheckEnv,
) -> Result<CheckLink<'a>, ConnectError> {
    let settings = &subject.settings;
    let target = target(subject, step, facts).map_err(ConnectError::Unknown)?;
    let Target::Ip(address) = target else {
        return Err(ConnectError::Unknown("datagrams need an IP address"));
    };
    let dial = dial::to_server(subject.peer.own(), context.datagrams, &target);
    let socket = dial.connect_datagrams(address).map_err(ConnectError::Failed)?;
    let socket = UdpSocket::from_std(socket.into()).map_err(ConnectError::Failed)?;
    let start = now_ms();
    let deadline = after(start, settings.timeout.unwrap_or(settings.inter));
    if matches!(&*settings.kind, CheckKind::Script(script) if !script.sends()) {
        socket.send(&[]).await.map_err(ConnectError::Failed)?;
        let patience = deadline.min(after(start, REFUSAL));
        // Silence is a success: the server need not answer.
        if let Ok(Err(error)) = timeout_at(patience, socket.recv(&mut [0; 1])).await {
            return Err(ConnectError::Failed(error));
        }
    }
    Ok(CheckLink::new(Carrier::Datagrams(socket), deadline, true, None))
}

/// Whether a step connects over QUIC: the server is reached over QUIC, and the check either names this protocol or has no separate
/// address or parameter.
fn uses_quic(subject: &Subject, step: &Connect) -> bool {
    let health = &subject.server().health;
    let is_elsewhere = health.port.load(Relaxed) != 0 || health.address.load().is_some();
    let is_wanted = match (step.protocol, subject.settings.protocol) {
        (Some(protocol), _) => protocol == Protocol::Quic,
        (None, Some(protocol)) => protocol == Protocol::Quic && step.is_usual(),
        (None, None) => step.is_usual() && !is_elsewhere,
    };
    is_wanted && subject.own().quic.is_some()
}

/// Connects over QUIC.
async fn open_quic<'a>(
    subject: &Subject,
    context: &CheckContext,
    step: &Connect,
    facts: &CheckEnv,
) -> Result<CheckLink<'a>, ConnectError> {
    let settings = &subject.settings;
    let Target::Ip(address) = target(subject, step, facts).map_err(ConnectError::Unknown)? else {
        return Err(ConnectError::Unknown("the server's name is not resolved"));
    };
    let is_http = matches!(&*settings.kind, CheckKind::Script(script) if script.family == Family::Http);
    let none = ConnectError::Unknown("no QUIC connection is possible");
    let Some(idle) = context.idle.as_deref() else { return Err(none) };
    let name = subject.own().tls.as_ref().and_then(|tls| tls.check_name.as_deref());
    let name = step.name.as_deref().or(name);
    let wanted = IdleRequest { backend: &subject.peer.backend, server: &subject.peer.own, name: "" };
    let start = now_ms();
    let connect_by = connect_by(settings, start);
    let connecting = idle.connect_quic(wanted, address, (name, context.keep), is_http);
    let reached = match timeout_at(connect_by, connecting).await {
        Ok(Ok(reached)) => reached,
        Ok(Err(QuicUnreached::Unknown(text))) => return Err(ConnectError::Unknown(text)),
        Ok(Err(QuicUnreached::Socket(error))) => return Err(ConnectError::Failed(error)),
        Ok(Err(QuicUnreached::Tls(text))) => return Err(ConnectError::Tls(text)),
        Ok(Err(QuicUnreached::Silent)) | Err(_) => return Err(ConnectError::Timeout),
    };
    let answer_by = settings.timeout.map_or(after(start, settings.inter), |answer| after(now_ms(), answer));
    let mut link = CheckLink::new(Carrier::Own(reached.stream, 0), answer_by, true, None);
    link.is_bridged = true;
    link.bridged = Some(BridgedFacts { ends: Some(reached.ends), tls: Some(reached.tls) });
    Ok(link)
}

/// Returns when a connection must be established. `timeout check` starts at that time. If it is not set, `inter` limits the whole
/// check.
fn connect_by(settings: &CheckSettings, start: u64) -> u64 {
    match (settings.timeout, settings.connect_timeout) {
        (Some(_), Some(connect)) => after(start, connect.min(settings.inter)),
        _ => after(start, settings.inter),
    }
}

/// Reaches a server that cannot be connected to, over a connection of a client.
async fn reach<'a>(
    subject: &Subject,
    context: &CheckContext,
    step: &Connect,
) -> Result<CheckLink<'a>, ConnectError> {
    let none = || ConnectError::Unknown("no client has connected for this server");
    let is_http =
        matches!(&*subject.settings.kind, CheckKind::Script(script) if script.family == Family::Http);
    if !is_http || !step.is_usual() {
        return Err(ConnectError::Unknown("checks of reverse HTTP servers must be HTTP requests"));
    }
    let name = subject.settings.reuse.as_deref().unwrap_or_default();
    let wanted = IdleRequest { backend: &subject.peer.backend, server: &subject.peer.own, name };
    let idle = context.idle.as_deref().ok_or_else(none)?;
    let settings = &subject.settings;
    let deadline = after(now_ms(), settings.timeout.unwrap_or(settings.inter));
    let reached = timeout_at(deadline, idle.reach(wanted)).await.map_err(|_| ConnectError::Timeout)?;
    let mut link = CheckLink::new(Carrier::Own(reached.ok_or_else(none)?, 0), deadline, true, None);
    link.is_bridged = true;
    Ok(link)
}

async fn open<'a>(
    subject: &Subject,
    context: &CheckContext,
    step: &Connect,
    facts: &CheckEnv,
    home: Option<IdleOwner<'a>>,
) -> Result<CheckLink<'a>, ConnectError> {
    let settings = &subject.settings;
    // Read before the address: if the address changes between the two reads, the connection is taken as outdated, and never as
    // current by mistake.
    let moves = subject.server().moves();
    let target = target(subject, step, facts).map_err(ConnectError::Unknown)?;
    let via = settings.socks4.filter(|_| step.via_socks4 || step.default);
    let header = send_proxy(subject, step);
    let start = now_ms();
    let connect_by = connect_by(settings, start);
    let reached = via.map_or_else(|| target.clone(), Target::Ip);
    let dial = dial::to_server(subject.peer.own(), context.sockets, &reached);
    let stream = match timeout_at(connect_by, dial.connect(&reached)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(ConnectError::Failed(error)),
        Err(_) => return Err(ConnectError::Timeout),
    };
    let mut link = CheckLink::new(Carrier::Own(stream, moves), connect_by, step.linger, home);
    let prepared = async {
        if via.is_some() {
            tunnel(&mut link, &target).await?;
        }
        introduce(&mut link, header, settings.never_local).await
    };
    match prepared.await {
        Ok(()) => {}
        Err(LinkError::Timeout) => return Err(ConnectError::Timeout),
        Err(LinkError::Io(error)) => return Err(ConnectError::Broken(error)),
    }
    if let Some((connector, name)) = subject.own().tls.as_ref().and_then(|tls| tls.of_step(step)) {
        secure(&mut link, connector, name, context.keep).await?;
    }
    if uses_qmux(subject, step, &mut link) {
        bridge(&mut link, subject, context).await?;
    }
    link.deadline = settings.timeout.map_or(after(start, settings.inter), |answer| after(now_ms(), answer));
    Ok(link)
}

/// Whether a step's HTTP requests are sent over QMux: by `proto`, or negotiated in TLS.
fn uses_qmux(subject: &Subject, step: &Connect, link: &mut CheckLink<'_>) -> bool {
    let settings = &subject.settings;
    let is_http = matches!(&*settings.kind, CheckKind::Script(script) if script.family == Family::Http);
    let usual = settings.protocol.filter(|_| step.default || step.implied);
    is_http
        && match step.protocol.or(usual) {
            Some(protocol) => protocol == Protocol::Qmux,
            None => link.agreed_on(b"h3"),
        }
}

/// Starts HTTP/3 over QMux on an established connection. The check continues with HTTP/1 on its end of a bridge.
async fn bridge(
    link: &mut CheckLink<'_>,
    subject: &Subject,
    context: &CheckContext,
) -> Result<(), ConnectError> {
    let none = ConnectError::Unknown("no QMux connection is possible");
    let Some(idle) = context.idle.as_deref() else { return Err(none) };
    let facts = BridgedFacts { ends: link.ends(), tls: link.tls() };
    let Some(Carrier::Own(stream, moves)) = link.carrier.take() else { return Err(none) };
    let wanted = IdleRequest { backend: &subject.peer.backend, server: &subject.peer.own, name: "" };
    match timeout_at(link.deadline, idle.speak_qmux(wanted, stream)).await {
        Ok(Ok(stream)) => link.carrier = Some(Carrier::Own(stream, moves)),
        Ok(Err(error)) => return Err(ConnectError::Broken(error)),
        Err(_) => return Err(ConnectError::Timeout),
    }
    link.bridged = Some(facts);
    link.is_bridged = true;
    // Requests cannot use the bridge.
    link.home = None;
    Ok(())
}

/// Performs the TLS handshake on an established connection.
async fn secure(
    link: &mut CheckLink<'_>,
    connector: &tls::Connector,
    name: Option<&str>,
    keep: tls::Keep,
) -> Result<(), ConnectError> {
    let failed = |error: tls::Error| match (error.kind, error.kind.facts().2) {
        (tls::FailureKind::TooMany, text) => ConnectError::Unknown(text),
        (_, text) => ConnectError::Tls(text),
    };
    let deadline = link.deadline;
    let stream = link.stream().map_err(ConnectError::Broken)?;
    stream.connect_tls(connector, name, keep).map_err(failed)?;
    match timeout_at(deadline, poll_fn(|context| stream.poll_handshake(context))).await {
        Ok(outcome) => outcome.map_err(failed),
        Err(_) => Err(ConnectError::TlsTimeout),
    }
}

/// Opens a plain connection to `target` for a conversation limited to `limit`.
pub(crate) async fn open_plain(
    peer: &CheckedServer,
    context: &CheckContext,
    target: &Target,
    connect_limit: Option<Duration>,
    limit: Duration,
) -> Result<CheckLink<'static>, ConnectError> {
    let start = now_ms();
    let connect_by = after(start, connect_limit.unwrap_or(limit).min(limit));
    let dial = dial::to_server(peer.own(), context.sockets, target);
    match timeout_at(connect_by, dial.connect(target)).await {
        Ok(Ok(stream)) => Ok(CheckLink::new(Carrier::Own(stream, 0), after(start, limit), false, None)),
        Ok(Err(error)) => Err(ConnectError::Failed(error)),
        Err(_) => Err(ConnectError::Timeout),
    }
}

/// Returns the address to check: the address of the step, otherwise the one set for checks by the server line or the runtime
/// socket, otherwise the server's address.
fn target(subject: &Subject, step: &Connect, facts: &CheckEnv) -> Result<Target, &'static str> {
    let health = &subject.server().health;
    let address = subject.server().address.load();
    let asked = match &step.port {
        None => None,
        Some(Port::Fixed(port)) => Some(*port),
        Some(Port::Expression(expression)) => facts.port(expression),
    };
    let checked = Some(health.port.load(Relaxed) as u16);
    let own = match &**address {
        ServerAddress::Ip(address) => Some(address.port()),
        _ => None,
    };
    let port = [asked, step.address.and_then(|(_, port)| port), checked, own];
    let port = port.into_iter().flatten().find(|port| *port > 0);
    if let Some(ip) = step.address.map(|(ip, _)| ip).or(health.address.load().as_deref().copied()) {
        return Ok(Target::Ip(SocketAddr::new(ip, port.unwrap_or(0))));
    }
    match &**address {
        ServerAddress::Ip(address) => Ok(Target::Ip(SocketAddr::new(address.ip(), port.unwrap_or(0)))),
        other => dial::target(other).ok_or("the server's name is not resolved"),
    }
}

/// Returns the PROXY header to send: the one of the server line, or version 1 if it has none.
fn send_proxy(subject: &Subject, step: &Connect) -> SendProxy {
    if !(step.send_proxy || step.default && subject.settings.send_proxy) {
        return SendProxy::None;
    }
    match subject.own().send_proxy {
        SendProxy::None => SendProxy::V1,
        version => version,
    }
}

async fn introduce(link: &mut CheckLink<'_>, version: SendProxy, never_local: bool) -> Result<(), LinkError> {
    if version == SendProxy::None {
        return Ok(());
    }
    let (ends, mut header) = (link.ends(), Vec::new());
    match version {
        SendProxy::None => {}
        SendProxy::V1 => net::proxy_protocol::write_v1(ends, &mut header),
        SendProxy::V2 { crc32c, .. } => {
            // A check is made by Weir itself, without a client.
            let ends = ends.filter(|_| never_local);
            net::proxy_protocol::write_v2(ends, std::iter::empty(), crc32c.then_some(0), &mut header);
        }
    }
    link.write_all(&header).await
}

/// Asks a SOCKS4 proxy to connect to `target`.
async fn tunnel(link: &mut CheckLink<'_>, target: &Target) -> Result<(), LinkError> {
    let Target::Ip(SocketAddr::V4(target)) = target else {
        let error = io::Error::new(io::ErrorKind::Unsupported, "SOCKS4 supports IPv4 addresses only");
        return Err(LinkError::Io(error));
    };
    let (mut handshake, deadline) = (socks4::Handshake::new(*target), link.deadline);
    let stream = link.stream().map_err(LinkError::Io)?;
    let agreed = poll_fn(|context| handshake.poll(context, stream).map_err(io::Error::from));
    flatten(timeout_at(deadline, agreed).await)
}
