//! Traces rules and their conditions (`trace rules`), for all requests or for those selected by `trace rules only`.

use std::fmt::Write;

use http::Name;
use plan::proxy::UseBackend;
use plan::source_text;
use rules::{ExplainedRule, RuleEffect, RuleOutcome, RuleSet, Stage};
use runtime::trace::{self, Keys, TraceLevel, TraceSource, Verbosity, rules as events};
use sample::explained::ExplainedCondition;
use sample::{Env, Session, Test, Transaction};

use crate::client::Client;
use crate::points::{number, of_session};

/// Runs a rule set. If the request is selected, reports each rule.
#[cold]
pub(crate) fn run(
    client: &Client,
    rules: &RuleSet,
    stage: &mut Stage<'_>,
    start: usize,
) -> (RuleOutcome, usize) {
    if !is_selected(stage.session, stage.transaction.as_deref()) {
        return rules.run(stage, start);
    }
    let keys = keys(stage.session, stage.transaction.as_deref());
    let source = &client.worker.shared.plan.source;
    rules.run_traced(stage, start, &mut |rule| {
        report(&keys, &rule, source_text::line_at(source, rule.file, rule.line));
    })
}

/// Whether the request of `env` is selected.
pub(crate) fn is_wanted(env: &Env<'_>) -> bool {
    env.session.is_some_and(|session| is_selected(session, env.transaction))
}

/// Returns whether a `use_backend` rule applies, and reports the result.
#[cold]
pub(crate) fn applies(rule: &UseBackend, env: &Env<'_>) -> bool {
    let condition = rule.condition.as_ref().map(|condition| condition.explain(env, true));
    let applies = condition.as_ref().is_none_or(|condition| condition.test == Test::Yes);
    let Some(session) = env.session else { return applies };
    let (event, message) = match applies {
        true => (events::APPLIED, "use_backend applies"),
        false => (events::SKIPPED, "use_backend does not apply"),
    };
    let detail = |_: Verbosity, out: &mut String| push_condition(condition.as_ref(), out);
    let keys = keys(session, env.transaction);
    trace::report(TraceSource::Rules, event, TraceLevel::User, &keys, message, &detail);
    applies
}

fn is_selected(session: &Session, transaction: Option<&Transaction>) -> bool {
    let Some(filter) = trace::request_filter() else { return true };
    let has_value = |name: &str, value: &[u8]| {
        let name = Name::new(name.as_bytes());
        transaction.is_some_and(|own| own.request.values(&name).any(|own| own == value))
    };
    filter.matches(session.connection_source().ip(), has_value)
}

fn keys(session: &Session, transaction: Option<&Transaction>) -> Keys {
    let keys = of_session(session);
    let Some(transaction) = transaction else { return keys };
    Keys {
        stream: transaction.id,
        backend: transaction.backend.as_ref().map_or(0, |backend| number(&**backend)),
        ..keys
    }
}

fn report(keys: &Keys, rule: &ExplainedRule, text: &str) {
    let (event, message) = match &rule.effect {
        RuleEffect::None => (events::SKIPPED, "rule does not apply"),
        RuleEffect::Undecided => (events::SKIPPED, "rule waits for data"),
        RuleEffect::Applied(_) | RuleEffect::Skipped => (events::APPLIED, "rule applied"),
        RuleEffect::Accepts => (events::ENDED, "rule ends its rule set"),
        RuleEffect::Ends(_) => (events::ENDED, "rule ends the request"),
    };
    let detail = |verbosity: Verbosity, out: &mut String| {
        let _ = write!(out, "{}:{}", rule.file, rule.line);
        if !verbosity.shows_message() {
            return;
        }
        let _ = write!(out, " {text}");
        push_condition(rule.condition.as_ref(), out);
        if let RuleEffect::Applied(text) | RuleEffect::Ends(text) = &rule.effect
            && !text.is_empty()
        {
            let _ = write!(out, " => {text}");
        }
    };
    trace::report(TraceSource::Rules, event, TraceLevel::User, keys, message, &detail);
}

/// Appends the terms that decided a condition.
fn push_condition(condition: Option<&ExplainedCondition>, out: &mut String) {
    for term in condition.iter().flat_map(|condition| &condition.terms) {
        let result = match term.test {
            Test::Yes => "true",
            Test::No => "false",
            Test::Wait => "undecided",
        };
        let joint = if out.ends_with(": ") { "" } else { " | " };
        let _ = write!(out, "{joint}{result}: {term}");
    }
}
