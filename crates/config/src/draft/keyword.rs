//! A keyword as a row of a table.
//!
//! The tables are in [`crate::tables`]; `find` looks lines up in them, `-dK` and the keyword
//! reference print the rows.

use std::ops::Deref;

use base::keyword_support::Support;
use syntax::{Environment, Word};

use crate::draft::acme::AcmeDraft;
use crate::draft::args::Args;
use crate::draft::cache::CacheDraft;
use crate::draft::fcgi::FcgiDraft;
use crate::draft::mail::MailersDraft;
use crate::draft::resolvers::ReadResolvers;
use crate::draft::row::{KeywordRow, Lenient, Outcome, Where};
use crate::draft::section::Statement;
use crate::draft::settings::{GlobalSettings, ProxySettings};
use crate::draft::spoe::AgentDraft;

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
    Proxy(for<'a> fn(&mut ProxySettings<'a>, &mut Args<'a, '_>) -> Outcome),
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

/// A row of a keyword table.
pub struct Keyword {
    /// Its name, places, arguments and documentation.
    pub row: KeywordRow,
    /// What is done with it.
    pub apply: Apply,
}

impl Deref for Keyword {
    type Target = KeywordRow;

    fn deref(&self) -> &KeywordRow {
        &self.row
    }
}

impl Keyword {
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

/// The action for a statement.
pub fn apply_of(statement: &Statement) -> Apply {
    statement.apply.downcast_ref().copied().unwrap_or(Apply::Unsupported)
}

/// A row that changes a proxy.
pub const fn proxy(
    name: &'static str,
    places: Where,
    signature: &'static str,
    doc: &'static str,
    apply: for<'a> fn(&mut ProxySettings<'a>, &mut Args<'a, '_>) -> Outcome,
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
    row(name, places, "...", "accepted with a warning", Apply::Ineffective(reason))
        .negatable()
        .without_effect(reason)
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
    row(name, places, "...", why, Apply::Unsupported).negatable().without_effect(why)
}

impl Keyword {
    /// Allows `no` and `default` in front.
    pub const fn negatable(mut self) -> Self {
        self.row.negatable = true;
        self
    }

    /// Reads numbers as HAProxy's `atol` does: up to the first byte that is no digit.
    pub const fn lenient_numbers(mut self) -> Self {
        self.row.lenient.numbers = true;
        self
    }

    /// Passes over words behind the last argument.
    pub const fn lenient_words(mut self) -> Self {
        self.row.lenient.more_words = true;
        self
    }

    /// May be said once; the first line counts.
    pub const fn once(mut self) -> Self {
        self.row.once = Some(self.row.name);
        self
    }

    /// May be said once, as may others with `name`; the first line of them counts.
    pub const fn once_of(mut self, name: &'static str) -> Self {
        self.row.once = Some(name);
        self
    }

    /// Works but for what the text says.
    pub const fn partial(mut self, reason: &'static str) -> Self {
        self.row.support = Support::Partial(reason);
        self
    }

    /// Is read, with a warning that it has no effect.
    pub const fn without_effect(mut self, reason: &'static str) -> Self {
        self.row.support = Support::None(reason);
        self
    }
}
