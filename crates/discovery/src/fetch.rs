//! Requests to a source, and answers that arrive line by line.

use std::net::SocketAddr;
use std::time::Duration;

use httpclient::{ClientSettings, ErrorKind, Request, Response, ResponseStream, Secure, Url};
use net::Target;
use plan::discovery::{DiscoverySection, SourceKind, SourcePlace, SourceUrl};
use runtime::timer;

use crate::decode::LARGEST_DOCUMENT;

/// The limit for a connection with its TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest token, in bytes.
const LONGEST_TOKEN: usize = 16 << 10;

/// How long further lines are collected after the first one, so that a burst of changes is applied at once.
const BURST: Duration = Duration::from_millis(10);

/// The size of the lines that are applied at once, in bytes, unless the first read has more.
const LARGEST_BURST: usize = 1 << 20;

/// Returns the settings for requests to a source; `idle` is the longest time without a byte.
pub(crate) async fn settings(section: &DiscoverySection, idle: Duration) -> Result<ClientSettings, String> {
    let secure = section.connector.as_ref();
    let target = match &section.place {
        SourcePlace::Url(url) => Target::Ip(address(url).await?),
        SourcePlace::Unix(path) | SourcePlace::File(path) => Target::Unix(path.clone()),
    };
    Ok(ClientSettings {
        connect_timeout: CONNECT,
        idle_timeout: idle,
        total_timeout: idle.saturating_add(CONNECT),
        // The engine decides about retries.
        retries: 0,
        secure: secure.map(|connector| Secure { connector: connector.clone(), verifies: section.verifies }),
        connect_to: Some(target),
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
        Ok(Err(error)) => Err(format!("cannot resolve `{}`: {}", url.host, plain(&error))),
        Err(_) => Err(format!("cannot resolve `{}`", url.host)),
    }
}

/// Creates a `GET` request to a source for this path (with its query), including the token.
pub(crate) fn get(section: &DiscoverySection, path: &str) -> Result<Request, String> {
    request(section, "GET", path)
}

/// Creates a request to a source for this path (with its query), including the token.
pub(crate) fn request(section: &DiscoverySection, method: &str, path: &str) -> Result<Request, String> {
    let url = match &section.place {
        SourcePlace::Url(url) => url.join(path),
        SourcePlace::Unix(_) | SourcePlace::File(_) => format!("http://localhost{path}"),
    };
    let url = Url::parse(&url).map_err(|error| error.to_string())?;
    let request = Request::new(method, url).header("Accept", "application/json");
    let Some(token) = token(section)? else { return Ok(request) };
    Ok(match section.kind {
        SourceKind::Consul => request.header("X-Consul-Token", token),
        SourceKind::Nomad => request.header("X-Nomad-Token", token),
        SourceKind::Etcd => request.header("Authorization", token),
        _ => request.header("Authorization", format!("Bearer {token}")),
    })
}

/// Reads the token, which its owner may replace at any time.
fn token(section: &DiscoverySection) -> Result<Option<String>, String> {
    let Some(path) = &section.token_file else { return Ok(None) };
    let shown = path.display();
    let token = base::file::read_to_string(path)
        .map_err(|error| format!("cannot read the token in {shown}: {}", plain(&error)))?;
    let token = token.trim();
    let is_token = token.len() <= LONGEST_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic());
    match is_token && !token.is_empty() {
        true => Ok(Some(token.to_owned())),
        false => Err(format!("{shown} does not contain a token")),
    }
}

/// Sends a request and returns the successful response. Other statuses than 200 are failures, because a list that is incomplete or
/// missing (206, 204) must not replace the last one.
pub(crate) async fn send(settings: &ClientSettings, request: &Request) -> Result<Response, String> {
    let response = httpclient::send(settings, request).await.map_err(|error| plain(&error))?;
    match response.status {
        200 => Ok(response),
        other => Err(status(other)),
    }
}

/// The text of an error without the number of the system's error.
pub(crate) fn plain(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn status(status: u16) -> String {
    let why = match status {
        401 => " (the token is missing or invalid)",
        403 => " (the token does not permit it)",
        _ => "",
    };
    format!("it answers with status {status}{why}")
}

/// The reason why a stream could not be opened.
#[derive(Debug)]
pub(crate) struct NoStream {
    /// The status of the response, if there was one.
    pub(crate) status: Option<u16>,
    /// Whether the server was silent.
    pub(crate) is_silent: bool,
    /// The reason.
    pub(crate) text: String,
}

/// Sends a request and reads its answer line by line.
pub(crate) async fn stream(settings: &ClientSettings, request: &Request) -> Result<LineStream, NoStream> {
    match httpclient::stream(settings, request).await {
        Ok(stream) if stream.head.is_success() => Ok(LineStream { stream, bytes: Vec::new(), searched: 0 }),
        Ok(stream) => {
            let number = stream.head.status;
            Err(NoStream { status: Some(number), is_silent: false, text: status(number) })
        }
        Err(error) => {
            let is_silent = error.kind == ErrorKind::Timeout;
            Err(NoStream { status: None, is_silent, text: plain(&error) })
        }
    }
}

/// A response that consists of lines.
pub(crate) struct LineStream {
    stream: ResponseStream,
    /// The bytes after the last complete line.
    bytes: Vec<u8>,
    /// The number of these that were searched for a line end.
    searched: usize,
}

/// Why a stream has no more lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The server ended it.
    Whole,
    /// Nothing arrived for a long time.
    Silent,
    /// The connection broke, or a line is too long.
    Broken(String),
}

impl LineStream {
    /// Waits for a line, and returns it with those that follow within a short time. Empty lines are skipped.
    pub(crate) async fn lines(&mut self) -> Result<Vec<Vec<u8>>, Ended> {
        let mut lines = Vec::new();
        let mut size = 0;
        while lines.is_empty() {
            self.more().await?;
            size = self.split(&mut lines);
        }
        let until = timer::now_ms() + BURST.as_millis() as u64;
        // If the stream ends within this time, the next call returns the reason.
        while size < LARGEST_BURST
            && let Ok(Ok(())) = timer::timeout_at(until, self.more()).await
        {
            size += self.split(&mut lines);
        }
        Ok(lines)
    }

    async fn more(&mut self) -> Result<(), Ended> {
        match self.stream.read(&mut self.bytes).await {
            Ok(true) if self.bytes.len() > LARGEST_DOCUMENT => {
                Err(Ended::Broken(format!("a line has more than {LARGEST_DOCUMENT} bytes")))
            }
            Ok(true) => Ok(()),
            Ok(false) if self.bytes.iter().all(u8::is_ascii_whitespace) => Err(Ended::Whole),
            // The last line need not end with a line break.
            Ok(false) => {
                self.bytes.push(b'\n');
                Ok(())
            }
            Err(error) if error.kind == ErrorKind::Timeout => Err(Ended::Silent),
            Err(error) => Err(Ended::Broken(plain(&error))),
        }
    }

    /// Moves the complete lines. Returns the number of bytes that they had.
    fn split(&mut self, lines: &mut Vec<Vec<u8>>) -> usize {
        let size = split(&self.bytes, self.searched, lines);
        self.bytes.drain(..size);
        self.searched = self.bytes.len();
        size
    }
}

/// Copies the complete lines of `bytes`, of which the first `searched` ones contain no line end. Each copy has only the memory of
/// its line. Returns the number of bytes before the last, incomplete line.
fn split(bytes: &[u8], searched: usize, lines: &mut Vec<Vec<u8>>) -> usize {
    let (mut begin, mut from) = (0, searched);
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == b'\n') {
        let line = &bytes[begin..from + at];
        if !line.iter().all(u8::is_ascii_whitespace) {
            lines.push(line.to_vec());
        }
        from += at + 1;
        begin = from;
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_across_reads_and_own_only_their_bytes() {
        let mut lines = Vec::new();
        assert_eq!(split(b"a\n\n \nb", 0, &mut lines), 5);
        assert_eq!(split(b"bc\r\nd", 1, &mut lines), 4);
        assert_eq!(lines, [&b"a"[..], b"bc\r"]);
        // A burst of short lines must not multiply the size of the buffer.
        lines.clear();
        assert_eq!(split(&b"x\n".repeat(8192), 0, &mut lines), 16384);
        assert!(lines.len() == 8192 && lines.iter().map(Vec::capacity).sum::<usize>() <= 16384);
    }
}
