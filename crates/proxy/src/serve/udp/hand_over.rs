//! Sessions that move to a process that replaces this one, together with the sockets to their servers.
//!
//! The successor has the listening sockets already, but does not read them until it has the sessions, so that no client gets a second
//! session. [`release`] stops the shards of a worker and returns their sessions; [`adopt`] continues them in the successor. A server is
//! identified by its name and that of its backend.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use base::clock::WallTime;
use runtime::timer::{now_ms, now_us};
use state::server::Tally;
use state::sessions::{self, Activity};
use udplb::quic::{IdBytes, LONGEST_ID};
use udplb::{SessionKey, UdpSession};

use super::SHARDS;
use super::end;
use super::flow::UdpFlow;
use super::place::ShardPlace;
use super::shard::Shard;
use super::slots;
use crate::server::per_worker::{LocalProxy, LocalServer};

/// A session on its way to another process. Times are relative to now, because each process has its own clock.
#[derive(Debug)]
pub struct PassedSession {
    /// The inode of the listening socket.
    pub inode: u64,
    /// The socket that is connected to the server.
    pub socket: OwnedFd,
    /// Everything else.
    pub facts: SessionFacts,
}

/// The description of a session on its way to another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// The client's address.
    pub source: SocketAddr,
    /// The address that the client sends to, if the kernel reports it.
    pub destination: Option<IpAddr>,
    /// The name of the server's backend.
    pub backend: String,
    /// The name of the server.
    pub server: String,
    /// The time since the session began.
    pub age_ms: u64,
    /// The time since its last datagram.
    pub idle_ms: u64,
    /// The number of datagrams from the client.
    pub requests: u64,
    /// The number of datagrams from the server.
    pub responses: u64,
    /// The bytes of the client's datagrams.
    pub bytes_in: u64,
    /// The bytes of the server's datagrams.
    pub bytes_out: u64,
    /// Whether the client's next datagram belongs to this session.
    pub is_listed: bool,
    /// Whether the last datagram was the client's.
    pub awaits_server: bool,
}

impl SessionFacts {
    /// Appends the description to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_text(&self.source.to_string(), out);
        write_text(&self.destination.map_or_else(String::new, |ip| ip.to_string()), out);
        write_text(&self.backend, out);
        write_text(&self.server, out);
        let numbers =
            [self.age_ms, self.idle_ms, self.requests, self.responses, self.bytes_in, self.bytes_out];
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        out.extend([u8::from(self.is_listed), u8::from(self.awaits_server)]);
    }

    /// Reads a description from the beginning of `bytes`, and removes it; `None` if it is malformed.
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        fn number(bytes: &mut &[u8]) -> Option<u64> {
            Some(u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?))
        }
        let source = read_text(bytes)?.parse().ok()?;
        let destination = read_text(bytes)?;
        let destination = if destination.is_empty() { None } else { Some(destination.parse().ok()?) };
        Some(Self {
            source,
            destination,
            backend: read_text(bytes)?,
            server: read_text(bytes)?,
            age_ms: number(bytes)?,
            idle_ms: number(bytes)?,
            requests: number(bytes)?,
            responses: number(bytes)?,
            bytes_in: number(bytes)?,
            bytes_out: number(bytes)?,
            is_listed: *bytes.split_off_first()? == 1,
            awaits_server: *bytes.split_off_first()? == 1,
        })
    }
}

/// The server that has chosen a connection ID, on its way to another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedRoute {
    /// The name of the section.
    pub section: String,
    /// The name of the server's backend.
    pub backend: String,
    /// The name of the server.
    pub server: String,
    /// The identifying bytes of the ID.
    pub id: IdBytes,
}

impl PassedRoute {
    /// Appends the description to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        [&self.section, &self.backend, &self.server].into_iter().for_each(|text| write_text(text, out));
        out.extend_from_slice(&self.id);
    }

    /// Reads a description from the beginning of `bytes`, and removes it; `None` if it is malformed.
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (section, backend, server) = (read_text(bytes)?, read_text(bytes)?, read_text(bytes)?);
        let id = *bytes.split_off(..LONGEST_ID)?.first_chunk()?;
        Some(Self { section, backend, server, id })
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    let text = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text);
}

fn read_text(bytes: &mut &[u8]) -> Option<String> {
    let length = u16::from_le_bytes(*bytes.split_off(..2)?.first_chunk()?);
    String::from_utf8(bytes.split_off(..length.into())?.to_vec()).ok()
}

/// Returns the known IDs of QUIC connections, with their servers, for the sections of a plan.
pub fn routes(plan: &plan::Plan) -> Vec<PassedRoute> {
    let name = |id: u32| plan.proxies.iter().find(|proxy| proxy.state.id == id).map(|own| &own.state.name);
    let known = super::routes::all().into_iter();
    let passed = known.filter_map(|(section, id, server)| {
        let (backend, server) = (server.proxy.to_string(), server.name.to_string());
        Some(PassedRoute { section: name(section)?.to_string(), backend, server, id })
    });
    passed.collect()
}

/// Remembers the server of a QUIC connection, if the plan has it.
pub fn learn(plan: &plan::Plan, route: &PassedRoute) {
    let server = plan.backend(&route.backend).and_then(|backend| backend.state.server(&route.server));
    if let (Some(section), Some(server)) = (plan.frontend(&route.section), server) {
        super::routes::learn(section.state.id, route.id, &server);
    }
}

/// Stops all shards of the calling worker, and returns their sessions.
pub fn release() -> Vec<PassedSession> {
    let shards = SHARDS.with_borrow(|shards| shards.clone());
    shards.iter().flat_map(|shard| shard.release()).collect()
}

/// Continues a session in the calling worker's shard of its socket. Without such a shard, or if the plan does not have its server, the
/// session ends; the shard logs that.
pub fn adopt(passed: PassedSession) {
    let shard = SHARDS.with_borrow(|shards| shards.iter().find(|own| own.inode == passed.inode).cloned());
    if let Some(shard) = shard {
        shard.adopt(passed);
    }
}

/// Lets the calling worker's shards read their sockets.
pub fn begin_reading() {
    SHARDS.with_borrow(|shards| shards.iter().for_each(|shard| shard.begin_reading()));
}

impl Shard {
    fn release(&self) -> Vec<PassedSession> {
        let ids = self.table.borrow().ids();
        let place = self.place();
        let mut all = Vec::with_capacity(ids.len());
        let now = now_ms();
        for id in ids {
            let removed = self.table.borrow_mut().remove_as_is(id);
            let Some(session) = removed else { continue };
            let flow = session.data;
            self.servers.remove(flow.socket.as_fd());
            if let Some(backend) = &flow.backend {
                let facts = SessionFacts {
                    source: session.key.source,
                    destination: session.key.destination,
                    backend: backend.state.name.to_string(),
                    server: flow.server.state.name.to_string(),
                    age_ms: now_us().saturating_sub(flow.began_us) / 1000,
                    idle_ms: now.saturating_sub(session.active_ms),
                    requests: session.requests,
                    responses: session.responses,
                    bytes_in: session.bytes_in,
                    bytes_out: session.bytes_out,
                    is_listed: session.is_listed,
                    awaits_server: session.awaits_server,
                };
                all.push(PassedSession { inode: self.inode, socket: flow.socket, facts });
            }
            end::give_back(&place, flow.backend.as_deref(), &flow.server, flow.tally);
        }
        self.stop();
        all
    }

    fn adopt(&self, passed: PassedSession) {
        let place = self.place();
        let facts = passed.facts;
        let key = SessionKey { source: facts.source, destination: facts.destination };
        let age_us = facts.age_ms.saturating_mul(1000);
        let Some((backend, server, tally)) = enter_again(&place, &facts) else {
            return self.log_discontinued(&place, &key, age_us, (facts.bytes_in, facts.bytes_out));
        };
        let frontend = &place.frontend;
        let local = self.local(key.destination);
        let since_ms = now_ms().saturating_sub(facts.age_ms);
        let entry = sessions::register(&frontend.held, Some(key.source), Some(local), since_ms);
        entry.activity.set(Activity::Tunnel);
        entry.requests.set(1);
        entry.bytes_in.set(facts.bytes_in);
        entry.bytes_out.set(facts.bytes_out);
        entry.set_backend(&backend.held);
        entry.set_server(&server.held);
        self.watch_kill(&entry);
        slots::count_adopted(&place, &backend);
        let flow = UdpFlow {
            socket: passed.socket,
            server,
            backend: Some(backend),
            tally,
            entry,
            kept: None,
            began_us: now_us().saturating_sub(age_us),
            began_wall_us: WallTime::now().since_1970_us().saturating_sub(age_us),
            is_joined: false,
        };
        let session = UdpSession {
            key,
            data: flow,
            since_ms,
            requests: facts.requests,
            responses: facts.responses,
            bytes_in: facts.bytes_in,
            bytes_out: facts.bytes_out,
            active_ms: now_ms().saturating_sub(facts.idle_ms),
            is_listed: facts.is_listed,
            awaits_server: facts.awaits_server,
        };
        let mut table = self.table.borrow_mut();
        let id = table.adopt(session, &place.limits);
        let is_watched = table.get(id).is_some_and(|own| self.watch(&own.data, id).is_ok());
        drop(table);
        if !is_watched {
            self.end(id, sample::Cause::Resource, sample::Phase::Data);
        }
    }
}

/// Returns the server of a session, with a slot there; `None` if the plan does not have it, or if it has no free slot.
fn enter_again(place: &ShardPlace, facts: &SessionFacts) -> Option<(Rc<LocalProxy>, Rc<LocalServer>, Tally)> {
    let worker = &place.worker;
    let backend = worker.local(worker.shared.plan.backend(&facts.backend)?.index);
    let index = backend.servers.iter().find(|own| *own.state.name == *facts.server)?.index;
    let server = backend.server(index)?;
    let tally = slots::enter_again(&backend, &server)?;
    Some((backend, server, tally))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let facts = SessionFacts {
            source: "[fe80::1%3]:53".parse().expect("an address"),
            destination: Some(IpAddr::from([127, 0, 0, 1])),
            backend: "b".into(),
            server: String::new(),
            age_ms: 1,
            idle_ms: 2,
            requests: 3,
            responses: u64::MAX,
            bytes_in: 5,
            bytes_out: 6,
            is_listed: true,
            awaits_server: false,
        };
        let other = SessionFacts { destination: None, is_listed: false, ..facts.clone() };
        let mut bytes = Vec::new();
        [&facts, &other].into_iter().for_each(|facts| facts.write(&mut bytes));
        let mut rest = &bytes[..];
        assert_eq!(SessionFacts::read(&mut rest), Some(facts));
        assert_eq!(SessionFacts::read(&mut rest), Some(other));
        assert_eq!(SessionFacts::read(&mut rest), None);
        let route =
            PassedRoute { section: "u".into(), backend: "b".into(), server: "s".into(), id: [7; LONGEST_ID] };
        let mut written = Vec::new();
        route.write(&mut written);
        assert_eq!(PassedRoute::read(&mut &written[..]), Some(route));
        assert_eq!(PassedRoute::read(&mut &written[1..]), None);
        for end in 0..bytes.len() / 2 - 1 {
            assert_eq!(SessionFacts::read(&mut &bytes[..end]), None);
        }
    }
}
