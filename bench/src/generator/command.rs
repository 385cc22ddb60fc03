//! Parses the input lines of the load generator: words of the form `name=value`. Called by `main`.

use std::net::SocketAddr;
use std::time::Duration;

use crate::generator::wire::Tls;

/// A command.
pub(crate) enum Command {
    /// Make requests and report.
    Run(Load),
    /// Open connections, make one request on each, and keep them.
    Hold(Load),
    /// Close the connections that are kept.
    Release,
    /// Delay the origin's responses by this time.
    Slow(Duration),
}

/// Requests to make.
#[derive(Clone)]
pub(crate) struct Load {
    /// The proxy.
    pub(crate) target: SocketAddr,
    /// The request as sent, only a head.
    pub(crate) request: Vec<u8>,
    /// Number of concurrent connections.
    pub(crate) connections: usize,
    /// How long to run, unless `requests` is set.
    pub(crate) time: Duration,
    /// How many requests to make, if that ends the run.
    pub(crate) requests: Option<u64>,
    /// A new connection for each request.
    pub(crate) close: bool,
    /// Never sleep while the load runs, so that only the sleep of the proxy is measured.
    pub(crate) polls: bool,
    /// TLS on the connections.
    pub(crate) tls: Option<Tls>,
}

impl Command {
    /// Parses a line.
    ///
    /// # Errors
    /// Names the invalid word.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("run") => Load::parse(words).map(Self::Run),
            Some("hold") => Load::parse(words).map(Self::Hold),
            Some("release") => Ok(Self::Release),
            Some("slow") => {
                let word = words.next().unwrap_or("0");
                word.parse().map(|us| Self::Slow(Duration::from_micros(us))).map_err(|_| bad(word))
            }
            other => Err(bad(other.unwrap_or(""))),
        }
    }
}

impl Load {
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let (mut target, mut path, mut headers) = (None, "/", String::new());
        let mut load = Self {
            target: SocketAddr::from(([127, 0, 0, 1], 0)),
            request: Vec::new(),
            connections: 1,
            time: Duration::from_secs(1),
            requests: None,
            close: false,
            polls: false,
            tls: None,
        };
        let (mut version, mut resumes) = (None, false);
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "target" => target = Some(value.parse().map_err(|_| bad(word))?),
                "path" => path = value,
                "connections" => load.connections = value.parse().map_err(|_| bad(word))?,
                "seconds" => load.time = Duration::from_secs_f64(value.parse().map_err(|_| bad(word))?),
                "requests" => load.requests = Some(value.parse().map_err(|_| bad(word))?),
                "close" => load.close = true,
                "poll" => load.polls = true,
                "tls" => version = Some(value),
                "resume" => resumes = true,
                "header" => {
                    let (name, value) = value.split_once(':').ok_or_else(|| bad(word))?;
                    headers.push_str(&format!("{name}: {value}\r\n"));
                }
                _ => return Err(bad(word)),
            }
        }
        load.target = target.ok_or("`target=` is missing")?;
        if let Some(version) = version {
            load.tls = Some(Tls::new(version, resumes).ok_or_else(|| bad(version))?);
        }
        if load.close {
            headers.push_str("Connection: close\r\n");
        }
        load.request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", load.target).into_bytes();
        Ok(load)
    }
}

fn bad(word: &str) -> String {
    format!("`{word}` is not understood")
}
