//! A client's socket, with or without TLS. Called by `client`; `Tls` is created by `command`.

use std::io::{self, Read, Write};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionMemoryCache, Resumption};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, Stream};

/// TLS settings of clients.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Returns settings for version `1.2` or `1.3`; with `resumes`, sessions are resumed. `None` for another version.
    pub(crate) fn new(version: &str, resumes: bool) -> Option<Self> {
        let versions = match version {
            "1.2" => &[&TLS12],
            "1.3" => &[&TLS13],
            _ => return None,
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).ok()?;
        let mut config =
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone)).with_no_client_auth();
        config.resumption = if resumes {
            Resumption::store(Arc::new(ClientSessionMemoryCache::new(256)))
        } else {
            Resumption::disabled()
        };
        Some(Self(Arc::new(config)))
    }
}

/// Accepts any server certificate, because the load does not depend on the proxy's identity.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A socket and its TLS session.
pub(crate) struct Wire {
    pub(crate) socket: TcpStream,
    session: Option<Box<ClientConnection>>,
}

impl Wire {
    pub(crate) fn new(socket: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        let name = ServerName::try_from("bench.test").expect("a name");
        let session = match tls {
            Some(tls) => Some(ClientConnection::new(tls.0.clone(), name).map_err(io::Error::other)?.into()),
            None => None,
        };
        Ok(Self { socket, session })
    }

    /// Returns whether a read that did not fill its buffer shows that no more data is available.
    pub(crate) fn tells_its_end(&self) -> bool {
        self.session.is_none()
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            Some(session) => Stream::new(&mut **session, &mut self.socket).read(buffer),
            None => self.socket.read(buffer),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.session {
            Some(session) => Stream::new(&mut **session, &mut self.socket).write(bytes),
            None => self.socket.write(bytes),
        }
    }
}
