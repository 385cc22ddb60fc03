//! A keyword as a table row.
//!
//! The tables are in [`crate::tables`]; `find` looks lines up in them, `-dK` and the keyword reference print the rows.

use std::ops::Deref;

use base::keyword_support::Support;
use syntax::{Environment, Word};

use crate::draft::acme::AcmeDraft;
use crate::draft::args::Args;
use crate::draft::cache::CacheDraft;
use crate::draft::discovery::DiscoveryDraft;
use crate::draft::fcgi::FcgiDraft;
use crate::draft::mail::MailersDraft;
use crate::draft::resolvers::ReadResolvers;
use crate::draft::row::{KeywordRow, Lenient, Outcome, Where};
use crate::draft::section::Statement;
use crate::draft::settings::{GlobalSettings, ProxySettings};
use crate::draft::spoe::AgentDraft;
use crate::draft::telemetry::TelemetryDraft;

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

/// Reads a line into an `opentelemetry` section.
pub type ReadTelemetry = for<'a> fn(&mut TelemetryDraft<'a>, &mut Args<'a, '_>) -> Outcome;

/// Reads a line into a `discovery` section.
pub type ReadDiscovery = for<'a> fn(&mut DiscoveryDraft<'a>, &mut Args<'a, '_>) -> Outcome;

/// The action of a keyword.
#[derive(Clone, Copy)]
pub enum Apply {
    /// Changes the environment while lines are still being read.
    Environment(fn(&mut Environment, &[Word])),
    /// Sets a process-wide setting.
    Global(for<'a> fn(&mut GlobalSettings<'a>, &mut Args<'a, '_>) -> Outcome),
    /// Sets a proxy setting.
    Proxy(for<'a> fn(&mut ProxySettings<'a>, &mut Args<'a, '_>) -> Outcome),
    /// Compiled in line order once all names are known, by `resolve::rules`.
    Rule,
    /// A line of a small section (`userlist`, `http-errors`, `resolvers`), read by that section.
    Section,
    /// Sets a setting of a `resolvers` section.
    Resolvers(ReadResolvers),
    /// Sets a setting of a `mailers` section.
    Mailers(ReadMailers),
    /// Sets a setting of a `cache` section.
    Cache(ReadCache),
    /// Sets a setting of an `acme` section.
    Acme(ReadAcme),
    /// Sets a setting of an `fcgi-app` section.
    Fcgi(ReadFcgi),
    /// Sets a setting of a `spoe-agent` section.
    SpoeAgent(ReadAgent),
    /// Sets a setting of an `opentelemetry` section.
    Telemetry(ReadTelemetry),
    /// Sets the source of a `discovery` section.
    Discovery(ReadDiscovery),
    /// Recognized, but without effect in Weir: a warning with the reason.
    Ineffective(&'static str),
    /// A former keyword: an error with the HAProxy version that removed it, and the replacement.
    Removed(&'static str, &'static str),
    /// Recognized but not supported.
    Unsupported,
}

/// A row of a keyword table.
pub struct Keyword {
    /// The name, places, arguments and documentation of the keyword.
    pub row: KeywordRow,
    /// The action.
    pub apply: Apply,
}

impl Deref for Keyword {
    type Target = KeywordRow;

    fn deref(&self) -> &KeywordRow {
        &self.row
    }
}

impl Keyword {
    /// Whether the keyword has an effect in Weir.
    pub fn is_supported(&self) -> bool {
        !matches!(self.apply, Apply::Unsupported | Apply::Removed(..))
    }
}

/// A row with default properties.
pub(crate) const fn row(
    name: &'static str,
    places: Where,
    signature: &'static str,
    doc: &'static str,
    apply: Apply,
) -> Keyword {
    let row = KeywordRow {
        name,
        places,
        signature,
        negatable: false,
        lenient: Lenient::NEVER,
        once: None,
        doc,
        support: Support::Full,
    };
    Keyword { row, apply }
}

/// The action of a statement's keyword.
pub fn apply_of(statement: &Statement) -> Apply {
    statement.apply.downcast_ref().copied().unwrap_or(Apply::Unsupported)
}

/// A row for a proxy setting.
pub const fn proxy(
    name: &'static str,
    places: Where,
    signature: &'static str,
    doc: &'static str,
    apply: for<'a> fn(&mut ProxySettings<'a>, &mut Args<'a, '_>) -> Outcome,
) -> Keyword {
    row(name, places, signature, doc, Apply::Proxy(apply))
}

/// A row for a global setting.
pub const fn global(
    name: &'static str,
    signature: &'static str,
    doc: &'static str,
    apply: for<'a> fn(&mut GlobalSettings<'a>, &mut Args<'a, '_>) -> Outcome,
) -> Keyword {
    row(name, Where::GLOBAL, signature, doc, Apply::Global(apply))
}

/// A row for a line that is compiled once all names are known.
pub const fn rule(name: &'static str, places: Where, signature: &'static str, doc: &'static str) -> Keyword {
    row(name, places, signature, doc, Apply::Rule)
}

/// A row for a keyword without effect, with the reason.
pub const fn ineffective(name: &'static str, places: Where, reason: &'static str) -> Keyword {
    row(name, places, "...", "accepted with a warning", Apply::Ineffective(reason))
        .negatable()
        .without_effect(reason)
}

/// A row for a removed keyword, with its replacement.
pub const fn removed(name: &'static str, places: Where, way_out: &'static str) -> Keyword {
    removed_since(name, places, "2.1", way_out)
}

/// A row for a removed keyword, with the HAProxy version that removed it.
pub const fn removed_since(
    name: &'static str,
    places: Where,
    version: &'static str,
    way_out: &'static str,
) -> Keyword {
    row(name, places, "", "removed", Apply::Removed(version, way_out))
}

/// A row for an unsupported keyword.
pub const fn unsupported(name: &'static str, places: Where) -> Keyword {
    let why = "not supported yet";
    row(name, places, "...", why, Apply::Unsupported).negatable().without_effect(why)
}

impl Keyword {
    /// Allows `no` and `default` before the keyword.
    pub const fn negatable(mut self) -> Self {
        self.row.negatable = true;
        self
    }

    /// Parses numbers as HAProxy's `atol` does: up to the first byte that is not a digit.
    pub const fn lenient_numbers(mut self) -> Self {
        self.row.lenient.numbers = true;
        self
    }

    /// Ignores words after the last argument.
    pub const fn lenient_words(mut self) -> Self {
        self.row.lenient.more_words = true;
        self
    }

    /// Also allowed in `udp-lb` sections.
    pub const fn or_udp(mut self) -> Self {
        self.row.places = self.row.places.or(Where::UDP_LB);
        self
    }

    /// Allowed once: if there are several lines, only the first applies.
    pub const fn once(mut self) -> Self {
        self.row.once = Some(self.row.name);
        self
    }

    /// Allowed once together with the other keywords that share `name`: if there are several lines, only the first applies.
    pub const fn once_of(mut self, name: &'static str) -> Self {
        self.row.once = Some(name);
        self
    }

    /// Marks the keyword as partially supported, with the reason.
    pub const fn partial(mut self, reason: &'static str) -> Self {
        self.row.support = Support::Partial(reason);
        self
    }

    /// Parsed, with a warning that it has no effect.
    pub const fn without_effect(mut self, reason: &'static str) -> Self {
        self.row.support = Support::None(reason);
        self
    }
}
