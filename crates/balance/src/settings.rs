//! What `balance`, `hash-type` and `hash-balance-factor` say (configuration manual, 4.2).

use sample::expression::Expression;

/// How a backend shares requests out.
#[derive(Debug, Default)]
pub struct Settings {
    /// `balance`.
    pub algorithm: Algorithm,
    /// `hash-type`.
    pub hash: HashType,
    /// `hash-balance-factor`: 0 for none, or the most load in percent of the average.
    pub balance_factor: u32,
    /// `option allbackups`.
    pub all_backups: bool,
}

/// `balance`.
#[derive(Debug, Default)]
pub enum Algorithm {
    /// Each in turn by weight; weights may change. The default of older HAProxy, kept where it says so.
    #[default]
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
    /// A hash of the client's address.
    Source,
    /// A hash of the URI.
    Uri {
        /// `len`: how many characters count.
        length: Option<usize>,
        /// `depth`: how many directories count.
        depth: Option<usize>,
        /// `whole`: the query too.
        whole: bool,
        /// `path-only`: without scheme and authority.
        path_only: bool,
    },
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
