//! What a `server` line says of TLS.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::capture::Keep;
use crate::engine::side::{RustlsClientSide, ServerLineOptions, takes_name};
use crate::legacy;
use crate::settings::{Limits, Parameters, Trust};
use crate::store::Certificate;

/// The longest name that OpenSSL sends (`TLSEXT_MAXLEN_host_name`).
const NAME_MAX: usize = 255;

/// What a `server` line is made of.
#[derive(Clone, Debug, Default)]
pub struct Connecting {
    /// Versions, suites, groups.
    pub parameters: Parameters,
    /// Protocols, preferred first (`alpn`).
    pub alpn: Vec<Box<[u8]>>,
    /// Whom to trust (`ca-file`); `None` with `verify none`.
    pub trust: Option<Arc<Trust>>,
    /// The name that the certificate must have if no name is sent (`verifyhost`).
    pub verify_host: Option<Box<str>>,
    /// Our own certificate (`crt`).
    pub certificate: Option<Arc<Certificate>>,
    /// For how many names sessions are kept; 0 with `no-ssl-reuse`.
    pub sessions: usize,
    /// Whether no tickets are asked for, up to TLS 1.2 (`no-tls-tickets`): later versions have
    /// nothing else to resume with.
    pub no_tickets: bool,
    /// Whether early data is offered (`allow-0rtt`).
    pub early_data: bool,
    /// What its connections keep within.
    pub limits: Limits,
    /// What is kept of handshakes for fetches.
    pub keep: Keep,
}

/// A `server` line with TLS. Its sessions are shared by all workers. Whom it trusts and what it
/// shows of itself may change while it is used.
#[derive(Debug)]
pub struct Connector {
    /// Written when a file that it uses is changed at run time, read once a handshake.
    current: RwLock<ConnectorState>,
    limits: Limits,
    keep: Keep,
}

/// What a connector is made of, and what the engine made of that.
#[derive(Debug)]
pub(crate) struct ConnectorState {
    connecting: Connecting,
    side: Arc<HandshakeEngine>,
    /// OpenSSL's, for names that rustls does not send. Made for the first of them.
    for_odd_names: OnceLock<Option<Arc<HandshakeEngine>>>,
}

/// The engine that makes a line's handshakes.
#[derive(Debug)]
pub(crate) enum HandshakeEngine {
    Rustls(RustlsClientSide),
    OpenSsl(legacy::ClientSide),
}

impl Connecting {
    /// The settings of an engine, without the parameters.
    fn asked(&self) -> ServerLineOptions<'_> {
        ServerLineOptions {
            trust: self.trust.as_deref(),
            host: self.verify_host.as_deref(),
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

    /// The engine that sends that name. One that neither can send is left out by rustls.
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
    /// Makes a server's side.
    ///
    /// # Errors
    /// What the engine says against the line's options.
    pub fn new(connecting: &Connecting) -> Result<Self, String> {
        let current = ConnectorState::new(connecting.clone())?;
        let Connecting { limits, keep, .. } = *connecting;
        Ok(Self { current: RwLock::new(current), limits, keep })
    }

    /// What it is made of now.
    pub(crate) fn connecting(&self) -> Connecting {
        self.current.read().unwrap_or_else(PoisonError::into_inner).connecting.clone()
    }

    /// Makes the engine's side of other contents, for [`put`](Self::put). No session of before is
    /// resumed under it.
    pub(crate) fn prepare(&self, connecting: Connecting) -> Result<ConnectorState, String> {
        ConnectorState::new(connecting)
    }

    /// Uses for new connections what was prepared.
    pub(crate) fn put(&self, current: ConnectorState) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
    }

    /// The engine that makes a handshake with `name` as SNI.
    pub(crate) fn side(&self, name: Option<&str>) -> Arc<HandshakeEngine> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).side(name).clone()
    }

    pub(crate) fn keep(&self) -> Keep {
        self.keep
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }
}
