//! What a `server` line says of TLS.

use std::sync::Arc;

use crate::engine::side::{Asked, ClientSide};
use crate::settings::{Parameters, Trust};
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
    /// The name that the certificate must have (`verifyhost`). Without it the one that is sent.
    pub verify_host: Option<Box<str>>,
    /// Our own certificate (`crt`).
    pub certificate: Option<Arc<Certificate>>,
    /// For how many names sessions are kept; 0 with `no-ssl-reuse`.
    pub sessions: usize,
    /// Whether early data is offered (`allow-0rtt`).
    pub early_data: bool,
    /// The longest plaintext of a record that is sent; 0 for 16 KiB (`tune.ssl.maxrecord`).
    pub max_record: u16,
    /// Whether what the handshake said is kept, with its secrets (`tune.ssl.keylog`).
    pub keeps_secrets: bool,
}

/// A `server` line with TLS. Its sessions are shared by all workers.
#[derive(Debug)]
pub struct Connector {
    side: ClientSide,
    max_record: u16,
    keeps_secrets: bool,
}

impl Connector {
    /// Makes a server's side.
    ///
    /// # Errors
    /// What the engine says against the line's options.
    pub fn new(connecting: &Connecting) -> Result<Self, String> {
        let own = connecting.certificate.as_deref();
        let asked = Asked {
            trust: connecting.trust.as_deref(),
            host: connecting.verify_host.as_deref(),
            alpn: &connecting.alpn,
            own: own.map(|own| (&*own.chain, &own.key)),
            sessions: connecting.sessions,
            early_data: connecting.early_data,
            keeps_secrets: connecting.keeps_secrets,
        };
        let side = ClientSide::new(&connecting.parameters, &asked)?;
        let Connecting { max_record, keeps_secrets, .. } = *connecting;
        Ok(Self { side, max_record, keeps_secrets })
    }

    pub(crate) fn side(&self) -> &ClientSide {
        &self.side
    }

    pub(crate) fn keeps_secrets(&self) -> bool {
        self.keeps_secrets
    }

    pub(crate) fn max_record(&self) -> u16 {
        self.max_record
    }
}
