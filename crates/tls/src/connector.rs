//! The TLS settings of a `server` line.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::capture::Keep;
use crate::engine::side::{RustlsClientSide, ServerLineOptions, takes_name};
use crate::legacy;
use crate::settings::{AlternativeName, Limits, Parameters, Trust};
use crate::store::Certificate;

/// The longest server name that OpenSSL sends (`TLSEXT_MAXLEN_host_name`).
const NAME_MAX: usize = 255;

/// The TLS settings of a `server` line.
#[derive(Clone, Debug, Default)]
pub struct Connecting {
    /// Versions, suites, groups.
    pub parameters: Parameters,
    /// Protocols, preferred first (`alpn`).
    pub alpn: Vec<Box<[u8]>>,
    /// The trust anchors (`ca-file`); `None` with `verify none`.
    pub trust: Option<Arc<Trust>>,
    /// The name that the certificate must match if no name is sent (`verifyhost`).
    pub verify_host: Option<Box<str>>,
    /// The alternative names of which the certificate must have one, whatever name is sent (`verifysan`). Empty for no such check.
    pub alternative_names: Vec<AlternativeName>,
    /// The client certificate (`crt`).
    pub certificate: Option<Arc<Certificate>>,
    /// The number of server names to keep sessions for; 0 with `no-ssl-reuse`.
    pub sessions: usize,
    /// Whether tickets are disabled (`no-tls-tickets`) up to TLS 1.2. Later versions cannot resume without tickets.
    pub no_tickets: bool,
    /// Whether early data is offered (`allow-0rtt`).
    pub early_data: bool,
    /// The limits for each connection.
    pub limits: Limits,
    /// The handshake data to keep for fetches.
    pub keep: Keep,
}

/// A `server` line with TLS. All workers share its sessions. The trust anchors and the client certificate may change while the line
/// is in use.
#[derive(Debug)]
pub struct Connector {
    /// Written when one of the line's files is changed at run time; read once per handshake.
    current: RwLock<ConnectorState>,
    limits: Limits,
    keep: Keep,
}

/// The settings of a connector, and the engine configured with them.
#[derive(Debug)]
pub(crate) struct ConnectorState {
    connecting: Connecting,
    side: Arc<HandshakeEngine>,
    /// OpenSSL's configuration for server names that rustls does not send. Created on first use.
    for_odd_names: OnceLock<Option<Arc<HandshakeEngine>>>,
}

/// The engine that performs the line's handshakes.
#[derive(Debug)]
pub(crate) enum HandshakeEngine {
    Rustls(RustlsClientSide),
    OpenSsl(legacy::ClientSide),
}

impl Connecting {
    /// The settings for an engine, without the parameters.
    fn asked(&self) -> ServerLineOptions<'_> {
        ServerLineOptions {
            trust: self.trust.as_deref(),
            host: self.verify_host.as_deref(),
            alternatives: &self.alternative_names,
            alpn: &self.alpn,
            own: self.certificate.as_deref().map(|own| (&*own.chain, &own.key)),
            sessions: self.sessions,
            no_tickets: self.no_tickets,
            early_data: self.early_data,
        }
    }

    fn openssl(&self) -> Result<HandshakeEngine, String> {
        legacy::ClientSide::new(&self.parameters, &self.asked()).map(HandshakeEngine::OpenSsl)
    }
}

impl ConnectorState {
    fn new(connecting: Connecting) -> Result<Self, String> {
        let key_needs_openssl = connecting.certificate.as_ref().is_some_and(|own| own.key.needs_openssl());
        let side = if connecting.parameters.legacy.is_some() || key_needs_openssl {
            connecting.openssl()?
        } else {
            HandshakeEngine::Rustls(RustlsClientSide::new(&connecting.parameters, &connecting.asked())?)
        };
        Ok(Self { connecting, side: Arc::new(side), for_odd_names: OnceLock::new() })
    }

    /// Returns the engine that can send that name. If neither engine can send it, rustls is used and omits it.
    fn side(&self, name: Option<&str>) -> &Arc<HandshakeEngine> {
        let is_sent = |name: &str| !name.is_empty() && name.len() <= NAME_MAX && !name.contains('\0');
        let is_odd = self.connecting.parameters.takes_odd_names
            && matches!(*self.side, HandshakeEngine::Rustls(_))
            && name.is_some_and(|name| !takes_name(name.as_bytes()) && is_sent(name));
        if !is_odd {
            return &self.side;
        }
        let other = self.for_odd_names.get_or_init(|| self.connecting.openssl().ok().map(Arc::new));
        other.as_ref().unwrap_or(&self.side)
    }
}

impl Connector {
    /// Creates the settings of a server line.
    ///
    /// # Errors
    /// The engine's reason for rejecting the line's options.
    pub fn new(connecting: &Connecting) -> Result<Self, String> {
        let current = ConnectorState::new(connecting.clone())?;
        let Connecting { limits, keep, .. } = *connecting;
        Ok(Self { current: RwLock::new(current), limits, keep })
    }

    /// Returns the current settings.
    pub(crate) fn connecting(&self) -> Connecting {
        self.current.read().unwrap_or_else(PoisonError::into_inner).connecting.clone()
    }

    /// Creates an engine with new settings, for [`put`](Self::put). The new engine does not resume earlier sessions.
    pub(crate) fn prepare(&self, connecting: Connecting) -> Result<ConnectorState, String> {
        ConnectorState::new(connecting)
    }

    /// Uses prepared settings for new connections.
    pub(crate) fn put(&self, current: ConnectorState) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
    }

    /// Returns the engine for a handshake with `name` as SNI.
    pub(crate) fn side(&self, name: Option<&str>) -> Arc<HandshakeEngine> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).side(name).clone()
    }

    /// Returns the engine for a handshake over QUIC, which OpenSSL does not perform, or `None` if the line needs OpenSSL.
    pub(crate) fn quic_side(&self) -> Option<RustlsClientSide> {
        match &*self.current.read().unwrap_or_else(PoisonError::into_inner).side {
            HandshakeEngine::Rustls(side) => Some(side.clone()),
            HandshakeEngine::OpenSsl(_) => None,
        }
    }

    pub(crate) fn keep(&self) -> Keep {
        self.keep
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }
}
