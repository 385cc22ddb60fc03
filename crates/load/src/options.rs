//! The settings of a run.

use std::time::Duration;

use crate::line_words::LineWords;
use crate::url::Url;

/// The settings of a command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// `-d`: no request begins after this time.
    pub(crate) duration: Option<Duration>,
    /// `-e`: stop upon the first connection error.
    pub(crate) stops_on_error: bool,
    /// `-m`: concurrent requests of a user.
    pub(crate) streams: u32,
    /// `-n`: the number of requests.
    pub(crate) requests: Option<u64>,
    /// `-r`: the number of requests of a connection.
    pub(crate) per_connection: Option<u64>,
    /// `-s`: the time until all users are active and the rate is reached.
    pub(crate) soft_start: Duration,
    /// `-t`.
    pub(crate) threads: usize,
    /// `-u`.
    pub(crate) users: usize,
    /// `-w`: how long a request may be without progress.
    pub(crate) io_timeout: Duration,
    /// `--hold`: how long a connection stays open after its last request.
    pub(crate) hold: Duration,
    /// `-R`: requests per second.
    pub(crate) rate: Option<f64>,
    /// `-A`: the first request of each connection is not measured.
    pub(crate) skips_first: bool,
    /// `-F`: the acknowledgement of a TCP handshake waits for the request.
    pub(crate) late_ack: bool,
    /// `-l`, `-ll`.
    pub(crate) layout: Layout,
    /// `-hs`, `-hsv`.
    pub(crate) statuses: Statuses,
    /// `--json`: print only a summary, as JSON.
    pub(crate) json: bool,
    /// `--traces`: print connections and responses on standard error.
    pub(crate) traces: bool,
    /// `-I`, `--method`.
    pub(crate) method: Box<str>,
    /// `--body`: the size of request bodies.
    pub(crate) body: u64,
    /// `-H`: name and value.
    pub(crate) headers: Vec<(Box<str>, Box<str>)>,
    /// The words of `--server`, `--defaults` and `--global`.
    pub(crate) words: LineWords,
    /// The URLs, with their positional options.
    pub(crate) urls: Vec<UrlOptions>,
}

/// A URL, and the options that precede it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlOptions {
    pub(crate) url: Url,
    pub(crate) version: HttpVersion,
    pub(crate) tls: TlsLists,
}

/// `--tls-ciphers`, `--tls-ciphersuites` and `--tls-curves`, as TLS numbers; empty for the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct TlsLists {
    pub(crate) suites12: Vec<u16>,
    pub(crate) suites13: Vec<u16>,
    pub(crate) groups: Vec<u16>,
}

/// The protocol of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HttpVersion {
    /// HTTP/0.9 over QUIC (`hq-interop`).
    Hq,
    /// HTTP/1.1.
    H1,
    /// HTTP/2 over TLS, or over plain TCP with prior knowledge.
    H2,
    /// HTTP/3.
    H3,
}

impl HttpVersion {
    /// All of them, in the order of the report.
    pub(crate) const ALL: [Self; 4] = [Self::Hq, Self::H1, Self::H2, Self::H3];

    /// The label of `-hsv`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Hq => "h0",
            Self::H1 => "h1",
            Self::H2 => "h2",
            Self::H3 => "h3",
        }
    }
}

/// The format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Layout {
    #[default]
    Short,
    /// `-l`.
    Long,
    /// `-ll`: numbers without units.
    Raw,
}

/// Which statuses are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Statuses {
    #[default]
    None,
    /// `-hs`.
    All,
    /// `-hsv`: also for each version.
    PerVersion,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            duration: None,
            stops_on_error: false,
            streams: 1,
            requests: None,
            per_connection: None,
            soft_start: Duration::ZERO,
            threads: 1,
            users: 1,
            io_timeout: Duration::from_secs(10),
            hold: Duration::ZERO,
            rate: None,
            skips_first: false,
            late_ack: false,
            layout: Layout::Short,
            statuses: Statuses::None,
            json: false,
            traces: false,
            method: "GET".into(),
            body: 0,
            headers: Vec::new(),
            words: LineWords::default(),
            urls: Vec::new(),
        }
    }
}
