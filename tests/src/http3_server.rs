//! An HTTP/3 server over another implementation than the program's, quinn and hyperium's h3, with faults on request.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{ConnectionId, Endpoint, EndpointConfig};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// An HTTP/3 server. It returns the body of each request, with the path in `x-path`. These paths have another effect:
///
/// - `/reset` resets the request's stream.
/// - `/close` closes the connection with an application error.
/// - `/silent` neither reads the body nor answers.
///
/// All servers have the same key for stateless resets, so that each resets the connections of another one if it gets their datagrams.
pub struct Http3Server {
    /// The port of 127.0.0.1.
    pub port: u16,
    endpoint: Endpoint,
}

impl Http3Server {
    /// Starts a server with the certificate and key in a PEM file.
    pub fn start(certificate: &Path) -> Self {
        let pem = std::fs::read(certificate).expect("a file");
        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_slice(&pem).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3 is built in")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a key of the certificate");
        config.alpn_protocols = vec![b"h3".to_vec()];
        let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(config).expect("TLS 1.3 suites");
        let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let entered = runtime.enter();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = socket.local_addr().expect("a bound socket").port();
        let mut transport = EndpointConfig::new(Arc::new(CommonResetKey));
        transport.cid_generator(|| Box::new(AnyId));
        let executor = Arc::new(quinn::TokioRuntime);
        let endpoint = Endpoint::new(transport, Some(config), socket, executor).expect("a usable socket");
        drop(entered);
        let server = Self { port, endpoint: endpoint.clone() };
        std::thread::spawn(move || runtime.block_on(accept(endpoint)));
        server
    }
}

impl Drop for Http3Server {
    fn drop(&mut self) {
        self.endpoint.close(0x100_u32.into(), b"");
    }
}

async fn accept(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let Ok(quic) = incoming.await else { return };
            let connection = h3_quinn::Connection::new(quic.clone());
            let Ok(mut connection) = h3_client::server::Connection::<_, Bytes>::new(connection).await else {
                return;
            };
            while let Ok(Some(request)) = connection.accept().await {
                tokio::spawn(answer(request, quic.clone()));
            }
        });
    }
}

async fn answer(
    request: h3_client::server::RequestResolver<h3_quinn::Connection, Bytes>,
    quic: quinn::Connection,
) {
    let Ok((request, mut stream)) = request.resolve_request().await else { return };
    match request.uri().path() {
        "/reset" => return stream.stop_stream(h3_client::error::Code::H3_INTERNAL_ERROR),
        "/close" => return quic.close(INTERNAL_ERROR.into(), b"on request"),
        "/silent" => return std::future::pending().await,
        _ => {}
    }
    let mut body = Vec::new();
    while let Ok(Some(mut piece)) = stream.recv_data().await {
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    let response = http_types::Response::builder().header("x-path", request.uri().path());
    let response = response.header("content-length", body.len());
    let Ok(response) = response.body(()) else { return };
    if stream.send_response(response).await.is_ok() {
        let _ = stream.send_data(body.into()).await;
        let _ = stream.finish().await;
    }
}

/// H3_INTERNAL_ERROR (RFC 9114, 8.1).
const INTERNAL_ERROR: u32 = 0x102;

/// Derives stateless reset tokens from connection IDs without a secret.
struct CommonResetKey;

impl HmacKey for CommonResetKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        for (byte, id) in signature.iter_mut().zip(data.iter().cycle()) {
            *byte = id ^ 0x5a;
        }
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, _: &[u8], _: &[u8]) -> Result<(), CryptoError> {
        Ok(())
    }
}

/// Makes connection IDs that each server regards as its own.
struct AnyId;

impl quinn::ConnectionIdGenerator for AnyId {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&fastrand::u64(..).to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}
