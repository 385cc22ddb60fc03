//! `resolvers` sections, resolved (configuration manual, chapter 5.3), and what a server line says
//! of resolving its name.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::address::Family;
use base::network::Network;

/// A `resolvers` section.
#[derive(Debug, Clone)]
pub struct Resolvers {
    /// Its name and the counters of its name servers.
    pub state: Arc<state::resolvers::ResolversSection>,
    /// Its name servers, in the same order as their counters.
    pub nameservers: Vec<NameServer>,
    /// `accepted_payload_size`, in bytes.
    pub payload_size: u16,
    /// `resolve_retries`: how often a question is asked in all.
    pub retries: u32,
    /// `timeout resolve`: from one resolution of a name to the next.
    pub every: Duration,
    /// `timeout retry`: how long an answer is waited for.
    pub retry: Duration,
    /// `hold`.
    pub hold: Hold,
}

/// How a name server is reached.
#[derive(Debug, Clone)]
pub struct NameServer {
    /// Where it is.
    pub address: NameServerAddress,
    /// `tcp@`, `unix@`: questions go over a connection.
    pub stream: bool,
    /// `ssl`: how TLS is spoken on it.
    pub secure: Option<Arc<tls::Connector>>,
}

/// Where a name server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameServerAddress {
    /// At a port, of UDP and TCP alike.
    Ip(SocketAddr),
    /// At a stream socket of the system.
    Unix(PathBuf),
}

/// `hold`: how long the last valid answer outweighs what came later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// A name that does not exist.
    pub nx: Duration,
    /// A question refused.
    pub refused: Duration,
    /// No answer.
    pub timeout: Duration,
    /// Any other failure.
    pub other: Duration,
    /// How long an answer serves `do-resolve` without being asked for again.
    pub valid: Duration,
    /// How long a record that answers no longer have is kept.
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
    /// IPv4, and IPv6 where the system has a way out for it.
    #[default]
    Auto,
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
    /// Both.
    Both,
}

/// `resolvers` of a server line and its kin.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// The section that is asked.
    pub resolvers: Arc<Resolvers>,
    /// What is wanted of the addresses.
    pub wishes: Wishes,
}

/// `resolve-prefer`, `resolve-net` and `resolve-opts`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The family asked for first, IPv6 where nothing is said.
    pub prefer: Option<Family>,
    /// Addresses in these networks come first.
    pub networks: Vec<Network>,
    /// Whether two servers with the same name may have the same address.
    pub duplicates: bool,
    /// Whether the weights of SRV records are of no account.
    pub ignore_weight: bool,
}
