//! The endpoint of one socket.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{DatagramEvent, Incoming, ServerConfig, TransportConfig};
use tls::Keep;

pub use super::config::SharedKeys;
use super::connection::QuicConnection;
use super::crypto::ServerCrypto;
use super::{ConnectionInput, Ecn, EndpointInput, Transmit, config};
use crate::connection_id::SocketIndex;
use crate::settings::Settings;
use crate::versions;

/// How long a Retry token is valid.
const RETRY_LIFETIME: Duration = Duration::from_secs(10);

/// Identifies a connection within its endpoint: small, dense, and reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionHandle(pub usize);

/// Demultiplexes the datagrams of a socket.
pub struct Endpoint {
    inner: quinn_proto::Endpoint,
    keys: SharedKeys,
    transport: Arc<TransportConfig>,
    migration: bool,
    send_window: u64,
}

/// What a datagram was.
pub enum Demultiplexed {
    /// Nothing of ours, or a duplicate: dropped.
    Nothing,
    /// A datagram for a connection.
    ForConnection(ConnectionHandle, ConnectionInput),
    /// The first datagram of a client. To be passed to [`accept`](Endpoint::accept), [`retry`](Endpoint::retry),
    /// [`refuse`](Endpoint::refuse) or [`ignore`](Endpoint::ignore).
    NewClient(NewClient),
    /// A datagram that is answered without a connection (Version Negotiation, stateless reset).
    Reply(Transmit),
}

/// A client with its first datagram.
pub struct NewClient(Incoming);

impl NewClient {
    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote_address()
    }

    /// The address that the datagram was sent to.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.0.local_ip()
    }

    /// Whether a token proves the client's address.
    pub fn is_validated(&self) -> bool {
        self.0.remote_address_validated()
    }

    /// Whether the client may be sent a Retry packet: once at most.
    pub fn may_retry(&self) -> bool {
        self.0.may_retry()
    }
}

/// A client that was not accepted.
#[derive(Debug)]
pub struct Refused {
    /// The reason.
    pub reason: String,
    /// The answer in the caller's buffer.
    pub reply: Option<Transmit>,
}

impl Endpoint {
    /// Creates the endpoint of the socket at `index` of its group.
    pub fn new(
        keys: &SharedKeys,
        index: SocketIndex,
        settings: &Settings,
        acceptor: &Arc<tls::Acceptor>,
    ) -> Self {
        let transport = config::transport(settings);
        let migration = settings.migration;
        let crypto = ServerCrypto::new(acceptor.clone(), Keep::default(), None);
        let server = server(keys, &transport, migration, crypto);
        let endpoint = Arc::new(config::endpoint(keys, index, settings.mtu_max));
        let inner = quinn_proto::Endpoint::new(endpoint, Some(server), true, None);
        let send_window = settings.send_window;
        Self { inner, keys: keys.clone(), transport, migration, send_window }
    }

    /// Processes a datagram. A reply is appended to `out`.
    pub fn receive(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<Ecn>,
        datagram: BytesMut,
        out: &mut Vec<u8>,
    ) -> Demultiplexed {
        // The engine drops datagrams whose connection IDs are longer than those of version 1.
        if let Some(length) = versions::negotiate(&datagram, out) {
            let (source, ecn) = (local_ip, None);
            return Demultiplexed::Reply(Transmit {
                destination: remote,
                source,
                ecn,
                length,
                segment: None,
            });
        }
        let ecn = ecn.and_then(Ecn::to_engine);
        match self.inner.handle(now, remote, local_ip, ecn, datagram, out) {
            None => Demultiplexed::Nothing,
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                Demultiplexed::ForConnection(ConnectionHandle(handle.0), ConnectionInput(event))
            }
            Some(DatagramEvent::NewConnection(incoming)) => Demultiplexed::NewClient(NewClient(incoming)),
            Some(DatagramEvent::Response(transmit)) => Demultiplexed::Reply(Transmit::of_engine(&transmit)),
        }
    }

    /// Creates the connection of a client. Its handshake runs with the certificates of `acceptor` and keeps the data in `keep`;
    /// `place` is the slot reserved for it.
    ///
    /// # Errors
    /// The first datagram is not valid, or there are no connection IDs left. A reply is appended to `out`.
    pub fn accept(
        &mut self,
        now: Instant,
        client: NewClient,
        acceptor: &Arc<tls::Acceptor>,
        keep: Keep,
        place: Option<tls::ConnectionPermit>,
        out: &mut Vec<u8>,
    ) -> Result<(ConnectionHandle, QuicConnection), Refused> {
        let crypto = ServerCrypto::new(acceptor.clone(), keep, place);
        let config = server(&self.keys, &self.transport, self.migration, crypto);
        match self.inner.accept(client.0, now, out, Some(config)) {
            Ok((handle, connection)) => {
                Ok((ConnectionHandle(handle.0), QuicConnection::new(connection, self.send_window)))
            }
            Err(error) => Err(Refused {
                reason: error.cause.to_string(),
                reply: error.response.map(|transmit| Transmit::of_engine(&transmit)),
            }),
        }
    }

    /// Appends a Retry packet to `out`: the client has to prove its address with the token in it.
    pub fn retry(&mut self, client: NewClient, out: &mut Vec<u8>) -> Option<Transmit> {
        match self.inner.retry(client.0, out) {
            Ok(transmit) => Some(Transmit::of_engine(&transmit)),
            Err(error) => {
                self.inner.ignore(error.into_incoming());
                None
            }
        }
    }

    /// Appends a CONNECTION_CLOSE packet with the error CONNECTION_REFUSED to `out`.
    pub fn refuse(&mut self, client: NewClient, out: &mut Vec<u8>) -> Transmit {
        Transmit::of_engine(&self.inner.refuse(client.0, out))
    }

    /// Drops the client without an answer.
    pub fn ignore(&mut self, client: NewClient) {
        self.inner.ignore(client.0);
    }

    /// Processes the input of a connection; returns the answer for it, if any.
    pub fn handle(&mut self, handle: ConnectionHandle, input: EndpointInput) -> Option<ConnectionInput> {
        self.inner.handle_event(quinn_proto::ConnectionHandle(handle.0), input.0).map(ConnectionInput)
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.inner.open_connections()
    }
}

fn server(
    keys: &SharedKeys,
    transport: &Arc<TransportConfig>,
    migration: bool,
    crypto: Arc<ServerCrypto>,
) -> Arc<ServerConfig> {
    let mut config = ServerConfig::new(crypto, keys.token.clone());
    config.transport_config(transport.clone()).retry_token_lifetime(RETRY_LIFETIME).migration(migration);
    Arc::new(config)
}
