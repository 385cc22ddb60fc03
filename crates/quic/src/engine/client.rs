//! Connections to servers, each with a separate socket.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, EndpointConfig, TokenMemoryCache, TransportConfig,
};

use super::config::SharedKeys;
use super::connection::QuicConnection;
use super::crypto::ClientCrypto;
pub use super::crypto::ServerHandshake;
use super::{ConnectionInput, Ecn, EndpointInput, config};
use crate::settings::Settings;

/// The maximum number of addresses and names of a server for which tokens are kept.
const TOKEN_NAMES: u32 = 64;

/// The number of tokens that are kept for each. A token is used once, and each connection brings new ones.
const TOKENS: usize = 4;

/// The transport settings of a server's connections, and the tokens with which the server recognizes our address (RFC 9000, 8.1.3).
pub struct ClientSettings {
    endpoint: Arc<EndpointConfig>,
    transport: Arc<TransportConfig>,
    tokens: Arc<TokenMemoryCache>,
    send_window: u64,
}

impl ClientSettings {
    /// Prepares the settings; [`Settings::max_streams`] is the number of streams that the server may open.
    pub fn new(settings: &Settings) -> Self {
        Self {
            endpoint: Arc::new(config::client_endpoint(&SharedKeys::random(), settings.mtu_max)),
            transport: config::transport(settings),
            tokens: Arc::new(TokenMemoryCache::new(TOKEN_NAMES, TOKENS)),
            send_window: settings.send_window,
        }
    }
}

impl std::fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSettings").finish_non_exhaustive()
    }
}

/// The endpoint of one connection to a server.
pub struct ClientEndpoint {
    inner: quinn_proto::Endpoint,
    handle: ConnectionHandle,
    /// Replies without a connection, which are not sent: an endpoint with one connection cannot confuse it with others.
    unsent: Vec<u8>,
}

/// Why no connection to a server could be started.
#[derive(Debug, Clone, Copy)]
pub enum ConnectFailure {
    /// The address has no port, or is unspecified.
    Address,
    /// TLS could not be started.
    Tls(tls::Error),
}

impl ClientEndpoint {
    /// Creates a connection to the server at `remote`. Its first datagrams are those of its handshake, and of early data if that is
    /// possible.
    ///
    /// # Errors
    /// The reasons are those of [`ConnectFailure`].
    pub fn connect(
        settings: &ClientSettings,
        now: Instant,
        remote: SocketAddr,
        handshake: ServerHandshake,
    ) -> Result<(Self, QuicConnection), ConnectFailure> {
        let mut inner = quinn_proto::Endpoint::new(settings.endpoint.clone(), None, true, None);
        // Tokens are valid for an address; sessions are kept by name.
        let place = format!("{} {remote}", handshake.name.as_deref().unwrap_or_default());
        let crypto = Arc::new(ClientCrypto { handshake, failure: Mutex::new(None) });
        let mut config = ClientConfig::new(crypto.clone());
        config.transport_config(settings.transport.clone()).token_store(settings.tokens.clone());
        match inner.connect(now, config, remote, &place) {
            Ok((handle, connection)) => {
                let connection = QuicConnection::new(connection, settings.send_window);
                Ok((Self { inner, handle, unsent: Vec::new() }, connection))
            }
            Err(_) => {
                let failure = crypto.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
                Err(failure.map_or(ConnectFailure::Address, ConnectFailure::Tls))
            }
        }
    }

    /// Processes a datagram; returns the input for the connection, unless the datagram is for none.
    pub fn receive(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<Ecn>,
        datagram: BytesMut,
    ) -> Option<ConnectionInput> {
        self.unsent.clear();
        let ecn = ecn.and_then(Ecn::to_engine);
        match self.inner.handle(now, remote, local_ip, ecn, datagram, &mut self.unsent)? {
            DatagramEvent::ConnectionEvent(_, event) => Some(ConnectionInput(event)),
            DatagramEvent::NewConnection(incoming) => {
                self.inner.ignore(incoming);
                None
            }
            DatagramEvent::Response(_) => None,
        }
    }

    /// Processes the input of the connection; returns the answer for it, if any.
    pub fn handle(&mut self, input: EndpointInput) -> Option<ConnectionInput> {
        self.inner.handle_event(self.handle, input.0).map(ConnectionInput)
    }
}
