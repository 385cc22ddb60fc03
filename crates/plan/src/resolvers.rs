//! `resolvers` sections, resolved (configuration manual, chapter 5.3), and the settings of a `server` line for resolving its name.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::address::Family;
use base::network::Network;

/// A `resolvers` section.
#[derive(Debug, Clone)]
pub struct Resolvers {
    /// The name of the section and the counters of its name servers.
    pub state: Arc<state::resolvers::ResolversSection>,
    /// The name servers, in the same order as their counters.
    pub nameservers: Vec<NameServer>,
    /// `accepted_payload_size`, in bytes.
    pub payload_size: u16,
    /// `resolve_retries`: how often a query is sent in total.
    pub retries: u32,
    /// `timeout resolve`: from one resolution of a name to the next.
    pub every: Duration,
    /// `timeout retry`: how long to wait for a response.
    pub retry: Duration,
    /// `hold`.
    pub hold: Hold,
}

/// How a name server is reached.
#[derive(Debug, Clone)]
pub struct NameServer {
    /// The address of the name server.
    pub address: NameServerAddress,
    /// `tcp@`, `unix@`: whether queries are sent over a connection.
    pub stream: bool,
    /// `ssl`: the TLS settings.
    pub secure: Option<Arc<tls::Connector>>,
}

/// The address of a name server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameServerAddress {
    /// A port, for both UDP and TCP.
    Ip(SocketAddr),
    /// A UNIX stream socket.
    Unix(PathBuf),
}

/// `hold`: how long the last valid response takes precedence over later results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// A name that does not exist.
    pub nx: Duration,
    /// A refused query.
    pub refused: Duration,
    /// No response.
    pub timeout: Duration,
    /// Any other failure.
    pub other: Duration,
    /// How long a response is valid for `do-resolve` without another query.
    pub valid: Duration,
    /// How long a record missing in later responses is kept.
    pub obsolete: Duration,
}

impl Default for Hold {
    fn default() -> Self {
        let long = Duration::from_secs(30);
        Self {
            nx: long,
            refused: long,
            timeout: long,
            other: long,
            valid: Duration::from_secs(10),
            obsolete: Duration::ZERO,
        }
    }
}

/// `dns-accept-family`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcceptFamily {
    /// IPv4, and IPv6 if the system has a route for it.
    #[default]
    Auto,
    /// Only IPv4.
    V4,
    /// Only IPv6.
    V6,
    /// Both.
    Both,
}

/// `resolvers` of a server line, and related options.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// The section to use.
    pub resolvers: Arc<Resolvers>,
    /// The address preferences.
    pub wishes: Wishes,
}

/// `resolve-prefer`, `resolve-net` and `resolve-opts`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The family to query first, IPv6 by default.
    pub prefer: Option<Family>,
    /// Preferred networks.
    pub networks: Vec<Network>,
    /// Whether two servers with the same name may have the same address.
    pub duplicates: bool,
    /// Whether the weights of SRV records are ignored.
    pub ignore_weight: bool,
}
