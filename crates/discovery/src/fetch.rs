//! Requests to a source.

use std::net::SocketAddr;
use std::time::Duration;

use httpclient::{ClientSettings, Request, Response, Secure, Url};
use net::Target;
use plan::discovery::{DiscoverySection, SourceUrl};

use crate::decode::LARGEST_DOCUMENT;

/// The limit for a connection with its TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest token, in bytes.
const LONGEST_TOKEN: usize = 16 << 10;

/// Returns the settings for requests to a source; `idle` is the longest time without a byte.
pub(crate) async fn settings(
    section: &DiscoverySection,
    url: &SourceUrl,
    idle: Duration,
) -> Result<ClientSettings, String> {
    let secure = section.connector.as_ref();
    Ok(ClientSettings {
        connect_timeout: CONNECT,
        idle_timeout: idle,
        total_timeout: idle.saturating_add(CONNECT),
        // The engine decides about retries.
        retries: 0,
        secure: secure.map(|connector| Secure { connector: connector.clone(), verifies: section.verifies }),
        connect_to: Some(Target::Ip(address(url).await?)),
        max_body: LARGEST_DOCUMENT,
        ..ClientSettings::default()
    })
}

/// Resolves the host of a URL, on a thread that may block. The name is looked up for each connection, so it may move.
async fn address(url: &SourceUrl) -> Result<SocketAddr, String> {
    if let Ok(ip) = url.host.parse() {
        return Ok(SocketAddr::new(ip, url.port));
    }
    let (host, port) = (url.host.clone(), url.port);
    let looked_up = tokio::task::spawn_blocking(move || {
        std::net::ToSocketAddrs::to_socket_addrs(&(&*host, port)).map(|mut found| found.next())
    });
    match looked_up.await {
        Ok(Ok(Some(address))) => Ok(address),
        Ok(Ok(None)) => Err(format!("the name `{}` has no address", url.host)),
        Ok(Err(error)) => Err(format!("cannot resolve `{}`: {error}", url.host)),
        Err(_) => Err(format!("cannot resolve `{}`", url.host)),
    }
}

/// Creates a request for a path of a source, with the token.
pub(crate) fn request(section: &DiscoverySection, method: &str, url: &str) -> Result<Request, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let request = Request::new(method, url).header("Accept", "application/json");
    match token(section)? {
        Some(token) => Ok(request.header("Authorization", format!("Bearer {token}"))),
        None => Ok(request),
    }
}

/// Reads the token, which its owner may replace at any time.
pub(crate) fn token(section: &DiscoverySection) -> Result<Option<String>, String> {
    let Some(path) = &section.token_file else { return Ok(None) };
    let shown = path.display();
    let token = base::file::read_to_string(path)
        .map_err(|error| format!("cannot read the token in {shown}: {error}"))?;
    let token = token.trim();
    if token.is_empty() || token.len() > LONGEST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("{shown} does not contain a token"));
    }
    Ok(Some(token.to_owned()))
}

/// Sends a request and returns the successful response.
pub(crate) async fn send(settings: &ClientSettings, request: &Request) -> Result<Response, String> {
    let response = httpclient::send(settings, request).await.map_err(|error| error.to_string())?;
    match response.is_success() {
        true => Ok(response),
        false => Err(format!("it answers with status {}", response.status)),
    }
}
