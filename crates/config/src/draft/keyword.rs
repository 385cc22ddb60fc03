//! A keyword as a row of a table.
//!
//! The tables are in [`crate::tables`]; `find` looks lines up in them, `-dK` and the keyword
//! reference print the rows.

use base::support::Support;
use diag::Diagnostic;
use syntax::{Environment, Word};

use crate::draft::acme::AcmeDraft;
use crate::draft::args::Args;
use crate::draft::cache::CacheDraft;
use crate::draft::fcgi::FcgiDraft;
use crate::draft::mail::MailersDraft;
use crate::draft::resolvers::ReadResolvers;
use crate::draft::settings::{GlobalSettings, Settings};
use crate::draft::spoe::AgentDraft;

/// The sections a keyword may stand in: a set of bits.
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

    /// Both sets.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a section of the other set is in this one.
    pub const fn holds(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The columns of the manual's matrix: `DFLB`, or the section's name.
    pub fn letters(self) -> String {
        let names =
            [(Self::D, "D"), (Self::F, "F"), (Self::L, "L"), (Self::B, "B"), (Self::GLOBAL, "global")];
        let more = [
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
        ];
        names.iter().chain(&more).filter(|(bit, _)| self.holds(*bit)).map(|(_, name)| *name).collect()
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

/// What a keyword function gives.
pub type Outcome = Result<(), Diagnostic>;

/// Reads a line into a `mailers` section.
pub type ReadMailers = for<'a> fn(&mut MailersDraft, &mut Args<'a, '_>) -> Outcome;

/// Reads a line into a `cache` section.
pub type ReadCache = for<'a> fn(&mut CacheDraft<'a>, &mut Args<'a, '_>) -> Outcome;

/// Reads a line into an `acme` section.
pub type ReadAcme = for<'a> fn(&mut AcmeDraft<'a>, &mut Args<'a, '_>) -> Outcome;

/// Reads a line into an `fcgi-app` section.
pub type ReadFcgi = for<'a> fn(&mut FcgiDraft<'a>, &mut Args<'a, '_>) -> Outcome;

/// Reads a line into a `spoe-agent` section.
pub type ReadAgent = for<'a> fn(&mut AgentDraft<'a>, &mut Args<'a, '_>) -> Outcome;

/// What a keyword does.
#[derive(Clone, Copy)]
pub enum Apply {
    /// Changes the environment while lines are still being read.
    Environment(fn(&mut Environment, &[Word])),
    /// Sets something of the process.
    Global(for<'a> fn(&mut GlobalSettings<'a>, &mut Args<'a, '_>) -> Outcome),
    /// Sets something of a proxy.
    Proxy(for<'a> fn(&mut Settings<'a>, &mut Args<'a, '_>) -> Outcome),
    /// Compiled in its order once all names are known; see `resolve::rules`.
    Rule,
    /// A line of a small section (`userlist`, `http-errors`, `resolvers`), read by that section.
    Section,
    /// Sets something of a `resolvers` section.
    Resolvers(ReadResolvers),
    /// Sets something of a `mailers` section.
    Mailers(ReadMailers),
    /// Sets something of a `cache` section.
    Cache(ReadCache),
    /// Sets something of an `acme` section.
    Acme(ReadAcme),
    /// Sets something of an `fcgi-app` section.
    Fcgi(ReadFcgi),
    /// Sets something of a `spoe-agent` section.
    SpoeAgent(ReadAgent),
    /// Understood, without effect here: a warning with the reason.
    Ineffective(&'static str),
    /// Once a keyword: an error with the version of HAProxy that it went with, and the way out.
    Removed(&'static str, &'static str),
    /// Understood, not built.
    Unsupported,
}

/// How a keyword is negated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Negation {
    /// Plain.
    None,
    /// `no …`.
    No,
    /// `default …`.
    Default,
}

/// A row of a keyword table.
pub struct Keyword {
    /// One word or two.
    pub name: &'static str,
    /// Where it may stand.
    pub places: Where,
    /// Its arguments, in the manual's notation.
    pub signature: &'static str,
    /// Whether `no` and `default` may stand in front.
    pub negatable: bool,
    /// What HAProxy reads over in its arguments.
    pub lenient: Lenient,
    /// The first line counts where there are several of this name: the keyword's own, or one that
    /// it shares with others.
    pub once: Option<&'static str>,
    /// What it does, one line.
    pub doc: &'static str,
    /// How much of it works.
    pub support: Support,
    /// What is done with it.
    pub apply: Apply,
}

/// What HAProxy reads over in the arguments of a keyword: it counts here too, and a warning tells
/// of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lenient {
    /// Numbers end at the first byte that is no digit; without digits they are 0.
    pub numbers: bool,
    /// Words behind the last argument.
    pub more_words: bool,
}

impl Lenient {
    /// Nothing is read over.
    pub const NEVER: Self = Self { numbers: false, more_words: false };
    /// Numbers are.
    pub const NUMBERS: Self = Self { numbers: true, more_words: false };
}

impl Keyword {
    /// How many words the name has.
    pub fn words(&self) -> usize {
        self.name.bytes().filter(|byte| *byte == b' ').count() + 1
    }

    /// Whether it does something here.
    pub fn is_supported(&self) -> bool {
        !matches!(self.apply, Apply::Unsupported | Apply::Removed(..))
    }
}

/// A row of which nothing is said but this.
pub(crate) const fn row(
    name: &'static str,
    places: Where,
    signature: &'static str,
    doc: &'static str,
    apply: Apply,
) -> Keyword {
    Keyword {
        name,
        places,
        signature,
        negatable: false,
        lenient: Lenient::NEVER,
        once: None,
        doc,
        support: Support::Full,
        apply,
    }
}

/// A row that changes a proxy.
pub const fn proxy(
    name: &'static str,
    places: Where,
    signature: &'static str,
    doc: &'static str,
    apply: for<'a> fn(&mut Settings<'a>, &mut Args<'a, '_>) -> Outcome,
) -> Keyword {
    row(name, places, signature, doc, Apply::Proxy(apply))
}

/// A row that changes the process.
pub const fn global(
    name: &'static str,
    signature: &'static str,
    doc: &'static str,
    apply: for<'a> fn(&mut GlobalSettings<'a>, &mut Args<'a, '_>) -> Outcome,
) -> Keyword {
    row(name, Where::GLOBAL, signature, doc, Apply::Global(apply))
}

/// A row that is compiled when all names are known.
pub const fn rule(name: &'static str, places: Where, signature: &'static str, doc: &'static str) -> Keyword {
    row(name, places, signature, doc, Apply::Rule)
}

/// A row that has no effect, with the reason.
pub const fn ineffective(name: &'static str, places: Where, reason: &'static str) -> Keyword {
    let own = row(name, places, "...", "accepted with a warning", Apply::Ineffective(reason));
    Keyword { negatable: true, support: Support::None(reason), ..own }
}

/// A row of a keyword that is gone, with the way out.
pub const fn removed(name: &'static str, places: Where, way_out: &'static str) -> Keyword {
    removed_since(name, places, "2.1", way_out)
}

/// A row of a keyword that is gone, with the version of HAProxy that it went with.
pub const fn removed_since(
    name: &'static str,
    places: Where,
    version: &'static str,
    way_out: &'static str,
) -> Keyword {
    row(name, places, "", "removed", Apply::Removed(version, way_out))
}

/// A row of a keyword that is not built.
pub const fn unsupported(name: &'static str, places: Where) -> Keyword {
    let why = "not supported yet";
    Keyword {
        negatable: true,
        support: Support::None(why),
        ..row(name, places, "...", why, Apply::Unsupported)
    }
}

impl Keyword {
    /// Allows `no` and `default` in front.
    pub const fn negatable(mut self) -> Self {
        self.negatable = true;
        self
    }

    /// Reads numbers as HAProxy's `atol` does: up to the first byte that is no digit.
    pub const fn lenient_numbers(mut self) -> Self {
        self.lenient.numbers = true;
        self
    }

    /// Passes over words behind the last argument.
    pub const fn lenient_words(mut self) -> Self {
        self.lenient.more_words = true;
        self
    }

    /// May be said once; the first line counts.
    pub const fn once(mut self) -> Self {
        self.once = Some(self.name);
        self
    }

    /// May be said once, as may others with `name`; the first line of them counts.
    pub const fn once_of(mut self, name: &'static str) -> Self {
        self.once = Some(name);
        self
    }

    /// Works but for what the text says.
    pub const fn partial(mut self, reason: &'static str) -> Self {
        self.support = Support::Partial(reason);
        self
    }

    /// Is read, with a warning that it has no effect.
    pub const fn without_effect(mut self, reason: &'static str) -> Self {
        self.support = Support::None(reason);
        self
    }
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
    ];
    let names: Vec<&str> =
        NAMES.iter().filter(|(bit, _)| places.holds(*bit)).map(|(_, name)| *name).collect();
    names.join(", ")
}

/// The message for what is understood and not built.
pub fn not_supported(what: &str) -> Diagnostic {
    Diagnostic::alert(format!("`{what}` is not supported yet"))
}
