//! A table row for a server parameter, and value parsers shared by several of them.

use std::time::Duration;

use base::keyword_support::Support;
use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;

use crate::draft::args::Args;
use crate::draft::row::Outcome;
use crate::draft::server::ServerDraft;

/// A parameter of server lines.
pub struct ServerKeyword {
    /// The name of the parameter.
    pub name: &'static str,
    /// The arguments.
    pub signature: &'static str,
    /// A one-line description.
    pub doc: &'static str,
    /// How completely it is supported.
    pub support: Support,
    pub(crate) apply: for<'a> fn(&mut ServerDraft<'a>, &mut Args<'a, '_>) -> Outcome,
}

pub(crate) const fn row(
    name: &'static str,
    signature: &'static str,
    doc: &'static str,
    apply: for<'a> fn(&mut ServerDraft<'a>, &mut Args<'a, '_>) -> Outcome,
) -> ServerKeyword {
    ServerKeyword { name, signature, doc, support: Support::Full, apply }
}

impl ServerKeyword {
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

pub(crate) fn text<'a>(value: &mut Option<&'a str>, args: &mut Args<'a, '_>) -> Outcome {
    *value = Some(args.value()?);
    Ok(())
}

pub(crate) fn number<T>(value: &mut T, args: &mut Args<'_, '_>, low: T, high: T) -> Outcome
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    let word = args.value()?;
    *value = args.number(word, low, high)?;
    Ok(())
}

pub(crate) fn delay(value: &mut Option<Duration>, args: &mut Args<'_, '_>) -> Outcome {
    let word = args.value()?;
    *value = Some(args.time(word, Milliseconds)?);
    Ok(())
}

/// The time between two checks.
pub(crate) fn interval(args: &mut Args<'_, '_>) -> Result<Duration, Diagnostic> {
    let name = args.last().as_str();
    let word = args.value()?;
    let time = args.time(word, Milliseconds)?;
    let server = args.statement.arguments().first().map_or("", |name| name.as_str());
    if time.is_zero() {
        return Err(args
            .wrong(format!("`{name}` must not be zero"))
            .haproxy(format!("invalid value 0 for argument '{name}' of server {server}.")));
    }
    args.warn_if_small(word, name, &format!("server '{server}'"));
    Ok(time)
}
