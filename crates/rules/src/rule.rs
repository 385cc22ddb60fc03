//! Rules, rule sets, and their evaluation.

use std::collections::HashMap;
use std::sync::Arc;

use base::keyword_support::Support;
use diag::Diagnostic;
use sample::condition::{Condition, Test};
use sample::transaction::CaptureSlot;
use sample::{Env, Format, Scope, Words};

use crate::action::Action;
use crate::apply::{Applied, apply, apply_to_variable};
use crate::context::{Context, Ruleset};
use crate::intern::intern;
use crate::redirect::Redirect;
use crate::stage::{Final, RuleOutcome, Stage};
use crate::table::{find, unknown as unknown_action};
use crate::wording;

/// An action with its condition.
#[derive(Debug)]
pub struct Rule {
    step: RuleStep,
    position: Position,
}

/// The part of a rule needed for every evaluation.
#[derive(Debug)]
struct RuleStep {
    condition: Option<Condition>,
    action: Action,
}

/// The file and line of a rule, for `last_rule_file` and `last_rule_line`.
pub(crate) type Position = (&'static str, u32);

impl Rule {
    /// Whether no rule after this one is ever evaluated, because this rule ends the evaluation and has no condition.
    pub fn ends_unconditionally(&self) -> bool {
        let ends = match &self.step.action {
            Action::Accept | Action::Deny(_) | Action::Tarpit(_) | Action::Return(_) | Action::Auth(_) => {
                true
            }
            Action::Redirect(redirect) => !redirect.may_pass(),
            _ => false,
        };
        self.step.condition.is_none() && ends
    }

    /// The label that the rule defines.
    pub fn label(&self) -> Option<&[u8]> {
        match &self.step.action {
            Action::Label(name) => Some(name),
            _ => None,
        }
    }

    /// The label at which the rule continues, if it is always the same.
    pub fn jumps_to(&self) -> Option<&[u8]> {
        match &self.step.action {
            Action::Jump(label) => label.as_constant(),
            _ => None,
        }
    }

    /// The capture slot that the rule fills.
    pub fn capture_slot(&self) -> Option<CaptureSlot> {
        match self.step.action {
            Action::Capture { slot, .. } => Some(slot),
            _ => None,
        }
    }
}

/// The rules of one set of one proxy, in order. Most sets of most proxies are empty, so an empty one is as small as a pointer.
#[derive(Debug, Default)]
pub struct RuleSet(Option<Box<RuleList>>);

/// The rules of a set that is not empty.
#[derive(Debug, Default)]
struct RuleList {
    steps: Vec<RuleStep>,
    /// The location of each rule.
    positions: Vec<Position>,
    /// The index of each `label` rule, keyed by label.
    labels: HashMap<Box<[u8]>, usize>,
    /// Whether any rule is `strict-mode`.
    has_strict_mode: bool,
}

impl RuleSet {
    /// Creates a set of the given rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut set = Self::default();
        rules.into_iter().for_each(|rule| set.push(rule));
        set
    }

    /// Whether a rule defines this label.
    pub fn has_label(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|rules| rules.labels.contains_key(name))
    }

    /// Adds a rule at the end.
    pub fn push(&mut self, rule: Rule) {
        let rules = self.0.get_or_insert_default();
        if let Action::Label(name) = &rule.step.action {
            rules.labels.entry(name.clone()).or_insert(rules.steps.len());
        }
        rules.has_strict_mode |= matches!(rule.step.action, Action::StrictMode(_));
        rules.steps.push(rule.step);
        rules.positions.push(rule.position);
    }

    /// Inserts a first rule that announces HTTP/3 on `port` (RFC 7838, 3), so that the other rules can change the field.
    pub fn announce_http3(&mut self, port: u16) {
        let value = Format::constant(format!("h3=\":{port}\"; ma=86400").as_bytes());
        let name = http::Name::new(b"alt-svc");
        let action = Action::SetHeader { name, shown: b"alt-svc"[..].into(), value };
        let rules = self.0.get_or_insert_default();
        rules.steps.insert(0, RuleStep { condition: None, action });
        rules.positions.insert(0, ("", 0));
        rules.labels.values_mut().for_each(|number| *number += 1);
    }

    #[inline]
    fn steps(&self) -> &[RuleStep] {
        self.0.as_ref().map_or(&[], |rules| &rules.steps)
    }

    /// Whether the set has no rules.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether any rule switches to HTTP mode (`switch-mode`).
    pub fn switches_mode(&self) -> bool {
        self.steps().iter().any(|rule| matches!(rule.action, Action::SwitchMode(_)))
    }

    /// Whether a rule marks packets (`set-fc-mark`, `set-bc-mark`), which requires a capability.
    pub fn sets_marks(&self) -> bool {
        self.steps().iter().any(|rule| matches!(rule.action, Action::SetMark(_) | Action::SetServerMark(_)))
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.steps().len()
    }

    /// Runs the rules from number `start` on. The number returned is that of the rule with which to continue.
    pub fn run(&self, stage: &mut Stage<'_>, start: usize) -> (RuleOutcome, usize) {
        self.run_with(stage, start, &mut Live)
    }

    /// The location of rule `number`.
    ///
    /// # Panics
    /// Without such a rule.
    pub(crate) fn position(&self, number: usize) -> Position {
        self.0.as_ref().map_or(&[][..], |rules| &rules.positions)[number]
    }

    /// Runs the rules with the tests and effects of `runner`.
    #[inline]
    pub(crate) fn run_with(
        &self,
        stage: &mut Stage<'_>,
        start: usize,
        runner: &mut impl Runner,
    ) -> (RuleOutcome, usize) {
        if let Some(transaction) = &mut stage.transaction {
            transaction.waiting_rule = None;
        }
        self.0.as_ref().map_or((RuleOutcome::Done, 0), |rules| rules.run_with(stage, start, runner))
    }
}

impl RuleList {
    #[inline]
    fn run_with(
        &self,
        stage: &mut Stage<'_>,
        start: usize,
        runner: &mut impl Runner,
    ) -> (RuleOutcome, usize) {
        let mut strict = true;
        // A set with many labels may have thousands of rules.
        let earlier = if self.has_strict_mode { start } else { 0 };
        for rule in self.steps.iter().take(earlier) {
            if let Action::StrictMode(on) = rule.action {
                strict = on;
            }
        }
        let mut number = start;
        loop {
            number = match self.next_beyond_variables(stage, number, runner) {
                Ok(Some(number)) => number,
                Ok(None) => return (RuleOutcome::Done, self.steps.len()),
                Err(number) => {
                    self.wait_for(number, stage);
                    // Starts again, because the data for which earlier rules were looking may have arrived by then.
                    return (RuleOutcome::Wait, 0);
                }
            };
            let action = &self.steps[number].action;
            number += 1;
            let outcome = match runner.apply(number - 1, action, stage) {
                Applied::Next => continue,
                Applied::Failed => {
                    runner.count_failed_rewrite(stage);
                    if !strict {
                        continue;
                    }
                    RuleOutcome::Final(Final::Internal)
                }
                Applied::Strict(on) => {
                    strict = on;
                    continue;
                }
                Applied::Jump(label) => {
                    // Only forwards, so that every evaluation ends.
                    number =
                        self.labels.get(&label[..]).copied().filter(|to| *to >= number).unwrap_or(number);
                    continue;
                }
                Applied::Wait => {
                    self.wait_for(number - 1, stage);
                    return (RuleOutcome::Wait, number - 1);
                }
                Applied::Accept => RuleOutcome::Accept,
                Applied::Hold(hold) => {
                    self.wait_for(number - 1, stage);
                    return (RuleOutcome::Hold(hold), number);
                }
                Applied::Final(verdict) => RuleOutcome::Final(verdict),
            };
            if let Some(transaction) = &mut stage.transaction {
                transaction.last_rule = Some(self.positions[number - 1]);
            }
            return (outcome, number);
        }
    }

    /// Records the rule that the caller waits for.
    fn wait_for(&self, number: usize, stage: &mut Stage<'_>) {
        if let Some(transaction) = &mut stage.transaction {
            transaction.waiting_rule = Some(self.positions[number]);
        }
    }

    /// Returns the first rule, from number `start` on, that has a matching condition and an action that does more than change a
    /// variable. An error is the number of a rule that must wait. Conditions change nothing, and variables can be set through the
    /// view, so one view is used for all of these rules.
    #[inline]
    fn next_beyond_variables(
        &self,
        stage: &Stage<'_>,
        start: usize,
        runner: &mut impl Runner,
    ) -> Result<Option<usize>, usize> {
        let env = stage.env();
        for (number, rule) in self.steps.iter().enumerate().skip(start) {
            match runner.test(number, rule.condition.as_ref(), &env) {
                Test::Yes => {}
                Test::No => continue,
                Test::Wait => return Err(number),
            }
            if !runner.apply_to_variable(number, &rule.action, &env) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}

/// The tests and effects of the rules of a set, by the number of the rule.
pub(crate) trait Runner {
    /// Evaluates a condition.
    fn test(&mut self, number: usize, condition: Option<&Condition>, env: &Env<'_>) -> Test;
    /// Executes the action if it only changes a variable, and returns whether it did.
    fn apply_to_variable(&mut self, number: usize, action: &Action, env: &Env<'_>) -> bool;
    /// Executes any other action.
    fn apply(&mut self, number: usize, action: &Action, stage: &mut Stage<'_>) -> Applied;
    /// Counts a failed rewrite.
    fn count_failed_rewrite(&mut self, stage: &Stage<'_>);
}

/// Runs rules for a message. All functions are inlined.
struct Live;

impl Runner for Live {
    #[inline(always)]
    fn test(&mut self, _: usize, condition: Option<&Condition>, env: &Env<'_>) -> Test {
        condition.map_or(Test::Yes, |condition| condition.eval(env))
    }

    #[inline(always)]
    fn apply_to_variable(&mut self, _: usize, action: &Action, env: &Env<'_>) -> bool {
        apply_to_variable(action, env)
    }

    #[inline(always)]
    fn apply(&mut self, _: usize, action: &Action, stage: &mut Stage<'_>) -> Applied {
        apply(action, stage)
    }

    fn count_failed_rewrite(&mut self, stage: &Stage<'_>) {
        count_failed_rewrite(stage);
    }
}

/// Counts a failed rewrite for the frontend and its listener, and for the backend and server if they are known.
pub(crate) fn count_failed_rewrite(stage: &Stage<'_>) {
    stage.session.frontend.frontend.mine().traffic.failed_rewrites.add(1);
    if let Some(listener) = stage.session.listener.mine() {
        listener.traffic.failed_rewrites.add(1);
    }
    let Some(transaction) = stage.transaction.as_deref() else { return };
    if let Some(backend) = &transaction.backend {
        backend.backend.mine().traffic.failed_rewrites.add(1);
    }
    if let Some(server) = &transaction.server {
        server.counters.mine().traffic.failed_rewrites.add(1);
    }
}

/// Compiles the words of a rule after the set's name: action, arguments, condition.
///
/// # Errors
/// An unknown action (with the most similar one), an action that is not allowed in this set, and errors in its arguments or
/// condition.
pub fn compile(set: Ruleset, words: &mut Words<'_>, scope: &Scope<'_>) -> Result<Rule, Diagnostic> {
    let Some(word) = words.next() else {
        return Err(Diagnostic::alert(format!("`{0}` expects an action", set.name()))
            .at(words.end())
            .help(format!("usage: {} <action> [ {{ if | unless }} <condition> ]", set.name()))
            .haproxy(unknown_action(set, "", None, scope)));
    };
    let row = find(set, word, scope)?;
    let place = wording::RulePlace { set, action: word.text, scope };
    let action = (row.parse)(&mut Context { set, row, word, words, scope })
        .map_err(|error| place.in_arguments(error))?;
    if let Support::None(reason) = row.support {
        scope.names.warn(Diagnostic::ineffective(row.name, reason).at(word.span));
    }
    let condition = match words.peek() {
        Some(first) if matches!(first.text, "if" | "unless") => Condition::compile_optional(words, scope)
            .map_err(|error| place.in_condition(error, first.text))?,
        Some(other) => return Err(place.unexpected(other)),
        None => None,
    };
    Ok(finish(action, condition, scope, word.span))
}

/// Compiles the words after the proxy keyword `redirect`.
///
/// # Errors
/// Errors in its arguments or condition.
pub fn compile_redirect(words: &mut Words<'_>, scope: &Scope<'_>) -> Result<Rule, Diagnostic> {
    let span = words.span();
    let before = format!("error detected in {} while parsing redirect rule : ", wording::owner(scope));
    let redirect = Redirect::compile(words, scope, false).map_err(|error| error.wrap_line(&before, "."))?;
    let condition = Condition::compile_optional(words, scope)
        .map_err(|error| error.wrap_line(&format!("{before}error in condition: "), "."))?;
    Ok(finish(Action::Redirect(Arc::new(redirect)), condition, scope, span))
}

fn finish(action: Action, condition: Option<Condition>, scope: &Scope<'_>, span: diag::Span) -> Rule {
    let (file, line) = scope.names.position(span);
    // File names are few and a plan exists about as long as the process, so they are never freed.
    let position = (intern(file), line);
    Rule { step: RuleStep { condition, action }, position }
}
