//! The parts of a keyword row that are independent of the drafts it writes to: the sections that allow it, its negation, and how
//! strictly its arguments are parsed.

use base::keyword_support::Support;
use diag::Diagnostic;

/// The sections that a keyword is allowed in, as a bit set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Where(pub u32);

impl Where {
    /// `defaults`.
    pub const D: Self = Self(1);
    /// `frontend`.
    pub const F: Self = Self(2);
    /// `listen`.
    pub const L: Self = Self(4);
    /// `backend`.
    pub const B: Self = Self(8);
    /// `global`.
    pub const GLOBAL: Self = Self(16);
    /// `userlist`.
    pub const USERLIST: Self = Self(32);
    /// `http-errors`.
    pub const ERRORS: Self = Self(64);

    /// `healthcheck`.
    pub const HEALTHCHECK: Self = Self(128);
    /// `ring`.
    pub const RING: Self = Self(1 << 8);
    /// `log-forward`.
    pub const LOG_FORWARD: Self = Self(1 << 9);
    /// `log-profile`.
    pub const LOG_PROFILE: Self = Self(1 << 10);
    /// `resolvers`.
    pub const RESOLVERS: Self = Self(1 << 11);
    /// `mailers`.
    pub const MAILERS: Self = Self(1 << 12);
    /// `peers`.
    pub const PEERS: Self = Self(1 << 13);
    /// `acme`.
    pub const ACME: Self = Self(1 << 14);
    /// `crt-store`.
    pub const CRT_STORE: Self = Self(1 << 15);
    /// `fcgi-app`.
    pub const FCGI_APP: Self = Self(1 << 16);
    /// `cache`.
    pub const CACHE: Self = Self(1 << 17);
    /// `traces`.
    pub const TRACES: Self = Self(1 << 18);
    /// `spoe-agent`, in a file of `filter spoe`.
    pub const SPOE_AGENT: Self = Self(1 << 19);
    /// `spoe-message`, in a file of `filter spoe`.
    pub const SPOE_MESSAGE: Self = Self(1 << 20);
    /// `spoe-group`, in a file of `filter spoe`.
    pub const SPOE_GROUP: Self = Self(1 << 21);
    /// `opentelemetry`.
    pub const OPENTELEMETRY: Self = Self(1 << 22);
    /// `discovery`.
    pub const DISCOVERY: Self = Self(1 << 23);

    /// `udp-lb`.
    pub const UDP_LB: Self = Self(1 << 24);

    /// Both sets.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a section of the other set is in this one.
    pub const fn holds(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The columns of the manual's matrix, such as `DFLB`, and the names of other sections, separated by commas.
    pub fn letters(self) -> String {
        let names = [(Self::D, "D"), (Self::F, "F"), (Self::L, "L"), (Self::B, "B")];
        let more = [
            (Self::GLOBAL, "global"),
            (Self::USERLIST, "userlist"),
            (Self::ERRORS, "http-errors"),
            (Self::HEALTHCHECK, "healthcheck"),
            (Self::RESOLVERS, "resolvers"),
            (Self::RING, "ring"),
            (Self::LOG_FORWARD, "log-forward"),
            (Self::LOG_PROFILE, "log-profile"),
            (Self::CRT_STORE, "crt-store"),
            (Self::ACME, "acme"),
            (Self::FCGI_APP, "fcgi-app"),
            (Self::MAILERS, "mailers"),
            (Self::PEERS, "peers"),
            (Self::CACHE, "cache"),
            (Self::TRACES, "traces"),
            (Self::SPOE_AGENT, "spoe-agent"),
            (Self::SPOE_MESSAGE, "spoe-message"),
            (Self::SPOE_GROUP, "spoe-group"),
            (Self::OPENTELEMETRY, "opentelemetry"),
            (Self::DISCOVERY, "discovery"),
            (Self::UDP_LB, "udp-lb"),
        ];
        let letters: String =
            names.iter().filter(|(bit, _)| self.holds(*bit)).map(|(_, name)| *name).collect();
        let more = more.iter().filter(|(bit, _)| self.holds(*bit)).map(|(_, name)| *name);
        let all = std::iter::once(letters.as_str()).filter(|letters| !letters.is_empty()).chain(more);
        all.collect::<Vec<_>>().join(", ")
    }
}

/// The usual sets of sections, by the letters of the manual's matrix.
pub mod places {
    use super::Where;
    /// defaults, frontend, listen, backend.
    pub const DFLB: Where = Where(15);
    /// defaults, frontend, listen.
    pub const DFL: Where = Where(7);
    /// defaults, listen, backend.
    pub const DLB: Where = Where(13);
    /// frontend, listen, backend.
    pub const FLB: Where = Where(14);
    /// frontend, listen.
    pub const FL: Where = Where(6);
    /// frontend, listen, log-forward.
    pub const FL_FORWARD: Where = FL.or(Where::LOG_FORWARD);
    /// defaults, frontend, listen, log-forward.
    pub const DFL_FORWARD: Where = DFL.or(Where::LOG_FORWARD);
    /// defaults, frontend, listen, backend, log-forward, peers.
    pub const DFLB_MORE: Where = DFLB.or(Where::LOG_FORWARD).or(Where::PEERS);
    /// listen, backend, ring.
    pub const LB_RING: Where = LB.or(Where::RING);
    /// frontend, listen, backend, ring.
    pub const FLB_RING: Where = FLB.or(Where::RING);
    /// defaults, listen, backend, ring.
    pub const DLB_RING: Where = DLB.or(Where::RING);
    /// listen, backend.
    pub const LB: Where = Where(12);
    /// defaults, listen, backend, healthcheck.
    pub const DLBH: Where = DLB.or(Where::HEALTHCHECK);
    /// defaults, listen.
    pub const DL: Where = Where(5);
    /// global.
    pub const G: Where = Where::GLOBAL;
}

/// The result of a keyword function.
pub type Outcome = Result<(), Diagnostic>;

/// The prefix of a keyword.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Negation {
    /// No prefix.
    None,
    /// `no …`.
    No,
    /// `default …`.
    Default,
}

/// A keyword's documentation.
#[derive(Debug)]
pub struct KeywordRow {
    /// The name, one or two words.
    pub name: &'static str,
    /// The sections that allow the keyword.
    pub places: Where,
    /// The arguments, in the manual's notation.
    pub signature: &'static str,
    /// Whether `no` and `default` are allowed in front of it.
    pub negatable: bool,
    /// The mistakes in its arguments that HAProxy tolerates.
    pub lenient: Lenient,
    /// Set if only the first of several lines applies: the keyword's own name, or a name that it shares with others.
    pub once: Option<&'static str>,
    /// The effect of the keyword, in one line.
    pub doc: &'static str,
    /// How completely it is supported.
    pub support: Support,
}

impl KeywordRow {
    /// The number of words in the name.
    pub fn words(&self) -> usize {
        self.name.bytes().filter(|byte| *byte == b' ').count() + 1
    }
}

/// Mistakes in a keyword's arguments that HAProxy tolerates. Weir tolerates them as well, with a warning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lenient {
    /// Numbers end at the first byte that is not a digit; without digits they are 0.
    pub numbers: bool,
    /// Words after the last argument.
    pub more_words: bool,
}

impl Lenient {
    /// Nothing is tolerated.
    pub const NEVER: Self = Self { numbers: false, more_words: false };
    /// Only malformed numbers are tolerated.
    pub const NUMBERS: Self = Self { numbers: true, more_words: false };
}

/// The names of a set of sections.
pub fn sections(places: Where) -> String {
    const NAMES: &[(Where, &str)] = &[
        (Where::GLOBAL, "global"),
        (Where::D, "defaults"),
        (Where::F, "frontend"),
        (Where::L, "listen"),
        (Where::B, "backend"),
        (Where::USERLIST, "userlist"),
        (Where::ERRORS, "http-errors"),
        (Where::HEALTHCHECK, "healthcheck"),
        (Where::RESOLVERS, "resolvers"),
        (Where::RING, "ring"),
        (Where::LOG_FORWARD, "log-forward"),
        (Where::LOG_PROFILE, "log-profile"),
        (Where::CRT_STORE, "crt-store"),
        (Where::ACME, "acme"),
        (Where::FCGI_APP, "fcgi-app"),
        (Where::MAILERS, "mailers"),
        (Where::PEERS, "peers"),
        (Where::TRACES, "traces"),
        (Where::SPOE_AGENT, "spoe-agent"),
        (Where::SPOE_MESSAGE, "spoe-message"),
        (Where::SPOE_GROUP, "spoe-group"),
        (Where::OPENTELEMETRY, "opentelemetry"),
        (Where::DISCOVERY, "discovery"),
        (Where::UDP_LB, "udp-lb"),
    ];
    let names: Vec<&str> =
        NAMES.iter().filter(|(bit, _)| places.holds(*bit)).map(|(_, name)| *name).collect();
    names.join(", ")
}

/// The error for a keyword that is known but not implemented.
pub fn not_supported(what: &str) -> Diagnostic {
    Diagnostic::alert(format!("`{what}` is not supported yet"))
}
