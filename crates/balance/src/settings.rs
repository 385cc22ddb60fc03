//! The settings of `balance`, `hash-type` and related keywords (configuration manual, 4.2).

use std::time::Duration;

use sample::expression::Expression;

use crate::budget::Budget;
use crate::hedge::Hedge;
use crate::outliers::Outliers;

/// The load balancing settings of a backend.
#[derive(Debug, Default)]
pub struct BalanceSettings {
    /// `balance`.
    pub algorithm: Algorithm,
    /// `hash-type`.
    pub hash: HashType,
    /// `hash-balance-factor`: 0 for none, or the maximum load in percent of the average.
    pub balance_factor: u32,
    /// `hash-preserve-affinity`.
    pub preserve_affinity: PreserveAffinity,
    /// `option allbackups`.
    pub all_backups: bool,
    /// `outlier-ejection`.
    pub outliers: Option<Box<Outliers>>,
    /// `retry-budget`.
    pub budget: Option<Budget>,
    /// `hedge`.
    pub hedge: Option<Hedge>,
}

/// `balance`.
#[derive(Debug)]
pub enum Algorithm {
    /// Round robin by weight; weights may change.
    RoundRobin,
    /// Round robin by the initial weights.
    StaticRr,
    /// The least loaded.
    LeastConn,
    /// The first server with room.
    First,
    /// The best of `draws` random draws by weight.
    Random {
        /// At least 1; by default 2.
        draws: u32,
    },
    /// The better of two random draws, by response time and outstanding requests. Only in Weir.
    PeakEwma {
        /// The time constant, after which the weight of an observation has fallen to about a third.
        decay: Duration,
    },
    /// A hash of the client's address.
    Source,
    /// A hash of the URI.
    Uri(UriPart),
    /// A hash of a parameter in the URL, or in the body of a POST.
    UrlParam {
        /// The parameter.
        name: Box<[u8]>,
        /// `check_post`.
        check_post: bool,
    },
    /// A hash of a header.
    Header {
        /// The name of the header.
        name: http::Name,
        /// `use_domain_only`.
        domain_only: bool,
    },
    /// A hash of the RDP cookie.
    RdpCookie {
        /// The name of the cookie, by default `mstshash`.
        name: Box<[u8]>,
    },
    /// A hash of an expression.
    Hash(Expression),
    /// A hash of a log line's converted text, in log backends.
    LogHash(Expression),
    /// One server until it goes down, in log backends: the server that has been up longest.
    Sticky,
}

/// The part of a request's URI that is hashed (`balance uri`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UriPart {
    /// `len`: maximum number of characters.
    pub length: Option<usize>,
    /// `depth`: maximum number of directories.
    pub depth: Option<usize>,
    /// `whole`: includes the query.
    pub whole: bool,
    /// `path-only`: without scheme and authority.
    pub path_only: bool,
}

impl Default for Algorithm {
    /// The default without `balance` (manual, 4.2 `balance`).
    fn default() -> Self {
        Self::Random { draws: 2 }
    }
}

impl Algorithm {
    /// Whether the algorithm uses a key of the request.
    pub fn hashes(&self) -> bool {
        match self {
            Self::RoundRobin
            | Self::StaticRr
            | Self::LeastConn
            | Self::First
            | Self::Random { .. }
            | Self::PeakEwma { .. }
            | Self::Sticky => false,
            Self::Source
            | Self::Uri(_)
            | Self::UrlParam { .. }
            | Self::Header { .. }
            | Self::RdpCookie { .. }
            | Self::Hash(_)
            | Self::LogHash(_) => true,
        }
    }

    /// The name of the algorithm after `balance`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin => "roundrobin",
            Self::StaticRr => "static-rr",
            Self::LeastConn => "leastconn",
            Self::First => "first",
            Self::Random { .. } => "random",
            Self::PeakEwma { .. } => "peak-ewma",
            Self::Source => "source",
            Self::Uri(_) => "uri",
            Self::UrlParam { .. } => "url_param",
            Self::Header { .. } => "hdr",
            Self::RdpCookie { .. } => "rdp-cookie",
            Self::Hash(_) => "hash",
            Self::LogHash(_) => "log-hash",
            Self::Sticky => "sticky",
        }
    }

    /// Whether weights may change at run time. This is not the case for maps of the initial weights, in which a server has either
    /// its whole weight or none (management manual, `set weight`).
    pub fn is_dynamic(&self, hash: HashType) -> bool {
        match self {
            Self::StaticRr => false,
            other => !other.hashes() || hash.kind == HashKind::Consistent,
        }
    }
}

/// `hash-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HashType {
    /// How a hash selects a server.
    pub kind: HashKind,
    /// How a key is hashed.
    pub function: HashFunction,
    /// `avalanche`.
    pub avalanche: bool,
}

/// How a hash selects a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum HashKind {
    #[default]
    MapBased,
    Consistent,
}

/// The hash function for keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum HashFunction {
    #[default]
    Sdbm,
    Djb2,
    Wt6,
    Crc32,
    None,
}

/// `hash-preserve-affinity`: when a consistent hash chooses another server instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreserveAffinity {
    /// Never.
    #[default]
    Always,
    /// If the server has reached its `maxconn`.
    MaxConn,
    /// If the server's queue is full too.
    MaxQueue,
}

/// `hash-key` of a server (manual, 5.2): the basis of its points on the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum HashKey {
    #[default]
    Id,
    Id32,
    Guid,
    Addr,
    AddrPort,
}
