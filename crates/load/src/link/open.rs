//! Opens TCP connections: connects, sends a PROXY header, performs the TLS handshake.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use net::Stream;
use tls::Keep;

use crate::options::HttpVersion;
use crate::tally::Failure;
use crate::target::LoadTarget;

/// Why a connection could not be opened.
#[derive(Debug)]
pub(super) struct OpenError {
    pub(super) failure: Failure,
    pub(super) text: String,
}

/// A connection that is being opened.
pub(super) type Opening = Pin<Box<dyn Future<Output = Result<Stream, OpenError>>>>;

/// Opens a connection.
pub(super) fn open(target: Arc<LoadTarget>) -> Opening {
    Box::pin(async move {
        let connect =
            |error: std::io::Error| OpenError { failure: Failure::Connect, text: error.to_string() };
        let handshake = |text: String| OpenError { failure: Failure::Handshake, text };
        let dial = target.dial.dial(target.address);
        let mut stream = dial.connect(&net::Target::Ip(target.address)).await.map_err(connect)?;
        if let Some(version) = target.dial.proxy_header {
            introduce(&mut stream, version).await.map_err(connect)?;
        }
        let Some(tls) = &target.tls else { return Ok(stream) };
        stream
            .connect_tls(&tls.connector, tls.name.as_deref(), Keep::default())
            .map_err(|error| handshake(error.to_string()))?;
        poll_fn(|context| stream.poll_handshake(context))
            .await
            .map_err(|error| handshake(error.to_string()))?;
        let alpn = stream.tls().and_then(|tls| tls.details().alpn.clone());
        match (target.version, alpn.as_deref()) {
            (HttpVersion::H2, Some(b"h2")) | (HttpVersion::H3, Some(b"h3")) => Ok(stream),
            (HttpVersion::H2, _) => Err(handshake("the server did not choose HTTP/2 (ALPN h2)".into())),
            (HttpVersion::H3, _) => Err(handshake("the server did not choose HTTP/3 (ALPN h3)".into())),
            _ => Ok(stream),
        }
    })
}

/// Sends a PROXY header with the addresses of the connection.
async fn introduce(stream: &mut Stream, version: u8) -> std::io::Result<()> {
    let (ends, mut header) = (stream.local().zip(stream.peer()), Vec::new());
    match version {
        1 => net::proxy_protocol::write_v1(ends, &mut header),
        _ => net::proxy_protocol::write_v2(ends, std::iter::empty(), None, &mut header),
    }
    let mut rest = &header[..];
    while !rest.is_empty() {
        let sent = poll_fn(|context| stream.poll_write(context, rest)).await?;
        rest = &rest[sent..];
    }
    Ok(())
}
