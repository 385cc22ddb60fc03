//! What is known of a TLS connection: the source of `ssl_fc_*`, `ssl_bc_*`, `ssl_c_*`, `%sslv` and
//! `%sslc`.

use crate::capture::CapturedHandshake;
use crate::error::Error;
use crate::names;
use crate::store::Certificate;
use crate::verify_policy::VerifyOutcome;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// What was negotiated, and with whom.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// The version, by its number in TLS; 0 before it is known.
    pub version: u16,
    /// The cipher suite, by its number in TLS.
    pub suite: u16,
    /// The group of the key exchange, by its number in TLS; 0 where no key was exchanged.
    pub group: u16,
    /// Whether an earlier session was resumed (`ssl_fc_is_resumed`).
    pub is_resumed: bool,
    /// Whether it answers a challenge of ACME and ends with its handshake.
    pub is_challenge: bool,
    /// The protocol that was agreed on.
    pub alpn: Option<Box<[u8]>>,
    /// The name of the server that the client sent.
    pub sni: Option<Box<str>>,
    /// The peer's certificates as DER, its own first.
    pub peer: Arc<[Box<[u8]>]>,
    /// The certificate that the chain ends with that was verified in this handshake (`ssl_c_r_dn`).
    pub root: Option<Arc<[u8]>>,
    /// What verifying them found, and was forgiven.
    pub verify: VerifyOutcome,
    /// Our own certificate, on a listener's side.
    pub own: Option<Arc<Certificate>>,
    /// What a client has that rustls has not, where it has nothing else.
    pub lacks: Option<Lacks>,
    /// Why the handshake failed, where it did (`ssl_fc_err`).
    pub failure: Option<Error>,
    /// What broke the connection after its handshake. Written once, by the worker that it is on.
    pub broken: OnceLock<Error>,
    /// What was said in the handshake, where that is kept.
    pub captured: Option<Box<CapturedHandshake>>,
    /// What came before the handshake was over.
    pub early: Early,
}

/// Whether a client sent early data (RFC 8446, 2.3), and whether its handshake is still under way:
/// until then somebody else may have sent them once more.
#[derive(Clone, Debug, Default)]
pub struct Early(Option<Arc<AtomicBool>>);

impl Early {
    /// Notes that there are some, and whether they are `pending`: taken before the end of the
    /// handshake.
    pub(crate) fn note(&mut self, pending: bool) {
        self.0.get_or_insert_with(|| Arc::new(AtomicBool::new(pending)));
    }

    /// The handshake is over, for whoever knows of the connection.
    pub(crate) fn settle(&self) {
        if let Some(pending) = &self.0 {
            pending.store(false, Relaxed);
        }
    }

    /// Whether there were some (`ssl_fc_early_rcvd`).
    pub fn came(&self) -> bool {
        self.0.is_some()
    }

    /// Whether there were some and the handshake is not over (`ssl_fc_has_early`).
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.0.as_ref().is_some_and(|pending| pending.load(Relaxed))
    }
}

/// What would have to be allowed for a client to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// The newest version that it speaks, by its number in TLS.
    Version(u16),
    /// The cipher suite that it prefers, of those that OpenSSL has.
    Suite(u16),
}

impl std::fmt::Display for Lacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Version(version) => {
                let name = if version == crate::TLS10 { "TLSv1.0" } else { names::version_name(version) };
                write!(f, "`ssl-min-ver {name}` on the bind line would admit it")
            }
            Self::Suite(suite) => {
                let name = names::suite_name(suite).unwrap_or("its suite");
                write!(f, "`no-tlsv13` with {name} among the `ciphers` of the bind line would admit it")
            }
        }
    }
}

impl Details {
    /// Why the handshake failed, or what broke the connection later (`ssl_fc_err`).
    pub fn error(&self) -> Option<Error> {
        self.failure.or_else(|| self.broken.get().copied())
    }

    /// The version as HAProxy shows it (`%sslv`): `TLSv1.3`.
    pub fn version_name(&self) -> &'static str {
        names::version_name(self.version)
    }

    /// The cipher suite as HAProxy shows it (`%sslc`): OpenSSL's name, or `(NONE)` before one was
    /// agreed on.
    pub fn cipher_name(&self) -> Option<&'static str> {
        if self.suite == 0 { Some("(NONE)") } else { names::suite_name(self.suite) }
    }

    /// The group as OpenSSL calls it (`ssl_fc_curve`).
    pub fn group_name(&self) -> Option<&'static str> {
        names::group_name(self.group)
    }

    /// Bits of the symmetric key (`ssl_fc_alg_keysize`, `ssl_fc_use_keysize`).
    pub fn key_bits(&self) -> Option<u16> {
        names::suite_bits(self.suite)
    }
}
