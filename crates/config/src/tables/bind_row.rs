//! A table row for a `bind` parameter.

use base::keyword_support::Support;

use crate::draft::args::Args;
use crate::draft::bind::BindDraft;
use crate::draft::row::Outcome;

/// A parameter of bind lines.
pub struct BindKeyword {
    /// The name of the parameter.
    pub name: &'static str,
    /// The arguments.
    pub signature: &'static str,
    /// A one-line description.
    pub doc: &'static str,
    /// How completely it is supported.
    pub support: Support,
    pub(crate) apply: for<'a> fn(&mut BindDraft<'a>, &mut Args<'a, '_>) -> Outcome,
}

pub(crate) const fn row(
    name: &'static str,
    signature: &'static str,
    doc: &'static str,
    apply: for<'a> fn(&mut BindDraft<'a>, &mut Args<'a, '_>) -> Outcome,
) -> BindKeyword {
    BindKeyword { name, signature, doc, support: Support::Full, apply }
}

impl BindKeyword {
    pub(crate) const fn partial(mut self, reason: &'static str) -> Self {
        self.support = Support::Partial(reason);
        self
    }

    /// Parsed, with a warning that it has no effect.
    pub(crate) const fn without_effect(mut self, reason: &'static str) -> Self {
        self.support = Support::None(reason);
        self
    }
}
