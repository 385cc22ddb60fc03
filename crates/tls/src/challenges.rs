//! Certificates for ACME challenges over TLS (RFC 8737). Every listener presents them to clients that offer only `acme-tls/1`,
//! regardless of the certificates in its configuration.
//!
//! Such a connection ends with its handshake. No later data from the client is read, so that the client cannot bypass the
//! listener's client verification. Filled by `acme`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};

use crate::engine::side::{RustlsServerSide, ServedCertificate};
use crate::engine::tickets::SharedResumption;
use crate::hello::{Hello, pieces};
use crate::settings::{ClientVerify, Parameters};
use crate::store::Certificate;
use crate::tickets::Resumption;

/// The protocol of these connections.
pub const PROTOCOL: &[u8] = b"acme-tls/1";

/// The certificates, by the client's SNI.
#[derive(Debug, Default)]
pub struct Challenges {
    /// Written when a challenge begins or ends; read for clients that offer the protocol.
    sides: RwLock<HashMap<Box<str>, RustlsServerSide>>,
}

/// Returns the server name for an address (RFC 8738, 6).
pub fn name_of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let bytes = address.octets();
            let digits = bytes.iter().rev().map(|byte| format!("{:x}.{:x}.", byte & 15, byte >> 4));
            format!("{}ip6.arpa", digits.collect::<String>())
        }
    }
}

impl Challenges {
    /// Presents `certificate` to clients that request `name`.
    ///
    /// # Errors
    /// The engine rejects the certificate.
    pub fn put(&self, name: &str, certificate: &Certificate) -> Result<(), String> {
        let served = ServedCertificate {
            chain: Cow::Borrowed(&certificate.chain),
            key: &certificate.key,
            ocsp: None,
            alpn: &[PROTOCOL.into()],
            verify: &ClientVerify::default(),
            early_data: 0,
        };
        // These sessions must never be resumed, especially not on another listener.
        let shared = SharedResumption::new(&Resumption::default());
        let side = RustlsServerSide::new(&Parameters::default(), &served, &shared)?;
        let mut sides = self.sides.write().unwrap_or_else(PoisonError::into_inner);
        sides.insert(name.to_ascii_lowercase().into(), side);
        Ok(())
    }

    /// Stops presenting the certificate for `name`.
    pub fn remove(&self, name: &str) {
        let mut sides = self.sides.write().unwrap_or_else(PoisonError::into_inner);
        sides.remove(&*name.to_ascii_lowercase());
    }

    /// Returns the configuration for this client, if the client validates a challenge.
    pub(crate) fn find(&self, hello: &Hello<'_>) -> Option<RustlsServerSide> {
        if !pieces(hello.alpn?).eq([PROTOCOL]) {
            return None;
        }
        let name = str::from_utf8(hello.server_name?).ok()?.to_ascii_lowercase();
        self.sides.read().unwrap_or_else(PoisonError::into_inner).get(&*name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_asked_for_by_their_reverse_names() {
        assert_eq!(name_of("192.0.2.1".parse().unwrap()), "1.2.0.192.in-addr.arpa");
        let name = name_of("2001:db8::1".parse().unwrap());
        assert!(name.starts_with("1.0.0.0.") && name.ends_with("8.b.d.0.1.0.0.2.ip6.arpa"), "{name}");
    }
}
