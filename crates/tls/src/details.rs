//! The details of a TLS connection: the source of `ssl_fc_*`, `ssl_bc_*`, `ssl_c_*`, `%sslv` and `%sslc`.

use crate::capture::CapturedHandshake;
use crate::error::Error;
use crate::names;
use crate::store::Certificate;
use crate::verify_policy::VerifyOutcome;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The negotiated parameters, and the peer.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// The version, as its TLS number; 0 before it is known.
    pub version: u16,
    /// The cipher suite, as its TLS number.
    pub suite: u16,
    /// The key exchange group, as its TLS number; 0 without a key exchange.
    pub group: u16,
    /// Whether an earlier session was resumed (`ssl_fc_is_resumed`).
    pub is_resumed: bool,
    /// Whether the connection validates an ACME challenge and ends with its handshake.
    pub is_challenge: bool,
    /// The negotiated protocol.
    pub alpn: Option<Box<[u8]>>,
    /// The server name that the client sent.
    pub sni: Option<Box<str>>,
    /// The peer's certificates as DER, starting with the peer's own.
    pub peer: Arc<[Box<[u8]>]>,
    /// The root of the certificate chain that was verified in this handshake (`ssl_c_r_dn`).
    pub root: Option<Arc<[u8]>>,
    /// The verification errors that were ignored.
    pub verify: VerifyOutcome,
    /// The certificate that this side presented, if it is a listener.
    pub own: Option<Arc<Certificate>>,
    /// The setting that prevented the handshake with a client that only OpenSSL could serve.
    pub lacks: Option<Lacks>,
    /// Why the handshake failed, if it did (`ssl_fc_err`).
    pub failure: Option<Error>,
    /// The error that ended the connection after the handshake. Written once, by the connection's worker.
    pub broken: OnceLock<Error>,
    /// The handshake data, if kept.
    pub captured: Option<Box<CapturedHandshake>>,
    /// Early data before the end of the handshake.
    pub early: Early,
}

/// Whether a client sent early data (RFC 8446, 2.3), and whether the handshake is still in progress. Until it is complete, the data
/// may be a replay.
#[derive(Clone, Debug, Default)]
pub struct Early(Option<Arc<AtomicBool>>);

impl Early {
    /// Records that early data was received. `pending` means that it was accepted before the end of the handshake.
    pub(crate) fn note(&mut self, pending: bool) {
        self.0.get_or_insert_with(|| Arc::new(AtomicBool::new(pending)));
    }

    /// Marks the handshake as complete, for all holders of the connection's details.
    pub(crate) fn settle(&self) {
        if let Some(pending) = &self.0 {
            pending.store(false, Relaxed);
        }
    }

    /// Whether early data was received (`ssl_fc_early_rcvd`).
    pub fn came(&self) -> bool {
        self.0.is_some()
    }

    /// Whether early data was received and the handshake is not complete (`ssl_fc_has_early`).
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.0.as_ref().is_some_and(|pending| pending.load(Relaxed))
    }
}

/// The setting that would have to be relaxed to serve a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// The newest version that the client supports, as its TLS number.
    Version(u16),
    /// The cipher suite that the client prefers among those that OpenSSL supports, as its TLS number.
    Suite(u16),
}

impl std::fmt::Display for Lacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Version(version) => {
                let name = if version == crate::TLS10 { "TLSv1.0" } else { names::version_name(version) };
                write!(f, "`ssl-min-ver {name}` on the bind line would allow it")
            }
            Self::Suite(suite) => {
                let name = names::suite_name(suite).unwrap_or("its suite");
                write!(f, "`no-tlsv13` with {name} among the `ciphers` of the bind line would allow it")
            }
        }
    }
}

impl Details {
    /// Returns the reason why the handshake failed, or the error that ended the connection later (`ssl_fc_err`).
    pub fn error(&self) -> Option<Error> {
        self.failure.or_else(|| self.broken.get().copied())
    }

    /// Returns the version as shown by HAProxy (`%sslv`): `TLSv1.3`.
    pub fn version_name(&self) -> &'static str {
        names::version_name(self.version)
    }

    /// Returns the cipher suite as shown by HAProxy (`%sslc`): OpenSSL's name, or `(NONE)` before one was negotiated.
    pub fn cipher_name(&self) -> Option<&'static str> {
        if self.suite == 0 { Some("(NONE)") } else { names::suite_name(self.suite) }
    }

    /// Returns OpenSSL's name of the group (`ssl_fc_curve`).
    pub fn group_name(&self) -> Option<&'static str> {
        names::group_name(self.group)
    }

    /// Returns the symmetric key size in bits (`ssl_fc_alg_keysize`, `ssl_fc_use_keysize`).
    pub fn key_bits(&self) -> Option<u16> {
        names::suite_bits(self.suite)
    }
}
