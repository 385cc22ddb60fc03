//! Queries the kernel about the connections of a stream, for expressions. Created for each view of a stream; creating it queries
//! nothing.

use std::os::fd::RawFd;
use std::rc::Rc;

use sample::TcpFacts;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::server::Upstream;
use crate::server::agents::Question;
use crate::stream::h3::H3Connection;

/// The stream's connection to the server.
#[derive(Default)]
pub(crate) enum ServerSocket {
    /// No socket yet.
    #[default]
    None,
    /// The connection has this descriptor, which belongs to the stream until it is released.
    Open(RawFd),
    /// The connection uses QUIC, which has its own statistics.
    Quic(Rc<H3Connection>),
    /// The connection was released or closed. Contains the facts that were queried before that, if anything needs them.
    Gone(Option<TcpFacts>),
}

impl ServerSocket {
    fn facts(&self) -> Option<TcpFacts> {
        match self {
            Self::None => None,
            Self::Open(number) => facts(*number),
            Self::Quic(connection) => Some(of_quic(&connection.engine.borrow().transport.connection.stats())),
            Self::Gone(facts) => *facts,
        }
    }
}

/// The sockets of a stream.
pub(crate) struct StreamSockets<'a> {
    client: &'a Client,
    server: &'a ServerSocket,
}

impl<'a> StreamSockets<'a> {
    /// Creates the sockets of a connection without a request.
    pub(crate) fn of_client(client: &'a Client) -> Self {
        Self { client, server: &ServerSocket::None }
    }

    /// Creates the sockets of a request.
    pub(crate) fn of(client: &'a Client, server: &'a ServerSocket) -> Self {
        Self { client, server }
    }

    /// Returns the client's descriptor. Streams opened on behalf of a client have none.
    fn client(&self) -> Option<RawFd> {
        self.client.session.is_connected().then(|| self.client.side.descriptor())
    }
}

/// Records the stream's new connection to the server.
pub(crate) fn take(client: &Client, x: &mut Exchange, upstream: &Upstream) {
    x.txn.server_uses = upstream.uses();
    x.txn.server_glitches = upstream.glitches();
    x.txn.server_ends = upstream.ends();
    x.txn.server_target = None;
    x.txn.server_tls = upstream.tls().cloned();
    x.txn.server_stream = upstream.stream_facts();
    x.txn.server_error = Default::default();
    let number = upstream.descriptor();
    client.entry.server_fd.set(number);
    client.entry.server_stream.set(x.txn.server_stream.map_or(0, |stream| stream.id));
    x.server_socket = upstream.quic().map_or(ServerSocket::Open(number), ServerSocket::Quic);
}

/// Records the connection of a query to an agent. Other queries share the connection and any of them may close it, so its facts
/// are queried now.
pub(crate) fn share(client: &Client, own: &mut Exchange, question: &Question) {
    own.txn.server_uses = question.uses();
    own.txn.server_ends = question.ends();
    own.txn.server_target = None;
    own.server_socket = ServerSocket::Gone(None);
    if client.worker.shared.plan.variables.wants_server_tcp() {
        own.server_socket = ServerSocket::Gone(facts(question.descriptor()));
    }
}

/// Records that the server's connection is about to be released, after querying the facts that logs need.
pub(crate) fn leave(client: &Client, x: &mut Exchange) {
    client.entry.server_fd.set(-1);
    if matches!(x.server_socket, ServerSocket::Open(_) | ServerSocket::Quic(_)) {
        let asked = client.worker.shared.plan.variables.wants_server_tcp();
        x.server_socket = ServerSocket::Gone(if asked { x.server_socket.facts() } else { None });
    }
}

/// Records the unexpected end of the server's connection.
pub(crate) fn forget(client: &Client, x: &mut Exchange) {
    client.entry.server_fd.set(-1);
    if matches!(x.server_socket, ServerSocket::Open(_) | ServerSocket::Quic(_)) {
        x.server_socket = ServerSocket::Gone(None);
    }
}

fn facts(number: RawFd) -> Option<TcpFacts> {
    let info = net::sys::tcp_info(number).ok()?;
    Some(TcpFacts {
        rtt_us: info.tcpi_rtt,
        rttvar_us: info.tcpi_rttvar,
        unacked: Some(info.tcpi_unacked),
        sacked: Some(info.tcpi_sacked),
        lost: info.tcpi_lost,
        retrans: Some(info.tcpi_retrans),
        fackets: Some(info.tcpi_fackets),
        reordering: info.tcpi_reordering,
    })
}

/// Returns the facts of a QUIC connection. Packets that reach the client out of order are not counted.
fn of_quic(stats: &quic::Stats) -> TcpFacts {
    let us = |time: std::time::Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    TcpFacts {
        rtt_us: us(stats.rtt),
        rttvar_us: us(stats.rtt_variation),
        lost: u32::try_from(stats.packets_lost).unwrap_or(u32::MAX),
        ..TcpFacts::default()
    }
}

impl sample::Sockets for StreamSockets<'_> {
    fn unique_id_format(&self) -> Option<&dyn sample::env::FormatText> {
        self.client.frontend.unique_id_format.as_ref().map(|format| format as _)
    }

    fn client_tcp(&self) -> Option<TcpFacts> {
        let number = self.client()?;
        self.client.side.quic_stats().map_or_else(|| facts(number), |stats| Some(of_quic(&stats)))
    }

    fn server_tcp(&self) -> Option<TcpFacts> {
        self.server.facts()
    }

    fn saved_syn(&self) -> Option<Vec<u8>> {
        net::sys::saved_syn(self.client()?).ok().filter(|packet| !packet.is_empty())
    }

    fn descriptors(&self) -> [Option<i32>; 2] {
        let server = match self.server {
            ServerSocket::Open(number) => Some(*number),
            ServerSocket::Quic(connection) => Some(connection.descriptor),
            ServerSocket::None | ServerSocket::Gone(_) => None,
        };
        [self.client(), server]
    }
}
