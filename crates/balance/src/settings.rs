//! What `balance`, `hash-type` and related keywords say (configuration manual, 4.2).

use std::time::Duration;

use sample::expression::Expression;

use crate::budget::Budget;
use crate::hedge::Hedge;
use crate::outliers::Outliers;

/// How a backend shares requests out.
#[derive(Debug, Default)]
pub struct BalanceSettings {
    /// `balance`.
    pub algorithm: Algorithm,
    /// `hash-type`.
    pub hash: HashType,
    /// `hash-balance-factor`: 0 for none, or the most load in percent of the average.
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
    /// Each in turn by weight; weights may change.
    RoundRobin,
    /// Each in turn by weight; weights of the start only.
    StaticRr,
    /// The least loaded.
    LeastConn,
    /// The first with room left.
    First,
    /// The better of `draws` drawn at random by weight.
    Random {
        /// At least 1; 2 when not given.
        draws: u32,
    },
    /// The better of two drawn at random, by response time and requests outstanding. Weir's own.
    PeakEwma {
        /// How long it takes until what was seen counts for a third.
        decay: Duration,
    },
    /// A hash of the client's address.
    Source,
    /// A hash of the URI.
    Uri(UriPart),
    /// A hash of a parameter of the URL, or of the body of a POST.
    UrlParam {
        /// The parameter.
        name: Box<str>,
        /// `check_post`.
        check_post: bool,
    },
    /// A hash of a header.
    Header {
        /// Its name.
        name: http::Name,
        /// `use_domain_only`.
        domain_only: bool,
    },
    /// A hash of the cookie of RDP.
    RdpCookie {
        /// Its name, `mstshash` when not given.
        name: Box<str>,
    },
    /// A hash of an expression.
    Hash(Expression),
    /// A hash of what converters make of a log line, in log backends.
    LogHash(Expression),
    /// One server until it is down, in log backends: the one that has been up the longest.
    Sticky,
}

/// What of a request's URI counts (`balance uri`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UriPart {
    /// `len`: at most so many characters.
    pub length: Option<usize>,
    /// `depth`: at most so many directories.
    pub depth: Option<usize>,
    /// `whole`: the query too.
    pub whole: bool,
    /// `path-only`: without scheme and authority.
    pub path_only: bool,
}

impl Default for Algorithm {
    /// What a backend without `balance` does (manual, 4.2 `balance`).
    fn default() -> Self {
        Self::Random { draws: 2 }
    }
}

impl Algorithm {
    /// Whether a key of the request decides.
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

    /// Whether weights may change while the servers run: not for maps made from the weights of the
    /// start, which know only all of a weight or nothing (management manual, `set weight`).
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
    /// How a hash becomes a server.
    pub kind: HashKind,
    /// How a key becomes a hash.
    pub function: HashFunction,
    /// `avalanche`.
    pub avalanche: bool,
}

/// How a hash becomes a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum HashKind {
    #[default]
    MapBased,
    Consistent,
}

/// How a key becomes a hash.
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

/// `hash-preserve-affinity`: when a consistent hash goes on to another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreserveAffinity {
    /// Never.
    #[default]
    Always,
    /// When the server has reached its `maxconn`.
    MaxConn,
    /// When its queue is full too.
    MaxQueue,
}

/// `hash-key` of a server (manual, 5.2): what its places on the ring are taken from.
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
