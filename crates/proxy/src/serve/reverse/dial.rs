//! `bind rhttp@…`: a listener that opens connections itself and keeps a number of them open (`nbconn`). Requests then arrive on
//! these connections (reverse HTTP, dialling side).
//!
//! Each listener has one task, on the first of its workers, which opens the connections one by one. One of the listener's workers
//! opens and serves each connection, which is counted until it ends. As in HAProxy, a failed attempt is repeated after one
//! second, or immediately if `timeout connect` has already passed.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use h2::Role;
use net::{Stream, proxy_protocol, socks4};
use plan::bind::{BindAddress, ReverseTarget};
use plan::dial;
use plan::server::{SendProxy, ServerName};
use plan::{Proxy, ServerSettings};
use runtime::timer::{Timer, now_ms};
use runtime::worker::{self, ConnectionGuard};
use sample::Env;
use state::Listener;
use state::proxy::Admission;

use super::handshake::Reversal;
use crate::log::LogLine;
use crate::serve::handoff::{self, Dialled, Incoming};
use crate::serve::reverse_quota::{OpenCount, OpenPermit, PAUSE};
use crate::stream::ReceivedBytes;
use crate::stream::h2::{H2Connection, H2Engine};
use crate::worker::Worker;

/// Why a connection could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DialFailure {
    /// `timeout connect`.
    Late,
    Else,
}

/// The last report about a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastReport {
    Beginning,
    Failure,
    Complete,
}

thread_local! {
    /// The connection counts of the listeners that have their task on this worker. They outlive plans.
    static KEPT: RefCell<Vec<(Weak<Listener>, Arc<OpenCount>)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the count of a listener.
fn kept(listener: &Arc<Listener>) -> Arc<OpenCount> {
    KEPT.with_borrow_mut(|all| {
        all.retain(|(of, _)| of.strong_count() > 0);
        if let Some((_, kept)) = all.iter().find(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(listener))) {
            return kept.clone();
        }
        let kept = Arc::<OpenCount>::default();
        all.push((Arc::downgrade(listener), kept.clone()));
        kept
    })
}

/// Keeps the connections of bind number `bind` of frontend number `frontend` open, until the frontend stops or the task of
/// another plan takes over.
pub async fn keep(worker: Rc<Worker>, frontend: usize, bind: usize) {
    let proxy = worker.local(frontend);
    let line = &proxy.binds[bind];
    let BindAddress::Reverse(target) = line.address else { return };
    let workers = &line.workers;
    let kept = kept(&line.listener);
    let mut last_report = LastReport::Beginning;
    if kept.open() == 0 {
        report(&worker, &proxy, target, last_report);
    }
    for turn in 0_usize.. {
        if !is_wanted(&worker, &proxy, &line.listener, &kept, target.connections).await {
            return;
        }
        let to = workers[turn % workers.len()];
        if worker.is_old() {
            return;
        }
        if kept.forgive() {
            // Avoids a busy loop if the peer closes connections immediately.
            pause(&proxy, &line.listener).await;
        }
        let slot = OpenPermit::take(&kept);
        let outcome = dial_on(to, frontend, bind, target, slot).await;
        let now = match outcome {
            Ok(()) if kept.open() >= target.connections => LastReport::Complete,
            Ok(()) => last_report,
            Err(_) => LastReport::Failure,
        };
        if now != last_report {
            last_report = now;
            report(&worker, &proxy, target, last_report);
        }
        if outcome == Err(DialFailure::Late) {
            kept.forgive();
        }
    }
}

/// Waits until one more connection is needed. Returns `false` if the frontend has stopped for good.
async fn is_wanted(worker: &Worker, proxy: &Proxy, listener: &Listener, kept: &OpenCount, most: u32) -> bool {
    poll_fn(|context: &mut Context<'_>| {
        listener.wait(context.waker().clone());
        kept.wait(context.waker());
        match proxy.state.admission() {
            _ if worker.is_old() => Poll::Ready(false),
            Admission::Stopped => Poll::Ready(false),
            Admission::Open if kept.open() < most => Poll::Ready(true),
            _ => Poll::Pending,
        }
    })
    .await
}

/// Waits for the pause, or until the frontend stops.
async fn pause(proxy: &Proxy, listener: &Listener) {
    let timer = Timer::new();
    timer.set_after(now_ms(), Some(PAUSE));
    poll_fn(|context: &mut Context<'_>| {
        listener.wait(context.waker().clone());
        if proxy.state.admission() == Admission::Stopped {
            return Poll::Ready(());
        }
        timer.poll_expired(context)
    })
    .await;
}

/// Opens a connection on another worker.
async fn dial_on(
    to: usize,
    frontend: usize,
    bind: usize,
    target: ReverseTarget,
    slot: OpenPermit,
) -> Result<(), DialFailure> {
    let (send, receive) = tokio::sync::oneshot::channel();
    let posted = worker::post(to, move || {
        let Some(worker) = crate::worker::current() else { return };
        let load = ConnectionGuard::add(worker.index);
        tokio::task::spawn_local(async move {
            let opened = Box::pin(open(&worker, frontend, bind, target, slot, load)).await;
            // If the process stops, the requester may no longer wait.
            let _ = send.send(opened.as_ref().map(drop).map_err(|failure| *failure));
            if let Ok(dialled) = opened {
                handoff::start(Incoming::Dialled(Box::new(dialled)));
            }
        });
    });
    if !posted {
        return Err(DialFailure::Else);
    }
    receive.await.unwrap_or(Err(DialFailure::Else))
}

/// Opens a connection on the calling worker, within `timeout connect`.
async fn open(
    worker: &Rc<Worker>,
    frontend: usize,
    bind: usize,
    target: ReverseTarget,
    slot: OpenPermit,
    load: ConnectionGuard,
) -> Result<Dialled, DialFailure> {
    let backend = worker.local(target.backend);
    let server = backend.server(target.server).ok_or(DialFailure::Else)?;
    let timer = Timer::new();
    timer.set_after(now_ms(), backend.timeouts.connect);
    let mut opening = pin!(reverse(worker, frontend, &backend, &server));
    let opened = poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(opened) = opening.as_mut().poll(context) {
            return Poll::Ready(opened.map_err(|_| DialFailure::Else));
        }
        timer.poll_expired(context).map(|()| Err(DialFailure::Late))
    });
    let (socket, Reversal { connection, reader, .. }) = opened.await?;
    connection.count(&backend.state.backend.mine().h2);
    let generation = worker.shared.generation;
    Ok(Dialled { socket, connection, reader, generation, frontend, bind, load, slot })
}

/// Connects to the server and reverses the connection.
async fn reverse(
    worker: &Rc<Worker>,
    frontend: usize,
    backend: &Proxy,
    server: &ServerSettings,
) -> io::Result<(Stream, Reversal)> {
    let mut socket = connect(worker, server).await?;
    crate::routing::connect::set_options(&socket, backend);
    let header = header(server, &socket);
    write_all(&mut socket, &header).await?;
    if let Some(tls) = server.speaks_tls() {
        let name = name(worker, tls);
        let keep = tls::Keep::default();
        socket.connect_tls(&tls.connector, name.as_deref(), keep).map_err(io::Error::other)?;
        poll_fn(|context| socket.poll_handshake(context)).await.map_err(io::Error::other)?;
    }
    let agreed = socket.tls().is_some_and(|session| session.details().alpn.as_deref() == Some(b"h2"));
    if !agreed && !server.speaks_h2 {
        return Err(io::Error::other("the server does not support HTTP/2"));
    }
    let config = &worker.proxy(frontend).h2.front;
    let engine = H2Engine::reversed(Role::Server, config);
    let connection = H2Connection::new(engine, socket.as_fd().as_raw_fd(), socket.tls().is_some());
    let busy_from = worker.shared.plan.global.tune.glitches.cpu_usage;
    let mut reversal = Reversal::new(connection, ReceivedBytes::default(), busy_from);
    let reversed = poll_fn(|context| reversal.poll(&mut socket, context)).await;
    match reversed {
        Ok(()) => Ok((socket, reversal)),
        Err(_) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Opens the connection with the settings of the server's line.
async fn connect(worker: &Worker, server: &ServerSettings) -> io::Result<Stream> {
    let unresolved = || io::Error::from(io::ErrorKind::AddrNotAvailable);
    let address = dial::target(&server.state.address.load()).ok_or_else(unresolved)?;
    let target = server.socks4.map_or_else(|| address.clone(), net::Target::Ip);
    let mut dial = dial::to_server(server, (&worker.shared.plan.global.tune).into(), &target);
    dial.fast_open = server.tfo;
    let mut socket = dial.connect(&target).await?;
    if server.socks4.is_some() {
        // SOCKS4 supports only IPv4.
        let net::Target::Ip(SocketAddr::V4(wanted)) = address else { return Err(unresolved()) };
        let mut handshake = socks4::Handshake::new(wanted);
        let refused = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        poll_fn(|context| handshake.poll(context, &mut socket)).await.map_err(refused)?;
    }
    Ok(socket)
}

/// Returns the PROXY header. It contains no client address.
fn header(server: &ServerSettings, socket: &Stream) -> Vec<u8> {
    let mut header = Vec::new();
    match server.send_proxy {
        SendProxy::None => {}
        SendProxy::V1 => proxy_protocol::write_v1(socket.local().zip(socket.peer()), &mut header),
        SendProxy::V2 { crc32c, .. } => {
            proxy_protocol::write_v2(None, std::iter::empty(), crc32c.then_some(0), &mut header);
        }
    }
    header
}

async fn write_all(socket: &mut Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match poll_fn(|context| socket.poll_write(context, bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Returns the TLS server name. Its expression cannot refer to a request.
fn name(worker: &Worker, tls: &plan::server::ServerTls) -> Option<String> {
    let ServerName::Expression(expression) = &tls.name else { return None };
    let mut name = Vec::new();
    expression.eval_into(&Env::new(&worker.shared.process, now_ms()), &mut name);
    String::from_utf8(name).ok().filter(|name| !name.is_empty())
}

/// Reports the outcome to the frontend's loggers, as HAProxy does.
fn report(worker: &Worker, proxy: &Proxy, target: ReverseTarget, last_report: LastReport) {
    let backend = &worker.proxy(target.backend).plan;
    let server = backend.servers.get(target.server);
    let server = server.as_ref().map_or("", |server| &*server.state.name);
    let (level, what) = match last_report {
        LastReport::Beginning => (6, "Initiating.".to_owned()),
        LastReport::Failure => (3, "Error encountered.".to_owned()),
        LastReport::Complete => (6, format!("Running with nbconn {} reached.", target.connections)),
    };
    let text = format!("preconnect {}::{}/{server}: {what}", proxy.state.name, backend.state.name);
    let line = LogLine::own(level, &proxy.log_tag, text.as_bytes());
    worker.outbox.borrow_mut().send_all(&worker.shared, &proxy.loggers, &line);
}
