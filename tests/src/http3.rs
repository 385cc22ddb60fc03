//! An HTTP/3 client over another implementation than the program's: quinn and hyperium's h3.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3_client::client::SendRequest;
use http_types::{HeaderMap, Method, Request};
use quinn::Endpoint;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::runtime::Runtime;

use crate::PATIENCE;

/// A response.
#[derive(Debug, Clone, Default)]
pub struct Http3Response {
    /// The status of each interim response.
    pub interim: Vec<u16>,
    /// The final status.
    pub status: u16,
    /// The fields of the final head.
    pub fields: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: Option<HeaderMap>,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Http3Request {
    /// The method.
    pub method: Method,
    /// The path.
    pub path: String,
    /// More fields.
    pub fields: Vec<(&'static str, String)>,
    /// The body, in pieces that are sent one by one.
    pub body: Vec<Bytes>,
    /// The trailers.
    pub trailers: Option<HeaderMap>,
}

impl Http3Request {
    /// A GET request.
    pub fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path: path.to_owned(),
            fields: Vec::new(),
            body: Vec::new(),
            trailers: None,
        }
    }

    /// A POST request with a body, sent in pieces of 64 KiB, without a declared length.
    pub fn post(path: &str, body: &[u8]) -> Self {
        let body = body.chunks(1 << 16).map(Bytes::copy_from_slice).collect();
        Self { method: Method::POST, body, ..Self::get(path) }
    }

    /// The same with another field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.fields.push((name, value.to_owned()));
        self
    }
}

/// A client connection. Its methods block.
pub struct Http3Client {
    runtime: Runtime,
    endpoint: Endpoint,
    connection: quinn::Connection,
    sender: SendRequest<h3_quinn::OpenStreams, Bytes>,
}

/// Accepts every certificate: the tests of the certificate code are those over TCP.
#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the TLS settings of a client that offers `h3` and keeps its sessions.
pub(crate) fn tls_config() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3 is built in")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    config.enable_early_data = true;
    config
}

/// The sessions of a client, for resumption.
#[derive(Clone)]
pub struct Http3Sessions(Arc<quinn::crypto::rustls::QuicClientConfig>);

impl Http3Sessions {
    /// No sessions yet, of a client that offers `protocol`.
    pub fn new(protocol: &str) -> Self {
        let mut config = tls_config();
        config.alpn_protocols = vec![protocol.into()];
        Self(Arc::new(quinn::crypto::rustls::QuicClientConfig::try_from(config).expect("TLS 1.3 suites")))
    }

    /// Returns the settings of a connection.
    fn config(&self) -> quinn::ClientConfig {
        quinn::ClientConfig::new(self.0.clone())
    }
}

/// A QUIC connection without HTTP/3, and the runtime that drives it.
pub struct QuicClient {
    /// Drives the connection.
    pub runtime: Runtime,
    _endpoint: Endpoint,
    /// The connection.
    pub connection: quinn::Connection,
}

impl QuicClient {
    /// Connects to a port of 127.0.0.1.
    ///
    /// # Errors
    /// The reason why the connection failed.
    pub fn connect(port: u16, sessions: &Http3Sessions) -> Result<Self, String> {
        let (runtime, endpoint) = open(sessions)?;
        let connection = runtime.block_on(async { finished(connecting(&endpoint, port)?).await })?;
        Ok(Self { runtime, _endpoint: endpoint, connection })
    }

    /// Drives the connection for a while.
    pub fn idle(&self, ms: u64) {
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(ms)).await });
    }

    /// Sends `bytes` on a stream, ends it, and returns the bytes received on it.
    ///
    /// # Errors
    /// The stream was aborted, or nothing is received.
    pub fn converse(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let talk = async {
            let (mut send, mut receive) =
                self.connection.open_bi().await.map_err(|error| error.to_string())?;
            send.write_all(bytes).await.map_err(|error| error.to_string())?;
            let _ = send.finish();
            receive.read_to_end(1 << 24).await.map_err(|error| error.to_string())
        };
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, talk).await.map_err(|_| "no end")? })
    }
}

fn open(sessions: &Http3Sessions) -> Result<(Runtime, Endpoint), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let entered = runtime.enter();
    let mut endpoint =
        Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).map_err(|error| error.to_string())?;
    endpoint.set_default_client_config(sessions.config());
    drop(entered);
    Ok((runtime, endpoint))
}

fn connecting(endpoint: &Endpoint, port: u16) -> Result<quinn::Connecting, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    endpoint.connect(address, "localhost").map_err(|error| error.to_string())
}

async fn finished(connecting: quinn::Connecting) -> Result<quinn::Connection, String> {
    let connected = tokio::time::timeout(PATIENCE, connecting).await;
    connected.map_err(|_| "no answer")?.map_err(|error| error.to_string())
}

impl Http3Client {
    /// Connects to a port of 127.0.0.1, with `localhost` as the server name.
    pub fn connect(port: u16) -> Self {
        Self::try_connect(port).expect("an HTTP/3 connection")
    }

    /// The same.
    ///
    /// # Errors
    /// The reason why the connection failed.
    pub fn try_connect(port: u16) -> Result<Self, String> {
        Self::connect_with(port, &Http3Sessions::new("h3"))
    }

    /// The same, with sessions to resume.
    ///
    /// # Errors
    /// The reason why the connection failed.
    pub fn connect_with(port: u16, sessions: &Http3Sessions) -> Result<Self, String> {
        let (runtime, endpoint) = open(sessions)?;
        let connection = runtime.block_on(async { finished(connecting(&endpoint, port)?).await })?;
        Self::speak(runtime, endpoint, connection)
    }

    /// Resumes a session and sends requests before the handshake is complete. The result of the second value is whether the server
    /// accepted them.
    ///
    /// # Errors
    /// No session permits early data.
    pub fn connect_early(
        port: u16,
        sessions: &Http3Sessions,
    ) -> Result<(Self, quinn::ZeroRttAccepted), String> {
        let (runtime, endpoint) = open(sessions)?;
        let entered = runtime.enter();
        let early = connecting(&endpoint, port)?.into_0rtt();
        drop(entered);
        let (connection, accepted) = early.map_err(|_| "no session for early data")?;
        Ok((Self::speak(runtime, endpoint, connection)?, accepted))
    }

    fn speak(runtime: Runtime, endpoint: Endpoint, connection: quinn::Connection) -> Result<Self, String> {
        let sender = runtime.block_on(async {
            let (mut driver, sender) = h3_client::client::new(h3_quinn::Connection::new(connection.clone()))
                .await
                .map_err(|error| error.to_string())?;
            tokio::spawn(async move { std::future::poll_fn(|context| driver.poll_close(context)).await });
            Ok::<_, String>(sender)
        });
        Ok(Self { runtime, endpoint, connection, sender: sender? })
    }

    /// Waits for a future of the connection.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("an end") })
    }

    /// Sends a request and returns the response.
    pub fn exchange(&mut self, request: &Http3Request) -> Http3Response {
        self.try_exchange(request).expect("a response")
    }

    /// The same.
    ///
    /// # Errors
    /// The reason why the response is incomplete.
    pub fn try_exchange(&mut self, request: &Http3Request) -> Result<Http3Response, String> {
        let sender = self.sender.clone();
        self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, exchange(sender, request)).await.map_err(|_| "no response")?
        })
    }

    /// Whether a request failed because the server had announced the end of the connection before the request was sent.
    pub fn is_closing(&self, error: &str) -> bool {
        error.starts_with(CLOSING)
    }

    /// Sends all requests at once, and returns their responses in the same order.
    pub fn exchange_all(&mut self, requests: &[Http3Request]) -> Vec<Result<Http3Response, String>> {
        let sender = self.sender.clone();
        self.runtime.block_on(async {
            let tasks: Vec<_> = requests
                .iter()
                .cloned()
                .map(|request| {
                    let sender = sender.clone();
                    tokio::spawn(async move { exchange(sender, &request).await })
                })
                .collect();
            let mut all = Vec::new();
            for task in tasks {
                let outcome = tokio::time::timeout(PATIENCE, task).await;
                all.push(
                    outcome
                        .map_err(|_| "no response".to_owned())
                        .and_then(|joined| joined.expect("no panic")),
                );
            }
            all
        })
    }

    /// Continues from another port, as behind a NAT device that has forgotten its mapping.
    pub fn change_port(&mut self) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let _entered = self.runtime.enter();
        self.endpoint.rebind(socket).expect("the socket is usable");
    }

    /// The connection itself, and the runtime that drives it.
    pub fn quic(&self) -> (&quinn::Connection, &Runtime) {
        (&self.connection, &self.runtime)
    }

    /// Closes the connection, and waits until the close has reached the server.
    pub fn close(self) {
        self.connection.close(0x100_u32.into(), b"");
        self.runtime.block_on(async {
            let _ = tokio::time::timeout(PATIENCE, self.endpoint.wait_idle()).await;
        });
    }

    /// Waits until the server has closed the connection; returns the reason.
    pub fn await_close(&self) -> Option<quinn::ConnectionError> {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, self.connection.closed()).await.ok() })
    }

    /// Keeps the connection alive for a while, without requests.
    pub fn idle(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }
}

/// The beginning of errors that [`Http3Client::is_closing`] recognises.
const CLOSING: &str = "not sent";

async fn exchange(
    mut sender: SendRequest<h3_quinn::OpenStreams, Bytes>,
    request: &Http3Request,
) -> Result<Http3Response, String> {
    let text = |error: h3_client::error::StreamError| error.to_string();
    // The connection makes progress only during calls. GOAWAY and close may have arrived since the last one.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let mut head =
        Request::builder().method(request.method.clone()).uri(format!("https://localhost{}", request.path));
    for (name, value) in &request.fields {
        head = head.header(*name, value);
    }
    let head = head.body(()).map_err(|error| error.to_string())?;
    let mut stream = match sender.send_request(head).await {
        Err(error @ h3_client::error::StreamError::RemoteClosing { .. }) => {
            return Err(format!("{CLOSING}: {error}"));
        }
        Err(error) if error.is_h3_no_error() => return Err(format!("{CLOSING}: {error}")),
        stream => stream.map_err(text)?,
    };
    for piece in &request.body {
        stream.send_data(piece.clone()).await.map_err(text)?;
    }
    if let Some(trailers) = &request.trailers {
        stream.send_trailers(trailers.clone()).await.map_err(text)?;
    }
    stream.finish().await.map_err(text)?;
    let mut response = Http3Response::default();
    loop {
        let head = stream.recv_response().await.map_err(text)?;
        if head.status().is_informational() {
            response.interim.push(head.status().as_u16());
            continue;
        }
        response.status = head.status().as_u16();
        response.fields = head.headers().clone();
        break;
    }
    while let Some(mut piece) = stream.recv_data().await.map_err(text)? {
        while piece.has_remaining() {
            let length = piece.chunk().len();
            response.body.extend_from_slice(piece.chunk());
            piece.advance(length);
        }
    }
    response.trailers = stream.recv_trailers().await.map_err(text)?;
    Ok(response)
}
