//! The servers of a run, and the requests to them, prepared once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fields::Scheme;
use http::{Head, Method};
use net::Dial;
use quic::{ClientSettings, Congestion, Settings};
use tls::load;
use tls::{Connecting, Connector, Keep, Limits, Parameters, Trust};

use crate::options::{HttpVersion, Options, TlsLists, UrlOptions};
use crate::url::UrlScheme;

/// The number of names for which TLS sessions are kept.
const SESSIONS: usize = 64;

/// The receive windows of HTTP/2 and HTTP/3, in bytes: large, so that they do not limit a download.
const WINDOW: u32 = 1 << 20;

/// The idle timeout of QUIC and QMux, unless `-w` or `--hold` needs a longer one.
const IDLE: Duration = Duration::from_secs(30);

/// The maximum number of bytes of bodies that wait for the socket with QMux: the socket has its own buffers.
const QMUX_SEND_WINDOW: u64 = 128 * 1024;

/// The longest head that is accepted, in bytes.
pub(crate) const HEAD_MAX: usize = 60 * 1024;

/// A server and the protocol spoken to it. URLs with the same target share a user's connection.
#[derive(Debug)]
pub(crate) struct LoadTarget {
    pub(crate) address: SocketAddr,
    pub(crate) version: HttpVersion,
    /// How connections are opened.
    pub(crate) dial: DialOptions,
    pub(crate) tls: Option<TlsOptions>,
    /// The transport settings over QUIC.
    pub(crate) quic: Option<ClientSettings>,
    /// The transport settings of HTTP/3 over TCP or TLS.
    pub(crate) qmux: Option<Settings>,
    pub(crate) h2: Arc<h2::Config>,
    pub(crate) h3: Arc<h3::Config>,
    /// Concurrent requests on a connection.
    pub(crate) streams: usize,
    /// Requests of a connection; `u64::MAX` without a limit.
    pub(crate) per_connection: u64,
    pub(crate) connect_timeout: Duration,
}

/// The socket options of connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct DialOptions {
    source: Option<SocketAddr>,
    interface: Option<Box<str>>,
    namespace: Option<Box<str>>,
    user_timeout: Option<Duration>,
    fast_open: bool,
    late_ack: bool,
    /// The version of the PROXY header to send.
    pub(crate) proxy_header: Option<u8>,
}

impl DialOptions {
    /// The options in the form of `net`.
    pub(crate) fn dial(&self, address: SocketAddr) -> Dial<'_> {
        let source = self.interface.as_ref().map(|_| SocketAddr::new(net::dial::unspecified(address), 0));
        Dial {
            source: self.source.or(source),
            interface: self.interface.as_deref(),
            namespace: self.namespace.as_deref(),
            user_timeout: self.user_timeout,
            fast_open: self.fast_open,
            late_ack: self.late_ack,
            ..Dial::default()
        }
    }
}

/// The TLS settings of a target.
#[derive(Debug)]
pub(crate) struct TlsOptions {
    pub(crate) connector: Arc<Connector>,
    pub(crate) name: Option<Box<str>>,
}

/// A request, ready to be sent.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    /// The index of its target.
    pub(crate) target: usize,
    /// The head for HTTP/1.
    pub(crate) bytes: Vec<u8>,
    /// The head for HTTP/2 and HTTP/3.
    pub(crate) head: Head,
    pub(crate) scheme: Scheme,
    pub(crate) method: Method,
    /// The size of the body.
    pub(crate) body: u64,
    /// Host and target, for traces.
    pub(crate) shown: String,
}

/// All servers and requests.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) targets: Vec<Arc<LoadTarget>>,
    pub(crate) requests: Vec<PreparedRequest>,
}

impl Targets {
    /// Prepares the URLs of the command line: looks up names and loads TLS files.
    ///
    /// # Errors
    /// The URL, file or word that cannot be used, and why.
    pub(crate) fn prepare(options: &Options) -> Result<Self, String> {
        let mut all = Self { targets: Vec::new(), requests: Vec::new() };
        let mut known: Vec<(SocketAddr, &UrlOptions)> = Vec::new();
        for one in &options.urls {
            let address = one.url.resolve()?;
            let is_same = |(other, earlier): &(SocketAddr, &UrlOptions)| {
                *other == address
                    && earlier.version == one.version
                    && earlier.url.scheme == one.url.scheme
                    && (one.url.scheme == UrlScheme::Http
                        || (&earlier.tls, &earlier.url.host) == (&one.tls, &one.url.host))
            };
            let index = match known.iter().position(is_same) {
                Some(index) => index,
                None => {
                    known.push((address, one));
                    all.targets.push(Arc::new(target(options, one, address)?));
                    known.len() - 1
                }
            };
            all.requests.push(request(options, one, index)?);
        }
        Ok(all)
    }
}

fn target(options: &Options, one: &UrlOptions, address: SocketAddr) -> Result<LoadTarget, String> {
    let words = &options.words;
    let is_quic = one.url.scheme == UrlScheme::Quic;
    let streams = if one.version == HttpVersion::H1 { 1 } else { options.streams };
    let rules =
        fields::Rules { max_bytes: HEAD_MAX, max_fields: 200, relaxed: true, connect_protocol: false };
    let tls = match one.url.scheme {
        UrlScheme::Http => None,
        UrlScheme::Https | UrlScheme::Quic => Some(TlsOptions {
            connector: Arc::new(connector(options, one)?),
            name: words.server_name.clone().or_else(|| one.url.server_name().map(Box::from)),
        }),
    };
    Ok(LoadTarget {
        address,
        version: one.version,
        dial: DialOptions {
            source: words.source,
            interface: words.interface.clone(),
            namespace: words.namespace.clone(),
            user_timeout: words.user_timeout,
            fast_open: words.fast_open,
            late_ack: options.late_ack,
            proxy_header: words.proxy_header.filter(|_| !is_quic),
        },
        tls,
        quic: is_quic.then(|| ClientSettings::new(&transport(options))),
        qmux: (one.version == HttpVersion::H3 && !is_quic).then(|| qmux_transport(options)),
        h2: Arc::new(h2::Config {
            rules: rules.clone(),
            buffer: 16_384,
            initial_window: WINDOW,
            receive_buffer: WINDOW,
            max_concurrent_streams: streams,
            ..h2::Config::default()
        }),
        h3: Arc::new(h3::Config {
            rules,
            window: WINDOW as usize,
            max_concurrent_streams: streams,
            ..h3::Config::default()
        }),
        streams: streams as usize,
        per_connection: options.per_connection.unwrap_or(u64::MAX),
        connect_timeout: words.connect_timeout.unwrap_or(options.io_timeout),
    })
}

fn transport(options: &Options) -> Settings {
    let mut congestion = Congestion::default();
    if let Some((algorithm, window)) = options.words.congestion {
        congestion.algorithm = algorithm;
        congestion.window_max = window.unwrap_or(congestion.window_max);
    }
    Settings {
        // Servers open no streams for requests.
        max_streams: 0,
        max_idle: Some(options.io_timeout.max(options.hold.saturating_add(IDLE))),
        send_window: congestion.window_max.saturating_mul(2),
        congestion,
        ..Settings::default()
    }
}

fn qmux_transport(options: &Options) -> Settings {
    Settings { send_window: QMUX_SEND_WINDOW, ..transport(options) }
}

fn connector(options: &Options, one: &UrlOptions) -> Result<Connector, String> {
    let words = &options.words;
    let is_quic = one.url.scheme == UrlScheme::Quic;
    let mut parameters = Parameters::default();
    let [min, max] = words.versions;
    parameters.min = if is_quic { tls::TLS13 } else { min.unwrap_or(parameters.min) };
    parameters.max = if is_quic { tls::TLS13 } else { max.unwrap_or(parameters.max) };
    if max == Some(tls::TLS12) && is_quic {
        return Err("--server 'ssl-max-ver TLSv1.2': QUIC needs TLSv1.3".into());
    }
    let TlsLists { suites12, suites13, groups } = &one.tls;
    let chosen = |positional: &Vec<u16>, word: &Option<Box<str>>, parse: fn(&str) -> _| -> Option<Vec<u16>> {
        let parsed: Option<Result<Vec<u16>, tls::ciphers::Unsupported>> = word.as_deref().map(parse);
        if positional.is_empty() { parsed.and_then(Result::ok) } else { Some(positional.clone()) }
    };
    let supported = |mut list: Vec<u16>, has: fn(u16) -> bool, what: &str| {
        list.retain(|number| has(*number));
        if list.is_empty() { Err(format!("none of the {what} is supported")) } else { Ok(list) }
    };
    if let Some(list) = chosen(suites12, &words.ciphers, tls::ciphers::ciphers) {
        parameters.suites12 = supported(list, tls::has_suite, "ciphers")?;
    }
    if let Some(list) = chosen(suites13, &words.ciphersuites, tls::ciphers::ciphersuites) {
        parameters.suites13 = supported(list, tls::has_suite, "cipher suites")?;
    }
    if let Some(list) = chosen(groups, &words.curves, tls::ciphers::curves) {
        parameters.groups = supported(list, tls::has_group, "curves")?;
    }
    let trust = words.verifies.then(|| trust(words.ca_file.as_deref())).transpose()?;
    let certificate = match words.certificate.as_deref() {
        Some(path) => {
            let loaded = load::Loader::default().certificates(path);
            loaded.map_err(|error| format!("--server 'crt {path}': {error}"))?.into_iter().next()
        }
        None => None,
    };
    let usual = match one.version {
        HttpVersion::Hq => "hq-interop",
        HttpVersion::H1 => "http/1.1",
        HttpVersion::H2 => "h2",
        HttpVersion::H3 => "h3",
    };
    let alpn = words.alpn.clone().unwrap_or_else(|| vec![usual.into()]);
    Connector::new(&Connecting {
        parameters,
        alpn: alpn.into_iter().map(|name| name.into_boxed_bytes()).collect(),
        trust,
        verify_host: words.verify_host.clone(),
        alternative_names: Vec::new(),
        certificate,
        sessions: if words.no_resumption { 0 } else { SESSIONS },
        no_tickets: false,
        early_data: false,
        limits: Limits::default(),
        keep: Keep::default(),
    })
}

fn trust(path: Option<&str>) -> Result<Arc<Trust>, String> {
    let path = path.ok_or(
        "verify required: no CA is trusted: add --server 'ca-file FILE', or 'ca-file @system-ca' for those of the system",
    )?;
    let parts = load::authorities(path).map_err(|error| format!("--server 'ca-file {path}': {error}"))?;
    Ok(Arc::new(Trust { authorities: parts.certificates, crls: parts.crls, ..Trust::default() }))
}

fn request(options: &Options, one: &UrlOptions, target: usize) -> Result<PreparedRequest, String> {
    let url = &one.url;
    let invalid = || format!("'{}': the request is not valid", url.target);
    let mut head = Head::new();
    head.start_request(options.method.as_bytes(), url.target.as_bytes());
    let is_host = |(name, _): &&(Box<str>, Box<str>)| name.eq_ignore_ascii_case("host");
    let host = options.headers.iter().find(is_host).map_or(&*url.authority, |(_, value)| value);
    let method = Method::from_bytes(options.method.as_bytes());
    let length = options.body.to_string();
    let has_length = options.body > 0 || matches!(&*options.method, "POST" | "PUT" | "PATCH");
    let own = [("host", host)].into_iter().chain(has_length.then_some(("content-length", &*length)));
    let given = options.headers.iter().filter(|field| !is_host(field));
    let mut bytes = format!("{} {} HTTP/1.1\r\n", options.method, url.target);
    for (name, value) in own.chain(given.map(|(name, value)| (&**name, &**value))) {
        bytes.push_str(&format!("{name}: {value}\r\n"));
        if !head.append(name.as_bytes(), value.as_bytes()) {
            return Err(invalid());
        }
    }
    bytes.push_str("\r\n");
    let scheme = if url.scheme == UrlScheme::Http { Scheme::Http } else { Scheme::Https };
    let shown = format!("{}://{}{}", url.scheme.text(), url.authority, url.target);
    Ok(PreparedRequest { target, bytes: bytes.into_bytes(), head, scheme, method, body: options.body, shown })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    fn prepare(line: &str) -> Result<Targets, String> {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        match crate::arguments::parse(&words)? {
            Command::Run(options) => Targets::prepare(&options),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn urls_of_one_server_share_a_target() {
        let all = prepare(
            "http://127.0.0.1:1/a http://127.0.0.1:1/b -2c http://127.0.0.1:1/c https://127.0.0.1:1/d",
        )
        .unwrap();
        let targets: Vec<usize> = all.requests.iter().map(|request| request.target).collect();
        assert_eq!(targets, [0, 0, 1, 2]);
    }

    #[test]
    fn heads_have_the_given_fields() {
        let all = prepare("-H a:_b -H Host:_x --body 3 http://127.0.0.1:1/p?q").unwrap();
        let expected = "POST /p?q HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\na: b\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&all.requests[0].bytes), expected);
        assert_eq!(all.requests[0].head.len(), 3);
    }

    #[test]
    fn verification_needs_authorities() {
        let error = prepare("--server verify_required https://127.0.0.1:1/").unwrap_err();
        assert!(
            error.starts_with("verify required: no CA is trusted: add --server 'ca-file FILE'"),
            "{error}"
        );
        let error =
            prepare("--server verify_required_ca-file_/nonexistent https://127.0.0.1:1/").unwrap_err();
        assert!(error.starts_with("--server 'ca-file /nonexistent': "), "{error}");
        let error = prepare("--server ssl-max-ver_TLSv1.2 quic://127.0.0.1:1/").unwrap_err();
        assert_eq!(error, "--server 'ssl-max-ver TLSv1.2': QUIC needs TLSv1.3");
    }
}
