//! The socket of a bind line and worker: demultiplexes datagrams and admits clients.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use ::quic::{Ecn, Endpoint, Settings, SharedKeys, SocketIndex};
use net::steering::SocketPlace;
use net::udp::{Batch, UdpSocket};
use plan::bind::Bind;
use plan::quic::QuicTune;
use runtime::timer;
use runtime::trace::quic;
use state::proxy::Admission;

use crate::points;
use crate::serve::quic_socket::QuicSocket;
use crate::server::per_worker::LocalProxy;
use crate::stream::{h3, quic as transport};
use crate::worker::{self, Worker};

/// The first bit of packets that are part of a handshake or negotiate the version.
const LONG_HEADER: u8 = 0x80;

/// The keys that the sockets of all workers have in common.
fn shared_keys(secret: Option<&str>) -> &'static SharedKeys {
    static KEYS: OnceLock<SharedKeys> = OnceLock::new();
    KEYS.get_or_init(|| secret.map_or_else(SharedKeys::random, |secret| SharedKeys::new(secret.as_bytes())))
}

/// Returns the transport settings of a bind line.
fn settings(bind: &Bind, tune: &QuicTune, bufsize: usize) -> Settings {
    let line = bind.quic.as_deref();
    let congestion =
        line.map_or((Default::default(), tune.front.max_window), |line| (line.congestion, line.max_window));
    transport::settings(congestion, &tune.front, tune, bufsize)
}

/// Serves the QUIC connections that arrive at `socket`, a socket of bind line number `bind` of frontend number `frontend`.
/// `position` is its place among the sockets of the bind line.
///
/// An in-place reload keeps the task and its socket if the new plan has the bind line too.
pub async fn serve(
    worker: Rc<Worker>,
    socket: UdpSocket,
    position: SocketPlace,
    frontend: usize,
    bind: usize,
) {
    let proxy = worker.local(frontend);
    let global = &worker.shared.plan.global;
    let line = &proxy.binds[bind];
    let Some(acceptor) = &line.tls else { return };
    let keys = shared_keys(global.cluster_secret.as_deref());
    let settings = settings(line, &global.tune.quic, global.tune.bufsize);
    let endpoint = Endpoint::new(keys, SocketIndex(position.index), &settings, acceptor);
    let listener = QuicSocket::new(socket, endpoint);
    let mut place = BindPlace { worker, proxy, bind };
    let mut batch = Batch::default();
    while poll_fn(|context| listener.poll_receive(context, &mut place, &mut batch)).await {
        place.follow_plan();
        listener.process(&place, &mut batch);
        // The connections that got datagrams run before the next ones are received.
        tokio::task::yield_now().await;
    }
}

/// The bind line in the current plan.
pub(super) struct BindPlace {
    pub(super) worker: Rc<Worker>,
    pub(super) proxy: Rc<LocalProxy>,
    pub(super) bind: usize,
}

impl BindPlace {
    pub(super) fn bind(&self) -> &Bind {
        &self.proxy.binds[self.bind]
    }

    /// Switches to the current plan, if it has the bind line.
    fn follow_plan(&mut self) {
        if !self.worker.is_old() {
            return;
        }
        let Some(now) = worker::current() else { return };
        let Some(proxy) = now.same_frontend(&self.proxy) else { return };
        let own = &self.bind().listener;
        let Some(bind) = proxy.binds.iter().position(|bind| std::sync::Arc::ptr_eq(&bind.listener, own))
        else {
            return;
        };
        (self.worker, self.proxy, self.bind) = (now, proxy, bind);
    }

    /// Whether clients may still begin connections.
    pub(super) fn is_open(&self) -> bool {
        !self.worker.is_old() && self.proxy.state.admission() == Admission::Open
    }

    /// Whether the socket is to be closed once its connections have ended.
    fn is_over(&self) -> bool {
        self.worker.is_old() || self.proxy.state.admission() == Admission::Stopped
    }
}

impl QuicSocket {
    /// Ready with `true` if datagrams have arrived, and with `false` if the socket is not needed any more.
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        place: &mut BindPlace,
        batch: &mut Batch,
    ) -> Poll<bool> {
        place.follow_plan();
        if place.is_over() && self.endpoint.borrow().connections() == 0 {
            return Poll::Ready(false);
        }
        // An error belongs to one datagram, such as an ICMP message about an earlier one.
        if let Poll::Ready(Ok(())) = self.socket.poll_recv(context, batch) {
            return Poll::Ready(true);
        }
        self.task.replace(Some(context.waker().clone()));
        place.bind().listener.wait(context.waker().clone());
        Poll::Pending
    }

    /// Passes received datagrams to their connections.
    fn process(self: &Rc<Self>, place: &BindPlace, batch: &mut Batch) {
        let now = h3::now();
        let counters = &place.proxy.state.frontend.mine().quic.quic;
        let rejects_privileged = place.worker.shared.plan.global.tune.quic.reject_privileged_ports;
        for received in batch.received() {
            let source = received.source;
            let is_rejected = source.port() == 0 || (rejects_privileged && source.port() < 1024);
            if is_rejected || self.is_own(source, received.destination) {
                counters.dropped_pkt.add(received.datagrams().count() as u64);
                continue;
            }
            let (destination, ecn) = (received.destination, Ecn::from_bits(received.ecn));
            for datagram in received.datagrams() {
                let mut output = self.output.borrow_mut();
                output.clear();
                let bytes = (&*datagram).into();
                let taken =
                    self.endpoint.borrow_mut().receive(now, source, destination, ecn, bytes, &mut output);
                match taken {
                    ::quic::Demultiplexed::Nothing => counters.dropped_pkt.add(1),
                    ::quic::Demultiplexed::ForConnection(handle, input) => {
                        drop(output);
                        self.pass(handle, input);
                    }
                    ::quic::Demultiplexed::NewClient(client) => {
                        drop(output);
                        self.admit(place, client);
                    }
                    ::quic::Demultiplexed::Reply(reply) => {
                        if !self.may_reply() {
                            counters.dropped_pkt.add(1);
                            continue;
                        }
                        if output.first().is_some_and(|first| first & LONG_HEADER == 0) {
                            counters.stless_rst_sent.add(1);
                            self.trace(place, quic::RESET, "stateless reset", source);
                        }
                        self.send(&reply, &output);
                    }
                }
            }
        }
    }

    /// Reports an event that belongs to no connection.
    pub(super) fn trace(&self, place: &BindPlace, events: u64, message: &str, remote: SocketAddr) {
        points::of_quic_listener((&place.bind().listener, &place.proxy.state), events, message, remote);
    }

    /// Whether a datagram claims to come from this socket: an answer would be sent to ourselves.
    fn is_own(&self, source: SocketAddr, destination: Option<IpAddr>) -> bool {
        let own = self.socket.local_addr();
        source.port() == own.port() && (source.ip() == own.ip() || Some(source.ip()) == destination)
    }

    /// Whether another reply without a connection may be sent.
    pub(super) fn may_reply(&self) -> bool {
        self.replies.borrow_mut().take(timer::now_ms())
    }
}
