//! Forwards datagrams between clients and servers.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;

use net::connected;
use net::proxy_protocol;
use net::udp::{Batch, Received, Replies};
use plan::server::{Observe, SendProxy};
use runtime::timer::now_ms;
use rustix::io::Errno;
use sample::{Cause, Phase};
use state::process::ProcessCounters;
use state::server::Trouble;
use udplb::{Progress, SessionId, SessionKey, UdpSession};

use super::flow::UdpFlow;
use super::place::ShardPlace;
use super::routes;
use super::shard::Shard;
use crate::routing::attempt;

/// From this number of datagrams of a server on, the kernel joins them.
const MANY: u64 = 16;

impl Shard {
    /// Forwards received datagrams. Consecutive ones of a client that have the same size are joined in `room`, so that one call sends
    /// all of them to the server.
    pub(super) fn receive_from_clients(&self, batch: &mut Batch, room: &mut [u8]) {
        let mut all = batch.received().peekable();
        while let Some(mut first) = all.next() {
            let (source, destination, segment) = (first.source, first.destination, first.segment_size);
            let (mut length, most) = (first.bytes.len(), room.len());
            let joins = |next: &Received<'_>, length: usize| {
                next.source == source
                    && next.destination == destination
                    && !next.bytes.is_empty()
                    && length.is_multiple_of(segment)
                    && (next.segment_size == segment || next.bytes.len() < segment)
                    && length + next.bytes.len() <= most
            };
            if segment == 0 || !all.peek().is_some_and(|next| joins(next, length)) {
                self.receive_from_client(first);
                continue;
            }
            room[..length].copy_from_slice(first.bytes);
            while let Some(next) = all.next_if(|next| joins(next, length)) {
                room[length..length + next.bytes.len()].copy_from_slice(next.bytes);
                length += next.bytes.len();
            }
            first.bytes = &mut room[..length];
            self.receive_from_client(first);
        }
    }

    /// Forwards datagrams that a client has sent, or an empty one.
    pub(super) fn receive_from_client(&self, received: Received<'_>) {
        let place = self.place();
        let segment = received.segment_size.max(1);
        let key = SessionKey { source: received.source, destination: received.destination };
        let mut rest: &[u8] = received.bytes;
        // A session that ends because its server refuses datagrams is replaced once.
        let mut may_begin_again = true;
        loop {
            let first = &rest[..segment.min(rest.len())];
            let begin = || self.begin(&place, key, first);
            let taken = if first.len() > place.payload_size {
                place.frontend.state.frontend.mine().traffic.request_errors.add(1);
                first.len()
            } else if let Some(id) = { self.table.borrow().find(&key) }.or_else(begin) {
                match self.to_server(&place, id, rest, segment) {
                    Ok(length) => length,
                    Err(error) if is_passing(&error) => first.len(),
                    Err(_) => {
                        self.fail(id);
                        if std::mem::take(&mut may_begin_again) {
                            continue;
                        }
                        first.len()
                    }
                }
            } else {
                first.len()
            };
            rest = &rest[taken..];
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Sends as many of the client's datagrams as belong to the session; returns their length.
    fn to_server(
        &self,
        place: &Rc<ShardPlace>,
        id: SessionId,
        bytes: &[u8],
        segment: usize,
    ) -> io::Result<usize> {
        let mut table = self.table.borrow_mut();
        let Some(session) = table.get_mut(id) else { return Ok(segment.min(bytes.len())) };
        // A first datagram that could not be sent did not carry it.
        let header = if session.requests == 0 { self.header(session) } else { Vec::new() };
        let room = usize::try_from(session.room(&place.limits)).unwrap_or(usize::MAX).max(1);
        let part = if header.is_empty() {
            let most = room.saturating_mul(segment);
            &bytes[..most.min(bytes.len())]
        } else {
            &bytes[..segment.min(bytes.len())]
        };
        let socket = session.data.socket.as_fd();
        if header.is_empty() {
            connected::send(socket, part, segment)?;
        } else {
            let joined = [&header, part].concat();
            connected::send(socket, &joined, joined.len())?;
        }
        let datagrams = part.len().div_ceil(segment).max(1) as u64;
        count(place, session, part.len() as u64, 0);
        let progress = table.request(id, (datagrams, part.len() as u64), now_ms(), &place.limits);
        drop(table);
        if progress == Progress::Complete {
            self.end(id, Cause::None, Phase::None);
        }
        Ok(part.len())
    }

    /// The PROXY header that precedes the first datagram of a session; empty for none.
    fn header(&self, session: &UdpSession<UdpFlow>) -> Vec<u8> {
        let mut header = Vec::new();
        // Other versions and options are refused when the configuration is read.
        if session.data.server.send_proxy != SendProxy::None {
            let ends = (session.key.source, self.local(session.key.destination));
            proxy_protocol::write_v2_datagram(ends, [], &mut header);
        }
        header
    }

    /// Adds datagrams that a server has sent to the replies.
    pub(super) fn receive_from_server(&self, id: SessionId, replies: &mut Replies) {
        let place = self.place();
        let mut table = self.table.borrow_mut();
        let Some(session) = table.get_mut(id) else { return };
        let received = connected::receive(session.data.socket.as_fd(), replies.room());
        let (length, segment) = match received {
            Ok(received) => received,
            Err(error) if is_passing(&error) => return,
            Err(_) => {
                drop(table);
                return self.fail(id);
            }
        };
        let (datagrams_at, segment, dropped) = within(length, segment, place.payload_size);
        place.frontend.state.frontend.mine().traffic.denied_responses.add(dropped);
        let datagrams = datagrams_at.len().div_ceil(segment.max(1)).max(1) as u64;
        if dropped > 0 && datagrams_at.is_empty() {
            return;
        }
        // Before it is sent: the client may answer to another worker at once.
        if let Some(part) = place.quic_id
            && session.responses < routes::BEGINNING
            && let Some(id) = part.of_server(&replies.room()[datagrams_at.clone()])
        {
            routes::learn(place.frontend.state.id, id, session.data.server.held.shared());
        }
        let length = datagrams_at.len() as u64;
        replies.add(&self.socket, session.key.source, session.key.destination, datagrams_at, segment);
        if session.responses == 0 {
            attempt::observe(&session.data.server, Ok(()));
        }
        if session.responses >= MANY && !session.data.is_joined {
            session.data.is_joined = true;
            connected::join(session.data.socket.as_fd());
        }
        count(&place, session, 0, length);
        let progress = table.response(id, (datagrams, length), now_ms(), &place.limits);
        drop(table);
        if progress == Progress::Complete {
            self.end(id, Cause::None, Phase::None);
        }
    }

    /// Ends a session because its server refuses datagrams. The client's next one begins another session.
    fn fail(&self, id: SessionId) {
        let phase = {
            let table = self.table.borrow();
            let Some(session) = table.get(id) else { return };
            let server = &session.data.server;
            let is_unreached = session.responses == 0;
            let of_backend = session.data.backend.as_ref().map(|backend| backend.state.backend.mine());
            for counters in [Some(server.state.counters.mine()), of_backend].into_iter().flatten() {
                if is_unreached {
                    counters.connection_errors.add(1);
                } else {
                    counters.response_errors.add(1);
                }
            }
            if server.observe == Observe::Layer4 {
                attempt::observe(server, Err(Trouble::Connection));
            }
            if is_unreached { Phase::Connect } else { Phase::Data }
        };
        self.end(id, Cause::Server, phase);
    }
}

/// Returns the place of the datagrams that have at most `most` bytes among `length` bytes, with the size of each but the last, and the
/// number of others. The last datagram may be shorter than the others, which have `segment` bytes.
fn within(length: usize, segment: usize, most: usize) -> (Range<usize>, usize, u64) {
    if segment <= most {
        return (0..length, segment, 0);
    }
    let last = length % segment;
    let whole = (length / segment) as u64;
    match last {
        0 => (0..0, 0, whole),
        last if last > most => (0..0, 0, whole + 1),
        last => (length - last..length, last, whole),
    }
}

/// Whether an error affects only a single datagram, and not the server.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::InvalidInput
    ) || matches!(Errno::from_io_error(error), Some(Errno::MSGSIZE | Errno::NOBUFS | Errno::PERM))
}

/// Counts bytes that were forwarded.
fn count(place: &ShardPlace, session: &UdpSession<UdpFlow>, bytes_in: u64, bytes_out: u64) {
    let flow = &session.data;
    let of_backend = flow.backend.as_ref().map(|backend| &backend.state.backend.mine().traffic);
    let of_listener = place.bind().listener.mine().map(|own| &own.traffic);
    let of_frontend = Some(&place.frontend.state.frontend.mine().traffic);
    let of_server = Some(&flow.server.state.counters.mine().traffic);
    for traffic in [of_frontend, of_listener, of_backend, of_server].into_iter().flatten() {
        traffic.bytes_in.add(bytes_in);
        traffic.bytes_out.add(bytes_out);
    }
    let entry = &flow.entry;
    entry.bytes_in.set(entry.bytes_in.get() + bytes_in);
    entry.bytes_out.set(entry.bytes_out.get() + bytes_out);
    let now = now_ms();
    entry.active_ms.set(now);
    if bytes_out > 0 {
        let process = place.worker.shared.process.counters.mine();
        process.bytes_out.add(bytes_out);
        process.bytes_out_rate.tick_by(now, ProcessCounters::rate_units(bytes_out));
    }
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn the_short_end_of_a_batch_is_kept() {
        assert_eq!(within(25, 10, 10), (0..25, 10, 0));
        assert_eq!(within(25, 10, 9), (20..25, 5, 2));
        assert_eq!(within(25, 10, 4), (0..0, 0, 3));
        assert_eq!(within(20, 10, 9), (0..0, 0, 2));
        assert_eq!(within(0, 0, 9), (0..0, 0, 0));
    }
}
