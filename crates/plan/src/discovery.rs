//! `discovery` sections: the sources of lists of instances, and the instances behind discovered servers
//! (docs/discovery.md).

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use state::discovery::{DiscoverySource, Feed, Instance};

/// A `discovery` section.
#[derive(Debug)]
pub struct DiscoverySection {
    /// The lists, which outlive the plan.
    pub state: Arc<DiscoverySource>,
    /// The kind of the source.
    pub kind: SourceKind,
    /// The location of the source.
    pub place: SourcePlace,
    /// `refresh`: the time between two requests, for sources that do not report changes.
    pub refresh: Duration,
    /// The TLS settings of an `https` URL.
    pub connector: Option<Arc<tls::Connector>>,
    /// Whether the certificate of the source is verified.
    pub verifies: bool,
    /// `token-file`: the file with the token that is sent with each request. It is read for each connection.
    pub token_file: Option<PathBuf>,
}

/// The kinds of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// `targets`: Prometheus' format, in a file or behind a URL.
    Targets,
    /// `kubernetes`: the EndpointSlices of a service.
    Kubernetes,
    /// `consul`: the healthy instances of a service.
    Consul,
    /// `nomad`: the registrations of a service.
    Nomad,
    /// `etcd`: the keys below a prefix.
    Etcd,
    /// `docker`: the running containers.
    Docker,
    /// `podman`: the running containers.
    Podman,
}

impl SourceKind {
    /// The keyword.
    pub fn name(self) -> &'static str {
        match self {
            Self::Targets => "targets",
            Self::Kubernetes => "kubernetes",
            Self::Consul => "consul",
            Self::Nomad => "nomad",
            Self::Etcd => "etcd",
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// The location of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcePlace {
    /// A file.
    File(PathBuf),
    /// A URL.
    Url(SourceUrl),
    /// A UNIX socket.
    Unix(PathBuf),
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(url) => url.fmt(f),
            Self::Unix(path) => write!(f, "unix@{}", path.display()),
        }
    }
}

/// An `http` or `https` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceUrl {
    /// Whether it is `https`.
    pub is_tls: bool,
    /// The host as written, without brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
    /// The path with the query; empty or starting with a slash.
    pub path: Box<str>,
}

impl SourceUrl {
    /// Parses a URL; `port` is the port of an `http` URL without one.
    ///
    /// # Errors
    /// The reason, to follow the URL in a message.
    pub fn parse(text: &str, port: u16) -> Result<Self, &'static str> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it contains a blank or a character that is not ASCII");
        }
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
        let (is_tls, port) = match scheme {
            _ if scheme.eq_ignore_ascii_case("http") => (false, port),
            _ if scheme.eq_ignore_ascii_case("https") => (true, if port == 80 { 443 } else { port }),
            _ => return Err("the scheme must be `http` or `https`"),
        };
        if rest.contains('#') {
            return Err("it has a fragment");
        }
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (host, port) = match authority.strip_prefix('[') {
            Some(inside) => {
                let (host, behind) = inside.split_once(']').ok_or("`]` is missing")?;
                let port = match behind.strip_prefix(':') {
                    Some(digits) => parse_port(digits)?,
                    None if behind.is_empty() => port,
                    None => return Err("a port must follow `]`"),
                };
                host.parse::<std::net::Ipv6Addr>()
                    .map_err(|_| "the brackets do not contain an IPv6 address")?;
                (host, port)
            }
            None => match authority.split_once(':') {
                Some((host, digits)) => (host, parse_port(digits)?),
                None => (authority, port),
            },
        };
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
        if host.is_empty() || host.len() > 253 || !host.bytes().all(fits) {
            return Err("a host name can contain letters, digits, `-`, `_` and `.`");
        }
        let path = match path.starts_with('?') {
            true => format!("/{path}").into(),
            false => path.into(),
        };
        Ok(Self { is_tls, host: host.into(), port, path })
    }

    /// Returns the URL of a path below this one.
    pub fn join(&self, path: &str) -> String {
        format!("{self}{path}")
    }
}

impl fmt::Display for SourceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}{}", self.host, self.port, self.path)
    }
}

fn parse_port(digits: &str) -> Result<u16, &'static str> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|port| all_digits && *port > 0);
    port.ok_or("the port must be a number from 1 to 65535")
}

/// The conditions that an instance must meet to become a server of a line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceFilter {
    /// `port`: its number, or its name in the source.
    pub port: Option<PortChoice>,
    /// `label`, `tag`: names and values, all of which the instance must have.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// `zone`.
    pub zone: Option<Box<str>>,
}

/// A port of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortChoice {
    /// The port with that number.
    Number(u16),
    /// The port with that name.
    Name(Box<str>),
}

/// The name of the label with the name of an instance's port.
pub const PORT_LABEL: &str = "port";

impl InstanceFilter {
    /// Whether the instance meets the conditions.
    pub fn accepts(&self, instance: &Instance) -> bool {
        let port = match &self.port {
            None => true,
            Some(PortChoice::Number(port)) => instance.port == *port,
            Some(PortChoice::Name(name)) => instance.has(PORT_LABEL, name),
        };
        port && self.zone.as_ref().is_none_or(|zone| instance.zone.as_ref() == Some(zone))
            && self.labels.iter().all(|(name, value)| instance.has(name, value))
    }
}

/// The instance behind a discovered server.
#[derive(Debug)]
pub struct DiscoveredInstance {
    /// The list of instances.
    pub feed: Arc<Feed>,
    /// The number of the line among those of its backend.
    pub line: usize,
    /// The name in the source.
    pub id: Box<str>,
    /// The address. A different address is a different instance.
    pub address: (IpAddr, u16),
    /// The zone.
    pub zone: Option<Box<str>>,
    /// Its phase according to the last list.
    phase: AtomicU8,
    /// The weight that the source last set; [`NO_WEIGHT`] for none.
    weight: AtomicU32,
}

/// No weight is set by the source.
const NO_WEIGHT: u32 = u32::MAX;

/// The state of an instance according to its source. An operator's changes of the server remain until this state changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum InstancePhase {
    /// It serves requests.
    Ready,
    /// It is listed, but may not get requests.
    NotReady,
    /// It is about to end.
    Draining,
    /// It is not listed any more. The server is removed when nothing uses it.
    Gone,
}

impl InstancePhase {
    /// Returns the phase of a listed instance.
    pub fn of(instance: &Instance) -> Self {
        match (instance.is_draining, instance.is_ready) {
            (true, _) => Self::Draining,
            (false, true) => Self::Ready,
            (false, false) => Self::NotReady,
        }
    }

    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady => "not-ready",
            Self::Draining => "draining",
            Self::Gone => "gone",
        }
    }
}

impl DiscoveredInstance {
    /// Records an instance of a list, which the line with this number has made a server.
    pub fn new(feed: &Arc<Feed>, line: usize, instance: &Instance) -> Self {
        Self {
            feed: feed.clone(),
            line,
            id: instance.id.clone(),
            address: (instance.address, instance.port),
            zone: instance.zone.clone(),
            phase: AtomicU8::new(InstancePhase::of(instance) as u8),
            weight: AtomicU32::new(instance.weight.unwrap_or(NO_WEIGHT)),
        }
    }

    /// Returns the phase.
    pub fn phase(&self) -> InstancePhase {
        match self.phase.load(Relaxed) {
            0 => InstancePhase::Ready,
            1 => InstancePhase::NotReady,
            2 => InstancePhase::Draining,
            _ => InstancePhase::Gone,
        }
    }

    /// Sets the phase, and returns the previous one.
    pub fn set_phase(&self, phase: InstancePhase) -> InstancePhase {
        let before = self.phase();
        self.phase.store(phase as u8, Relaxed);
        before
    }

    /// Sets the weight that the source sets; returns whether it is a different one.
    pub fn set_weight(&self, weight: Option<u32>) -> bool {
        let weight = weight.unwrap_or(NO_WEIGHT);
        self.weight.swap(weight, Relaxed) != weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_written_as_they_were_parsed() {
        for (text, again) in [
            ("http://a.test", "http://a.test:80"),
            ("HTTPS://a.test/x?y=1", "https://a.test:443/x?y=1"),
            ("http://[::1]:8500/v1", "http://[::1]:8500/v1"),
            ("http://a.test?x", "http://a.test:80/?x"),
        ] {
            assert_eq!(SourceUrl::parse(text, 80).map(|url| url.to_string()), Ok(again.to_owned()), "{text}");
        }
        for text in [
            "a.test",
            "ftp://a",
            "http://",
            "http://a:0",
            "http://a:x",
            "http://[::1",
            "http://[a]",
            "http://a b",
            "http://a/#b",
        ] {
            assert!(SourceUrl::parse(text, 80).is_err(), "{text}");
        }
        assert_eq!(SourceUrl::parse("http://a", 8500).map(|url| url.port), Ok(8500));
    }

    #[test]
    fn filters_need_every_label() {
        let mut instance = Instance::new("a", IpAddr::from([10, 0, 0, 1]), 8080);
        instance.labels =
            [("tag", "v1"), ("tag", "v2"), ("port", "http")].map(|(n, v)| (n.into(), v.into())).into();
        let filter = |labels: &[(&str, &str)]| InstanceFilter {
            labels: labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            ..InstanceFilter::default()
        };
        assert!(filter(&[("tag", "v2"), ("tag", "v1")]).accepts(&instance));
        assert!(!filter(&[("tag", "v1"), ("tag", "v3")]).accepts(&instance));
        for (port, fits) in [
            (PortChoice::Number(8080), true),
            (PortChoice::Number(80), false),
            (PortChoice::Name("http".into()), true),
            (PortChoice::Name("https".into()), false),
        ] {
            let filter = InstanceFilter { port: Some(port), ..InstanceFilter::default() };
            assert_eq!(filter.accepts(&instance), fits, "{filter:?}");
        }
        let zone = InstanceFilter { zone: Some("z".into()), ..InstanceFilter::default() };
        assert!(!zone.accepts(&instance), "an instance without a zone is in no zone");
    }
}
