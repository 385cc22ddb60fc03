//! The beginning of a session: limits, rules, and the server.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use balance::Wish;
use base::clock::WallTime;
use net::Target;
use plan::dial::{self, Buffers};
use plan::proxy::ServerTarget;
use plan::server::{Observe, UseSource};
use rules::{Hold, RuleOutcome, Stage};
use runtime::timer::{now_ms, now_us};
use sample::{Accepted, Cause, Endpoint, Ends, Env, Session};
use state::proxy::Admission;
use state::server::{ServerAddress, Tally, Trouble};
use state::sessions::{self, Activity};
use udplb::{SessionId, SessionKey};

use super::end;
use super::flow::UdpFlow;
use super::place::ShardPlace;
use super::routes;
use super::shard::Shard;
use super::slots;
use super::{SUCCESSORS, is_served};
use crate::evaluate::quic_initial;
use crate::exchange::view::holds;
use crate::fault::Fault;
use crate::routing::{assign, attempt, connect_error};
use crate::serve::gate::Gate;
use crate::server::per_worker::{LocalProxy, LocalServer};

/// A server with a slot.
struct ChosenServer {
    backend: Rc<LocalProxy>,
    server: Rc<LocalServer>,
    tally: Tally,
}

impl Shard {
    /// Begins the session of a client's first `datagram`; `None` if it is not accepted, or no server takes it.
    pub(super) fn begin(&self, place: &ShardPlace, key: SessionKey, datagram: &[u8]) -> Option<SessionId> {
        let (worker, frontend, bind) = (&place.worker, &place.frontend, place.bind());
        // An answer would reach no client, or this process.
        if key.source.port() == 0 || is_served(key.source, key.destination) {
            frontend.state.frontend.mine().traffic.request_errors.add(1);
            return None;
        }
        let gate = Gate { worker, proxy: frontend, listener: &bind.listener, is_tls: false };
        let is_open = match frontend.state.admission() {
            Admission::Open => true,
            Admission::Paused => false,
            Admission::Stopped => SUCCESSORS.load(Relaxed) > 0,
        };
        let is_open = is_open && !base::memory::is_short();
        if !is_open || !gate.has_room() || gate.is_held() || !slots::take_slots(place) {
            frontend.state.frontend.mine().denied_connections.add(1);
            if let Some(of_listener) = bind.listener.mine() {
                of_listener.denied_connections.add(1);
            }
            return None;
        }
        let began_us = now_us();
        count_connection(place, began_us / 1000);
        let end = Endpoint::Ip;
        let session = Box::new(Session::new(Accepted {
            ends: Ends { source: end(key.source), destination: end(self.local(key.destination)) },
            wall_us: WallTime::now().since_1970_us(),
            us: began_us,
            frontend: frontend.held.clone(),
            listener: frontend.listener(place.bind),
            id: worker.session_id(),
        }));
        if !is_accepted(place, &session, datagram) {
            frontend.state.frontend.mine().denied_sessions.add(1);
            if let Some(of_listener) = bind.listener.mine() {
                of_listener.denied_sessions.add(1);
            }
            slots::release_slots(place);
            return None;
        }
        count_session(place, began_us / 1000);
        let began = self.reach(place, &session, datagram);
        let (chosen, socket) = match began {
            Ok(began) => began,
            Err(cause) => {
                end::log_unserved(place, &session, datagram.len() as u64, cause);
                slots::release_slots(place);
                return None;
            }
        };
        let ChosenServer { backend, server, tally } = chosen;
        let local = self.local(key.destination);
        let entry = sessions::register(&frontend.held, Some(key.source), Some(local), began_us / 1000);
        entry.activity.set(Activity::Tunnel);
        entry.requests.set(1);
        entry.set_backend(&backend.held);
        entry.set_server(&server.held);
        self.watch_kill(&entry);
        let flow = UdpFlow {
            socket,
            server,
            backend: Some(backend),
            tally,
            entry,
            began_us,
            began_wall_us: session.accepted_wall_us,
            kept: is_changed(&session).then_some(session),
            is_joined: false,
        };
        let mut table = self.table.borrow_mut();
        let id = table.insert(key, flow, now_ms(), &place.limits);
        let watched = table.get(id).map(|own| self.watch(&own.data, id));
        drop(table);
        if !matches!(watched, Some(Ok(()))) {
            self.end(id, Cause::Resource, sample::Phase::Connect);
            return None;
        }
        Some(id)
    }

    /// Watches the socket of a session for the server's datagrams.
    pub(super) fn watch(&self, flow: &UdpFlow, id: SessionId) -> std::io::Result<()> {
        use std::os::fd::AsFd;
        flow.entry.server_fd.set(std::os::fd::AsRawFd::as_raw_fd(&flow.socket));
        self.servers.add(flow.socket.as_fd(), id.to_bits())
    }

    /// Chooses a server and opens a socket for it.
    ///
    /// # Errors
    /// The cause to log: the servers, or a limit of this machine, which is not held against the server.
    fn reach(
        &self,
        place: &ShardPlace,
        session: &Session,
        datagram: &[u8],
    ) -> Result<(ChosenServer, OwnedFd), Cause> {
        let backend = &place.backend;
        let of_backend = backend.state.backend.mine();
        let now_us = session.accepted_us;
        of_backend.traffic.sessions.up();
        of_backend.traffic.sessions_total.add(1);
        of_backend.traffic.session_rate.tick(now_us / 1000);
        backend.state.last_session.begin(now_us);
        let chosen = choose(place, session, datagram);
        let Some(chosen) = chosen else {
            of_backend.connection_errors.add(1);
            of_backend.traffic.sessions.down();
            return Err(Cause::Server);
        };
        let server = &chosen.server;
        let of_server = server.state.counters.mine();
        of_server.traffic.sessions_total.add(1);
        of_server.traffic.session_rate.tick(now_us / 1000);
        server.state.last_session.begin(now_us);
        match open(place, server, session) {
            Some(Ok(socket)) => {
                of_backend.connects.add(1);
                of_server.connects.add(1);
                Ok((chosen, socket))
            }
            failed => {
                let fault = failed.and_then(Result::err).map(|error| connect_error::by_kernel(&error));
                let cause = match fault {
                    Some(Fault::Resource(_)) => Cause::Resource,
                    _ => Cause::Server,
                };
                of_backend.connection_errors.add(1);
                of_server.connection_errors.add(1);
                if fault.is_some() && cause == Cause::Server && server.observe == Observe::Layer4 {
                    attempt::observe(server, Err(Trouble::Connection));
                }
                slots::leave(&chosen.backend, server, chosen.tally);
                Err(cause)
            }
        }
    }
}

/// Whether rules have changed the session, so that its end needs it.
fn is_changed(session: &Session) -> bool {
    session.trackers().is_some() || session.vars.get().is_some() || session.log_level.get().is_some()
}

fn count_connection(place: &ShardPlace, now_ms: u64) {
    let counters = place.frontend.state.frontend.mine();
    counters.traffic.sessions.up();
    if let Some(of_listener) = place.bind().listener.mine() {
        of_listener.traffic.sessions.up();
    }
    counters.connections_total.add(1);
    counters.connection_rate.tick(now_ms);
    let of_process = place.worker.shared.process.counters.mine();
    of_process.connections.add(1);
    of_process.connection_rate.tick(now_ms);
}

fn count_session(place: &ShardPlace, now_ms: u64) {
    let traffic = &place.frontend.state.frontend.mine().traffic;
    let of_listener = place.bind().listener.mine().map(|own| &own.traffic);
    for traffic in [Some(traffic), of_listener].into_iter().flatten() {
        traffic.sessions_total.add(1);
        traffic.session_rate.tick(now_ms);
    }
    place.worker.shared.process.counters.mine().session_rate.tick(now_ms);
}

/// `udp-request`: whether the rules accept the first datagram of a session.
fn is_accepted(place: &ShardPlace, session: &Session, datagram: &[u8]) -> bool {
    let rules = &place.frontend.udp_request;
    if rules.is_empty() {
        return true;
    }
    let mut stage = Stage::of_session(&place.worker.shared.process, session, now_ms());
    stage.request_bytes = datagram;
    let mut start = 0;
    let accepted = loop {
        let (outcome, next) = rules.run(&mut stage, start);
        start = next;
        match outcome {
            // The datagram is complete.
            RuleOutcome::Done | RuleOutcome::Accept | RuleOutcome::Wait => break true,
            RuleOutcome::Hold(Hold::Log { origin, profile }) => {
                quic_initial::log(&place.worker, &place.frontend, session, origin, profile.as_deref());
            }
            // No other action of these rules waits.
            RuleOutcome::Hold(_) => {}
            RuleOutcome::Final(_) => break false,
        }
    };
    if accepted {
        let none = sample::track::Trackers::default();
        sample::track::note(session, &none, sample::track::CountedEvent::Session, now_ms());
    }
    accepted
}

/// Chooses a server: by `use-server`, otherwise by the algorithm.
fn choose(place: &ShardPlace, session: &Session, datagram: &[u8]) -> Option<ChosenServer> {
    let backend = &place.backend;
    let env = Env {
        session: Some(session),
        request_bytes: datagram,
        ..Env::new(&place.worker.shared.process, now_ms())
    };
    let chosen = by_rule(backend, &env).or_else(|| by_connection(place, datagram));
    if let Some(server) = chosen
        && let Some(limit) = assign::limit_without_queue(backend, &server.state)
        && let Some(tally) = slots::enter(backend, &server, limit, session.accepted_us)
    {
        return Some(ChosenServer { backend: backend.clone(), server, tally });
    }
    let hash = backend.balance.algorithm.hashes().then(|| backend.balance.key_hash(&env)).flatten();
    let wish = Wish { hash, avoid: None, now_us: session.accepted_us };
    let server = assign::pick(backend, wish)?;
    let limit = assign::limit_without_queue(backend, &server.state)?;
    let tally = slots::enter(backend, &server, limit, session.accepted_us)?;
    server.state.counters.mine().chosen.add(1);
    backend.state.backend.mine().chosen.add(1);
    Some(ChosenServer { backend: backend.clone(), server, tally })
}

/// `balance quic-cid`: the server of an existing QUIC connection, if that server is up.
fn by_connection(place: &ShardPlace, datagram: &[u8]) -> Option<Rc<LocalServer>> {
    let id = place.quic_id?.of_client(datagram)?;
    let known = routes::find(place.frontend.state.id, &id)?;
    let index = place.backend.servers.iter().find(|own| Arc::ptr_eq(&own.state, &known))?.index;
    place.backend.server(index).filter(|server| server.state.is_up())
}

/// `use-server`: the server of the first matching rule, if that is up.
fn by_rule(backend: &LocalProxy, env: &Env<'_>) -> Option<Rc<LocalServer>> {
    let usable = |server: &Rc<LocalServer>| server.state.is_up();
    for rule in backend.use_servers.iter().filter(|rule| holds(rule.condition.as_ref(), env)) {
        let index = match &rule.target {
            ServerTarget::Fixed(index) => *index,
            ServerTarget::Named(format) => {
                let mut name = Vec::new();
                format.render(env, &mut name);
                let mut all = backend.servers.iter();
                all.find(|server| {
                    server.state.name.as_bytes() == name && !server.state.removed.load(Relaxed)
                })?
                .index
            }
        };
        if let Some(server) = backend.server(index).filter(usable) {
            return Some(server);
        }
    }
    None
}

/// Opens a socket for a server; `None` if its address is not known.
fn open(place: &ShardPlace, server: &LocalServer, session: &Session) -> Option<std::io::Result<OwnedFd>> {
    let address = address(server, session)?;
    let target = Target::Ip(address);
    let tune = &place.worker.shared.plan.global.tune;
    let mut dial = dial::to_server(server, Buffers::of_datagrams(tune), &target);
    let transparent = server.source.as_ref().map(|source| &source.transparent);
    let client = session.source().address();
    match transparent {
        Some(UseSource::Client) => dial.source = client,
        Some(UseSource::ClientIp) => dial.source = client.map(|client| SocketAddr::new(client.ip(), 0)),
        _ => {}
    }
    dial.transparent |= transparent.is_some_and(|source| *source != UseSource::No);
    Some(dial.connect_datagrams(address))
}

/// The server's address, with the port that the client uses if it has none.
fn address(server: &LocalServer, session: &Session) -> Option<SocketAddr> {
    let ServerAddress::Ip(mut address) = **server.state.address.load() else { return None };
    let own = session.destination();
    if address.ip().is_unspecified() {
        address.set_ip(own.ip()?);
        if address.port() == 0 {
            address.set_port(own.port()?);
        }
    } else if let Some(offset) = server.state.port_offset() {
        address.set_port(u16::try_from(i32::from(own.port()?) + offset).ok()?);
    }
    Some(address)
}
