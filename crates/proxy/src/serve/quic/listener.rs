//! The socket of a bind line and worker: demultiplexes datagrams and admits clients.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Instant;

use ::quic::{Ecn, Endpoint, QuicConnection, Settings, SharedKeys, SocketIndex};
use net::steering::SocketPlace;
use net::udp::{Batch, UdpSocket};
use plan::bind::Bind;
use plan::quic::QuicTune;
use runtime::trace::quic;
use runtime::{datagrams, timer};
use state::proxy::Admission;

use super::forwarding::{DatagramInfo, DatagramQueue, Forwarder, Retirement};
use super::retries;
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

/// A worker's access to the QUIC datagrams of a bind line.
pub struct QuicPort {
    /// The socket.
    pub socket: UdpSocket,
    /// Whether this worker receives from it. Otherwise another worker does, and forwards the datagrams.
    pub receives: bool,
    /// The position of the socket among the process's sockets at this address. If workers share one socket, the position of this
    /// worker among them.
    pub place: SocketPlace,
    /// The datagrams that other workers forward.
    pub queue: DatagramQueue,
}

/// Serves the QUIC connections that arrive at `port`, which belongs to bind line number `bind` of frontend number `frontend`.
///
/// An in-place reload keeps the task and its socket if the new plan has the bind line too.
pub async fn serve(worker: Rc<Worker>, port: QuicPort, frontend: usize, bind: usize) {
    let proxy = worker.local(frontend);
    let global = &worker.shared.plan.global;
    let line = &proxy.binds[bind];
    if line.tls.is_none() {
        return;
    }
    let QuicPort { socket, receives, place: position, queue } = port;
    let keys = shared_keys(global.cluster_secret.as_deref());
    let settings = settings(line, &global.tune.quic, global.tune.bufsize);
    let endpoint = Endpoint::new(keys, SocketIndex(position.index), &settings);
    let listener = QuicSocket::new(socket, endpoint);
    let mut place = BindPlace { worker, proxy, bind, retirement: queue.retirement() };
    let mut input = Input {
        received: receives.then(Batch::default),
        forwarder: Forwarder::new(position, &queue),
        forwarded: datagrams::Batch::default(),
        drops: listener.socket.drops().unwrap_or(0),
        queue,
    };
    while let Some(source) = poll_fn(|context| listener.poll_receive(context, &mut place, &mut input)).await {
        place.follow_plan();
        let may_have_more = match source {
            Source::Socket => {
                listener.process(&place, &mut input);
                input.received.as_ref().is_some_and(Batch::is_full)
            }
            Source::Queue => {
                listener.process_forwarded(&place, &input.forwarded);
                true
            }
        };
        // The connections that got datagrams run before the next ones are received.
        if may_have_more {
            tokio::task::yield_now().await;
        }
    }
}

/// The datagrams of a turn.
struct Input {
    /// The datagrams from the socket, if this worker receives from it.
    received: Option<Batch>,
    forwarder: Forwarder,
    /// The datagrams that another worker received.
    forwarded: datagrams::Batch<DatagramInfo>,
    queue: DatagramQueue,
    /// The number of datagrams discarded by the kernel, as last seen.
    drops: u32,
}

impl Input {
    /// Returns how many datagrams the kernel has discarded since the last call because the receive buffer was full. An overflow
    /// leaves full batches in the buffer, so the kernel is asked only after these.
    fn dropped_by_kernel(&mut self, socket: &UdpSocket) -> u32 {
        if !self.received.as_ref().is_some_and(Batch::is_full) {
            return 0;
        }
        let now = socket.drops().unwrap_or(self.drops);
        now.wrapping_sub(std::mem::replace(&mut self.drops, now))
    }
}

/// Where datagrams have arrived.
enum Source {
    Socket,
    Queue,
}

/// The bind line in the current plan.
pub(super) struct BindPlace {
    pub(super) worker: Rc<Worker>,
    pub(super) proxy: Rc<LocalProxy>,
    pub(super) bind: usize,
    /// Whether other sockets of the bind line get its new connections.
    retirement: Retirement,
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
        !self.worker.is_old()
            && self.proxy.state.admission() == Admission::Open
            && !self.retirement.has_begun()
    }

    /// Whether the socket is to be closed once its connections have ended.
    pub(super) fn is_over(&self) -> bool {
        self.worker.is_old()
            || self.proxy.state.admission() == Admission::Stopped
            || self.retirement.has_begun()
    }
}

impl QuicSocket {
    /// Ready once datagrams have arrived, and with `None` if the socket is not needed any more.
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        place: &mut BindPlace,
        input: &mut Input,
    ) -> Poll<Option<Source>> {
        place.follow_plan();
        if place.is_over() && self.endpoint.borrow().connections() == 0 {
            let Some(until) = retries::expected_until() else { return Poll::Ready(None) };
            self.timer.set(until);
            if self.timer.poll_expired(context).is_ready() {
                return Poll::Ready(None);
            }
        }
        if input.queue.poll_receive(context, &mut input.forwarded) == Poll::Ready(true) {
            return Poll::Ready(Some(Source::Queue));
        }
        if let Some(batch) = &mut input.received
            && self.socket.poll_recv_any(context, batch).is_ready()
        {
            return Poll::Ready(Some(Source::Socket));
        }
        self.task.replace(Some(context.waker().clone()));
        place.bind().listener.wait(context.waker().clone());
        Poll::Pending
    }

    /// Passes received datagrams to their connections, and forwards those of other workers.
    fn process(self: &Rc<Self>, place: &BindPlace, input: &mut Input) {
        let now = h3::now();
        let counters = &place.proxy.state.frontend.mine().quic.quic;
        let rejects_privileged = place.worker.shared.plan.global.tune.quic.reject_privileged_ports;
        for received in input.received.iter_mut().flat_map(Batch::received) {
            let source = received.source;
            let is_rejected = source.port() == 0 || (rejects_privileged && source.port() < 1024);
            if is_rejected || self.is_own(source, received.destination) {
                counters.dropped_pkt.add(received.datagrams().count() as u64);
                continue;
            }
            let info = DatagramInfo { source, destination: received.destination, ecn: received.ecn };
            for datagram in received.datagrams() {
                if !input.forwarder.take(info, datagram) {
                    self.process_one(place, now, info, datagram);
                }
            }
        }
        let dropped = input.forwarder.finish() as u64 + u64::from(input.dropped_by_kernel(&self.socket));
        if dropped > 0 {
            counters.rxbuf_full.add(dropped);
        }
    }

    /// Passes datagrams that another worker has received to their connections.
    fn process_forwarded(self: &Rc<Self>, place: &BindPlace, batch: &datagrams::Batch<DatagramInfo>) {
        let now = h3::now();
        for (info, datagram) in batch.iter() {
            self.process_one(place, now, *info, &mut datagram.to_vec());
        }
    }

    fn process_one(
        self: &Rc<Self>,
        place: &BindPlace,
        now: Instant,
        info: DatagramInfo,
        datagram: &mut [u8],
    ) {
        let counters = &place.proxy.state.frontend.mine().quic.quic;
        let DatagramInfo { source, destination, ecn } = info;
        let mut output = self.output.borrow_mut();
        output.clear();
        let ecn = Ecn::from_bits(ecn);
        let taken = self.endpoint.borrow_mut().demultiplex(source, destination, ecn, datagram, &mut output);
        match taken {
            ::quic::Demultiplexed::Nothing => counters.dropped_pkt.add(1),
            ::quic::Demultiplexed::ForConnection(handle) => {
                drop(output);
                self.pass(handle, |quic| {
                    quic.receive(now, source, destination, ecn, datagram);
                });
            }
            ::quic::Demultiplexed::Reset(handle) => {
                drop(output);
                self.pass(handle, QuicConnection::receive_reset);
            }
            ::quic::Demultiplexed::NewClient(client) => {
                drop(output);
                self.admit(place, client, datagram);
            }
            ::quic::Demultiplexed::Reply(reply) => {
                if !self.may_reply() {
                    counters.dropped_pkt.add(1);
                    return;
                }
                if output.first().is_some_and(|first| first & LONG_HEADER == 0) {
                    counters.stless_rst_sent.add(1);
                    self.trace(place, quic::RESET, "stateless reset", source);
                }
                self.send(&reply, &output);
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
