//! rustls configurations, for a listener's certificate and for a server line.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use rustls::client::{ClientSessionMemoryCache, Resumption, Tls12Resumption, UnbufferedClientConnection};
use rustls::pki_types::{IpAddr, Ipv4Addr, ServerName};
use rustls::server::{ClientHello, NoClientAuth, ProducesTickets, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ServerConfig};

use super::key::PrivateKey;
use super::key_log::Keeping;
use super::tickets::{OfServer, SharedResumption};
use super::{compression, provider, verify};
use crate::error::Error;
use crate::settings::{AlternativeName, ClientVerify, Parameters, Trust, VerifyMode};

/// A listener's configuration for one certificate.
#[derive(Clone)]
pub(crate) struct RustlsServerSide(pub(super) Arc<ServerConfig>);

impl fmt::Debug for RustlsServerSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSide")
    }
}

/// The settings for one certificate, except the parameters of its line.
pub(crate) struct ServedCertificate<'a> {
    pub(crate) chain: Cow<'a, [Arc<[u8]>]>,
    pub(crate) key: &'a PrivateKey,
    pub(crate) ocsp: Option<&'a [u8]>,
    pub(crate) alpn: &'a [Box<[u8]>],
    pub(crate) verify: &'a ClientVerify,
    /// The maximum number of early data bytes that are accepted (`allow-0rtt`).
    pub(crate) early_data: u32,
}

/// Why rustls does not serve a certificate.
const NOT_HERE: &str = "private key that requires OpenSSL";

#[derive(Debug)]
struct One(Arc<CertifiedKey>);

impl ResolvesServerCert for One {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }
    fn lifetime(&self) -> u32 {
        0
    }
    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

impl RustlsServerSide {
    /// # Errors
    /// The reason rustls rejects it.
    pub(crate) fn new(
        parameters: &Parameters,
        served: &ServedCertificate<'_>,
        shared: &SharedResumption,
    ) -> Result<Self, String> {
        let verifier = match served.verify.mode {
            VerifyMode::None => Arc::new(NoClientAuth),
            _ => verify::of_clients(served.verify, &parameters.peer_sigalgs, &parameters.groups),
        };
        let certified = served.key.certified(&served.chain, served.ocsp, &parameters.sigalgs);
        let newer = served.verify.trust.generation.map(|generation| shared.within(generation));
        let shared = newer.as_ref().unwrap_or(shared);
        let certified = certified.ok_or(NOT_HERE)?;
        let mut config = ServerConfig::builder_with_provider(provider::provider(parameters))
            .with_protocol_versions(&provider::versions(parameters))
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(One(certified)));
        config.cert_compressors = compression::compressors(parameters.compresses);
        config.cert_decompressors = compression::decompressors(parameters.compresses);
        config.alpn_protocols = served.alpn.iter().map(|name| name.to_vec()).collect();
        config.ignore_client_order = !parameters.prefer_client;
        config.enable_secret_extraction = true;
        // Early data must be accepted only once. rustls ensures this for stored sessions, but not for tickets.
        config.max_early_data_size = served.early_data;
        config.send_half_rtt_data = served.early_data > 0;
        config.ticketer = match shared.tickets(served.verify) {
            Some(tickets) if served.early_data == 0 => tickets,
            _ => Arc::new(NoTickets),
        };
        config.session_storage = shared.sessions(served.verify);
        config.key_log = Arc::new(Keeping);
        Ok(Self(Arc::new(config)))
    }

    /// Returns the same configuration with another certificate.
    ///
    /// # Errors
    /// Only OpenSSL can use the key.
    pub(crate) fn with(&self, served: &ServedCertificate<'_>, sigalgs: &[u16]) -> Result<Self, String> {
        let certified = served.key.certified(&served.chain, None, sigalgs).ok_or(NOT_HERE)?;
        let mut config = ServerConfig::clone(&self.0);
        config.cert_resolver = Arc::new(One(certified));
        Ok(Self(Arc::new(config)))
    }
}

/// The configuration of a server line.
#[derive(Clone)]
pub(crate) struct RustlsClientSide {
    config: Arc<ClientConfig>,
    /// `config` with early data (`allow-0rtt`). Both share their sessions.
    early: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for RustlsClientSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSide")
    }
}

/// The settings of a server line, except its parameters.
pub(crate) struct ServerLineOptions<'a> {
    /// The trust anchors; `None` with `verify none`.
    pub(crate) trust: Option<&'a Trust>,
    /// The name that the certificate must match if no name is sent (`verifyhost`).
    pub(crate) host: Option<&'a str>,
    /// The alternative names of which the certificate must have one (`verifysan`).
    pub(crate) alternatives: &'a [AlternativeName],
    pub(crate) alpn: &'a [Box<[u8]>],
    /// The client certificate with its chain, and the key (`crt`).
    pub(crate) own: Option<(&'a [Arc<[u8]>], &'a PrivateKey)>,
    /// The number of server names to keep sessions for; 0 with `no-ssl-reuse`.
    pub(crate) sessions: usize,
    /// Whether tickets are disabled up to TLS 1.2.
    pub(crate) no_tickets: bool,
    pub(crate) early_data: bool,
}

/// Whether rustls supports this SNI. rustls neither sends nor accepts a name that is neither a host name nor an address.
pub(crate) fn takes_name(name: &[u8]) -> bool {
    ServerName::try_from(name).is_ok()
}

impl RustlsClientSide {
    /// # Errors
    /// The reason rustls rejects it.
    pub(crate) fn new(parameters: &Parameters, asked: &ServerLineOptions<'_>) -> Result<Self, String> {
        let verifier =
            verify::of_server(asked.trust, (asked.host, asked.alternatives), &parameters.peer_sigalgs);
        let builder = ClientConfig::builder_with_provider(provider::provider(parameters))
            .with_protocol_versions(&provider::versions(parameters))
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match asked.own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let certified = key.certified(chain, None, &parameters.sigalgs).ok_or(NOT_HERE)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
        };
        config.cert_compressors = compression::compressors(parameters.compresses);
        config.cert_decompressors = compression::decompressors(parameters.compresses);
        config.alpn_protocols = asked.alpn.iter().map(|name| name.to_vec()).collect();
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(Keeping);
        config.resumption = match asked.sessions {
            0 => Resumption::disabled(),
            most => Resumption::store(Arc::new(OfServer(ClientSessionMemoryCache::new(most))))
                .tls12_resumption(match asked.no_tickets {
                    true => Tls12Resumption::SessionIdOnly,
                    false => Tls12Resumption::SessionIdOrTickets,
                }),
        };
        let early = asked.early_data.then(|| {
            let mut early = config.clone();
            early.enable_early_data = true;
            Arc::new(early)
        });
        Ok(Self { config: Arc::new(config), early })
    }

    pub(super) fn connect(
        &self,
        name: Option<&str>,
        early: bool,
    ) -> Result<UnbufferedClientConnection, Error> {
        let (config, name) = self.parts(name, early);
        UnbufferedClientConnection::new(config, name).map_err(|error| super::error_of(&error))
    }

    /// Returns the arguments of a connection: the configuration, with `early` data or not, and the name.
    pub(super) fn parts(&self, name: Option<&str>, early: bool) -> (Arc<ClientConfig>, ServerName<'static>) {
        // An address is never sent as SNI. Sessions without a name are stored under this address.
        let nameless = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0; 4])));
        let name = name.and_then(|name| ServerName::try_from(name.to_owned()).ok()).unwrap_or(nameless);
        (self.early.as_ref().filter(|_| early).unwrap_or(&self.config).clone(), name)
    }
}
