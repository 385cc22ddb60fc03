//! What is known of a TLS connection: the source of `ssl_fc_*`, `ssl_bc_*`, `ssl_c_*`, `%sslv` and
//! `%sslc`.

use std::sync::Arc;

use crate::captured::Captured;
use crate::engine::verify::Outcome;
use crate::error::Error;
use crate::names;
use crate::store::Certificate;

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
    /// The protocol that was agreed on.
    pub alpn: Option<Box<[u8]>>,
    /// The name of the server that the client sent.
    pub sni: Option<Box<str>>,
    /// The peer's certificates as DER, its own first.
    pub peer: Arc<[Box<[u8]>]>,
    /// The certificate that the chain ends with that was verified in this handshake (`ssl_c_r_dn`).
    pub root: Option<Arc<[u8]>>,
    /// What verifying them found, and was forgiven.
    pub verify: Outcome,
    /// Our own certificate, on a listener's side.
    pub own: Option<Arc<Certificate>>,
    /// Why the handshake failed, where it did (`ssl_fc_err`).
    pub failure: Option<Error>,
    /// What was said in the handshake, where that is kept.
    pub captured: Option<Box<Captured>>,
}

impl Details {
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
