//! What a `server` line says of TLS.

use std::sync::{Arc, PoisonError, RwLock};

use crate::captured::Keep;
use crate::engine::side::{Asked, ClientSide};
use crate::legacy;
use crate::settings::{Limits, Parameters, Trust};
use crate::store::Certificate;

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
    current: RwLock<Current>,
    limits: Limits,
    keep: Keep,
}

/// What a connector is made of, and what the engine made of that.
#[derive(Debug)]
pub(crate) struct Current {
    connecting: Connecting,
    side: Arc<Side>,
}

/// The engine that makes a line's handshakes.
#[derive(Debug)]
pub(crate) enum Side {
    Rustls(ClientSide),
    OpenSsl(legacy::ClientSide),
}

impl Current {
    fn new(connecting: Connecting) -> Result<Self, String> {
        let own = connecting.certificate.as_deref();
        let asked = Asked {
            trust: connecting.trust.as_deref(),
            host: connecting.verify_host.as_deref(),
            alpn: &connecting.alpn,
            own: own.map(|own| (&*own.chain, &own.key)),
            sessions: connecting.sessions,
            no_tickets: connecting.no_tickets,
            early_data: connecting.early_data,
        };
        let parameters = &connecting.parameters;
        let side = if parameters.legacy.is_some() || own.is_some_and(|own| own.key.needs_openssl()) {
            Side::OpenSsl(legacy::ClientSide::new(parameters, &asked)?)
        } else {
            Side::Rustls(ClientSide::new(parameters, &asked)?)
        };
        let side = Arc::new(side);
        Ok(Self { connecting, side })
    }
}

impl Connector {
    /// Makes a server's side.
    ///
    /// # Errors
    /// What the engine says against the line's options.
    pub fn new(connecting: &Connecting) -> Result<Self, String> {
        let current = Current::new(connecting.clone())?;
        let Connecting { limits, keep, .. } = *connecting;
        Ok(Self { current: RwLock::new(current), limits, keep })
    }

    /// What it is made of now.
    pub(crate) fn connecting(&self) -> Connecting {
        self.current.read().unwrap_or_else(PoisonError::into_inner).connecting.clone()
    }

    /// Makes the engine's side of other contents, for [`put`](Self::put). No session of before is
    /// resumed under it.
    pub(crate) fn prepare(&self, connecting: Connecting) -> Result<Current, String> {
        Current::new(connecting)
    }

    /// Uses for new connections what was prepared.
    pub(crate) fn put(&self, current: Current) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
    }

    pub(crate) fn side(&self) -> Arc<Side> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).side.clone()
    }

    pub(crate) fn keep(&self) -> Keep {
        self.keep
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }
}
