//! A request and its attempts. Each attempt connects, sends the request, and receives the response.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use net::{Dial, Stream, Target};
use runtime::timer;
use tls::Keep;

use crate::error::{Error, ErrorKind};
use crate::message::{Request, Response};
use crate::read::ResponseReader;
use crate::settings::ClientSettings;
use crate::url::{Url, UrlHost};

/// The pause between a refused connection and the next attempt, as in a backend with `retries`. It is shorter if the connect
/// timeout is shorter.
const PAUSE: Duration = Duration::from_secs(1);

/// Sends `request` and waits for the complete response. Runs on a worker and uses CPU time only for its own bytes; dropping the
/// future closes the connection.
///
/// Failed connections are retried. Repeatable requests are also retried if the server closed without sending anything.
///
/// # Errors
/// The error of the last attempt. A response with any status is a success.
pub async fn send(settings: &ClientSettings, request: &Request) -> Result<Response, Error> {
    let overdue = Error::new(ErrorKind::Timeout, "the request timed out");
    timer::timeout(settings.total_timeout, tries(settings, request)).await.unwrap_or(Err(overdue))
}

async fn tries(settings: &ClientSettings, request: &Request) -> Result<Response, Error> {
    let proxy = settings.proxy.filter(|_| !request.url.is_tls);
    let bytes = request.write(proxy.is_some())?;
    let method = http::Method::from_bytes(request.method.as_bytes());
    let address = address(settings, &request.url, proxy).await?;
    let mut left = settings.retries;
    loop {
        let (error, goes_again) = match connect(settings, &request.url, &address).await {
            Ok(mut stream) => {
                let exchanged = exchange(settings, method, &bytes, &mut stream).await;
                stream.close();
                match exchanged {
                    Ok((response, _)) => return Ok(response),
                    Err((error, heard)) => {
                        let silent = !heard && matches!(error.kind, ErrorKind::Broken);
                        (error, silent && method.is_idempotent())
                    }
                }
            }
            Err(error) => {
                let goes_again = matches!(error.kind, ErrorKind::Connect | ErrorKind::Timeout);
                if goes_again && left > 0 {
                    timer::sleep(PAUSE.min(settings.connect_timeout)).await;
                }
                (error, goes_again)
            }
        };
        if !goes_again || left == 0 {
            return Err(error);
        }
        left -= 1;
    }
}

/// Returns the address to connect to.
async fn address(settings: &ClientSettings, url: &Url, proxy: Option<SocketAddr>) -> Result<Target, Error> {
    Ok(match (&settings.connect_to, proxy, &url.host) {
        (Some(target), ..) => target.clone(),
        (None, Some(address), _) => Target::Ip(address),
        (None, None, UrlHost::Ip(address)) => Target::Ip(SocketAddr::new(*address, url.port)),
        (None, None, UrlHost::Name(name)) => {
            Target::Ip(SocketAddr::new(settings.names.address(name).await?, url.port))
        }
    })
}

/// Opens a connection to the server of a URL, without a proxy.
pub(crate) async fn open(settings: &ClientSettings, url: &Url) -> Result<Stream, Error> {
    let target = address(settings, url, None).await?;
    connect(settings, url, &target).await
}

async fn connect(settings: &ClientSettings, url: &Url, target: &Target) -> Result<Stream, Error> {
    let shown = || match target {
        Target::Ip(address) => address.to_string(),
        other => format!("{other:?}"),
    };
    let connected = timer::timeout(settings.connect_timeout, async {
        let made = Dial::default().connect(target).await;
        let mut stream =
            made.map_err(|error| Error::new(ErrorKind::Connect, format!("{}: {error}", shown())))?;
        if url.is_tls {
            handshake(settings, url, &mut stream).await?;
        }
        Ok(stream)
    });
    let overdue = || Error::new(ErrorKind::Timeout, format!("connection to {} timed out", shown()));
    connected.await.unwrap_or_else(|_| Err(overdue()))
}

async fn handshake(settings: &ClientSettings, url: &Url, stream: &mut Stream) -> Result<(), Error> {
    let failed = |cause: &dyn std::fmt::Display| Error::new(ErrorKind::Tls, cause);
    let Some(secure) = &settings.secure else {
        return Err(failed(&"no CA is trusted, so https cannot be used"));
    };
    let name = match &url.host {
        UrlHost::Name(name) => Some(&**name),
        UrlHost::Ip(_) => None,
    };
    stream.connect_tls(&secure.connector, name, Keep::default()).map_err(|error| failed(&error))?;
    poll_fn(|context| stream.poll_handshake(context)).await.map_err(|error| failed(&error))?;
    // The chain has been verified, but the name only if one was sent.
    if let (true, UrlHost::Ip(address)) = (secure.verifies, &url.host) {
        let own = stream.tls().and_then(|tls| tls.details().peer.first().cloned());
        let facts = own.as_deref().and_then(|own| tls::x509::CertificateFields::parse(own).ok());
        if !facts.is_some_and(|facts| facts.has_address(*address)) {
            return Err(failed(&format!("the server's certificate is not for {address}")));
        }
    }
    Ok(())
}

/// Sends the request and receives the response on a connection. Also returns whether the connection can be used again; with an error,
/// whether the server had sent anything.
pub(crate) async fn exchange(
    settings: &ClientSettings,
    method: http::Method,
    bytes: &[u8],
    stream: &mut Stream,
) -> Result<(Response, bool), (Error, bool)> {
    let is_sent = begin(settings, bytes, stream).await.map_err(|error| (error, false))?;
    let mut reader = ResponseReader::new(settings, stream);
    let read = reader.response(method).await;
    let (heard, keeps) = (reader.heard(), reader.keeps() && is_sent);
    read.map(|response| (response, keeps)).map_err(|error| (error, heard))
}

/// Sends the request. Returns whether all of it was sent; otherwise, the server may have sent an error response before it closed.
pub(crate) async fn begin(
    settings: &ClientSettings,
    bytes: &[u8],
    stream: &mut Stream,
) -> Result<bool, Error> {
    match timer::timeout(settings.idle_timeout, write(stream, bytes)).await {
        Ok(Ok(())) => Ok(true),
        Ok(Err(error)) if is_closed(&error) => Ok(false),
        Ok(Err(error)) => Err(Error::new(ErrorKind::Broken, error)),
        Err(_) => Err(Error::new(ErrorKind::Timeout, "the server does not accept the request")),
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

async fn write(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        at += poll_fn(|context| stream.poll_write(context, &bytes[at..])).await?;
    }
    poll_fn(|context| stream.poll_flush(context)).await?;
    stream.push();
    Ok(())
}
