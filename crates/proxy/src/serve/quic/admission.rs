//! Whether a client that sends its first datagram gets a connection.

use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use ::quic::NewClient;
use plan::bind::Bind;
use runtime::shared::Shared as _;
use runtime::timer;
use runtime::trace::quic;
use runtime::worker::ConnectionGuard;
use state::quic_counters::QuicCounters;

use super::listener::BindPlace;
use super::retries;
use crate::evaluate::quic_initial::{InitialVerdict, quic_initial};
use crate::serve::gate::Gate;
use crate::serve::handoff::{self, Incoming, QuicNewcomer};
use crate::serve::quic_socket::QuicSocket;
use crate::stream::h3::{self, H3Connection, QuicEngine};
use crate::worker::Worker;

/// The decision about a client without a connection.
enum Admission {
    Accept,
    /// The datagram is dropped. The client repeats it, when there may be room.
    Drop,
    /// The client has to prove its address first.
    Retry,
    /// The client is sent CONNECTION_REFUSED.
    Refuse,
}

impl QuicSocket {
    /// Decides about a client's first datagram, before anything is allocated for the client.
    pub(super) fn admit(self: &Rc<Self>, place: &BindPlace, client: NewClient, datagram: &mut [u8]) {
        let remote = client.remote();
        self.trace(place, quic::LISTENER_PACKET, "first datagram of a client", remote);
        let counters = &place.proxy.state.frontend.mine().quic.quic;
        if client.is_validated() {
            counters.retry_validated.add(1);
        }
        let mut output = self.output.borrow_mut();
        output.clear();
        match decide(place, &client, self.local(&client)) {
            Admission::Accept => {
                drop(output);
                self.accept(place, client, datagram, counters);
            }
            Admission::Drop => counters.dropped_pkt.add(1),
            Admission::Retry => {
                if !self.may_reply() {
                    return counters.dropped_pkt.add(1);
                }
                let reply = self.endpoint.borrow_mut().retry(&client, &mut output);
                if let Some(reply) = reply {
                    counters.retry_sent.add(1);
                    retries::note();
                    self.send(&reply, &output);
                }
            }
            Admission::Refuse => {
                if !self.may_reply() {
                    return counters.dropped_pkt.add(1);
                }
                let reply = self.endpoint.borrow_mut().refuse(&client, &mut output);
                counters.transp_err_connection_refused.add(1);
                if let Some(reply) = reply {
                    self.send(&reply, &output);
                }
            }
        }
    }

    /// The address that a client sends to.
    fn local(&self, client: &NewClient) -> std::net::SocketAddr {
        let own = self.socket.local_addr();
        client.local_ip().map_or(own, |ip| (ip, own.port()).into())
    }

    /// Creates the connection of a client, and starts the task that serves it.
    fn accept(
        self: &Rc<Self>,
        place: &BindPlace,
        client: NewClient,
        datagram: &mut [u8],
        counters: &QuicCounters,
    ) {
        let (worker, proxy, line) = (&place.worker, &place.proxy, place.bind());
        let Some(acceptor) = &line.tls else { return };
        let permit = (tls::limit::limit() > 0).then(tls::ConnectionPermit::take);
        if permit.as_ref().is_some_and(Option::is_none) || !take_slots(worker, proxy, line) {
            return counters.dropped_pkt.add(1);
        }
        let ends = [Some(client.remote()), Some(self.local(&client))];
        let variables = &worker.shared.plan.variables;
        let keep = tls::Keep {
            session: variables.wants_tls_session(),
            finished: variables.wants_tls_finished(),
            ..tls::Keep::default()
        };
        let mut output = self.output.borrow_mut();
        output.clear();
        let mut endpoint = self.endpoint.borrow_mut();
        let now = h3::now();
        let accepted = endpoint.accept(now, client, datagram, acceptor, keep, permit.flatten(), &mut output);
        drop(endpoint);
        let (handle, quic) = match accepted {
            Ok(accepted) => accepted,
            Err(refused) => {
                release_slots(worker, proxy, line);
                counters.hdshk_fail.add(1);
                if let Some(reply) = refused.reply {
                    self.send(&reply, &output);
                }
                return;
            }
        };
        drop(output);
        let owns = worker.shared.plan.global.tune.quic.zero_copy;
        let engine = QuicEngine::new(quic, &proxy.prepared().h2.h3, owns);
        let connection = H3Connection::new(engine, self.socket.as_fd().as_raw_fd(), false);
        self.register(handle, connection.clone());
        // Counted here, because its task runs only after the other datagrams of the turn.
        proxy.state.frontend.mine().quic.half_open.up();
        let newcomer = QuicNewcomer {
            listener: self.clone(),
            connection,
            handle,
            ends,
            generation: worker.shared.generation,
            frontend: proxy.index,
            bind: place.bind,
            load: ConnectionGuard::add(worker.index),
            accepted_us: timer::now_us(),
        };
        handoff::start_at(worker.clone(), Incoming::Quic(Box::new(newcomer)));
    }
}

fn decide(place: &BindPlace, client: &NewClient, local: std::net::SocketAddr) -> Admission {
    let (worker, proxy, line) = (&place.worker, &place.proxy, place.bind());
    let gate = Gate { worker, proxy, listener: &line.listener, is_tls: true };
    // A client that proves its address was sent here by a Retry.
    let may_begin = place.is_open() || (place.is_over() && client.is_validated());
    if !may_begin || base::memory::is_short() || !gate.has_room() || gate.is_held() {
        return Admission::Drop;
    }
    // Only this worker's share of the handshakes is known without asking the others.
    let half_open = u32::try_from(proxy.state.frontend.mine().quic.half_open.get()).unwrap_or(u32::MAX);
    let share = |limit: u32| limit.div_ceil(u32::try_from(line.workers.len()).unwrap_or(1).max(1));
    let limits = [line.backlog, proxy.backlog, proxy.state.maxconn.load(Relaxed)];
    let backlog = limits.into_iter().find(|limit| *limit > 0);
    // The other half is for connections that are not accepted yet, which do not exist here.
    if backlog.is_some_and(|backlog| half_open >= share(backlog.div_ceil(2))) {
        return Admission::Drop;
    }
    let verdict = quic_initial(worker, proxy, place.bind, client.remote(), Some(local));
    let asks = match verdict {
        InitialVerdict::Accept => false,
        InitialVerdict::Retry => true,
        InitialVerdict::Drop => return Admission::Drop,
        InitialVerdict::Refuse => return Admission::Refuse,
    };
    let threshold = worker.shared.plan.global.tune.quic.retry_threshold;
    let is_flooded = threshold > 0 && half_open >= share(threshold);
    let forces = line.quic.as_ref().is_some_and(|line| line.force_retry);
    if (asks || forces || is_flooded) && !client.is_validated() && client.may_retry() {
        return Admission::Retry;
    }
    Admission::Accept
}

/// Takes the slots of a connection in the limits of the process, the frontend and the listener.
fn take_slots(worker: &Worker, proxy: &plan::Proxy, line: &Bind) -> bool {
    let process = &worker.shared.process;
    let limit = process.maxconn.load(Relaxed);
    let Ok(before) = process.connections.take_below(if limit == 0 { u32::MAX } else { limit }) else {
        return false;
    };
    if limit > 0 && before + 1 == limit {
        process.note_maxconn(limit);
    }
    if !proxy.state.try_connect() {
        process.connections.sub(1);
        return false;
    }
    line.listener.connections.add(1);
    true
}

/// Returns the slots of a client that was not accepted.
fn release_slots(worker: &Worker, proxy: &plan::Proxy, line: &Bind) {
    worker.shared.process.connections.sub(1);
    proxy.state.disconnect();
    line.listener.connections.sub(1);
    line.listener.wake();
}
