//! Rule sets with a report about each rule: explanations of requests that are not sent, and traces of requests that are.

use sample::condition::Condition;
use sample::explained::{ExplainedCondition, shown};
use sample::expression::Expression;
use sample::vars::Var;
use sample::{Env, Format, Scratch, Test, Value, track};

use crate::action::{Action, Number};
use crate::apply::{Applied, apply, apply_to_variable};
use crate::reply::{Content, Reply};
use crate::rule::{Position, RuleSet, Runner, count_failed_rewrite};
use crate::stage::{RuleOutcome, Stage};

/// A rule that was evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedRule {
    /// The file of the rule; empty for rules that Weir adds.
    pub file: &'static str,
    /// The line of the rule.
    pub line: u32,
    /// The condition, if the rule has one.
    pub condition: Option<ExplainedCondition>,
    /// The effect.
    pub effect: RuleEffect,
}

/// The effect of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleEffect {
    /// The condition is false.
    None,
    /// The condition depends on data that has not arrived.
    Undecided,
    /// The action was executed. The text is the value that it used or the part of the message that it changed, and may be empty.
    Applied(String),
    /// The action was not executed, because it has side effects.
    Skipped,
    /// The rule accepts the message: the rest of the set is skipped.
    Accepts,
    /// The rule ends the request. The text is the response.
    Ends(String),
}

impl RuleSet {
    /// Runs the rules like [`RuleSet::run`], and reports each rule to `report`.
    pub fn run_traced(
        &self,
        stage: &mut Stage<'_>,
        start: usize,
        report: &mut dyn FnMut(ExplainedRule),
    ) -> (RuleOutcome, usize) {
        self.run_with(stage, start, &mut Reporter { set: self, report, condition: None, is_live: true })
    }

    /// Runs the rules without side effects: actions that affect anything but the stage are reported and skipped, stick table
    /// entries are only read, and conditions with side effects count as false.
    pub fn explain(&self, stage: &mut Stage<'_>, report: &mut dyn FnMut(ExplainedRule)) -> RuleOutcome {
        self.run_with(stage, 0, &mut Reporter { set: self, report, condition: None, is_live: false }).0
    }
}

struct Reporter<'a> {
    set: &'a RuleSet,
    report: &'a mut dyn FnMut(ExplainedRule),
    /// The condition of the rule that was tested last.
    condition: Option<ExplainedCondition>,
    /// Whether actions with side effects are executed.
    is_live: bool,
}

impl Reporter<'_> {
    fn report(&mut self, number: usize, effect: RuleEffect) {
        let (file, line): Position = self.set.position(number);
        (self.report)(ExplainedRule { file, line, condition: self.condition.take(), effect });
    }
}

impl Runner for Reporter<'_> {
    fn test(&mut self, number: usize, condition: Option<&Condition>, env: &Env<'_>) -> Test {
        self.condition = condition.map(|condition| condition.explain(env, self.is_live));
        let test = self.condition.as_ref().map_or(Test::Yes, |condition| condition.test);
        match test {
            Test::Yes => {}
            Test::No => self.report(number, RuleEffect::None),
            Test::Wait => self.report(number, RuleEffect::Undecided),
        }
        test
    }

    fn apply_to_variable(&mut self, number: usize, action: &Action, env: &Env<'_>) -> bool {
        let (var, value) = match action {
            Action::SetVar { var, value, .. } => (var, value_if_pure(value, env)),
            Action::SetVarFormat { var, value, .. } => (var, text_if_pure(value, env)),
            Action::UnsetVar(var) => (var, Some(String::new())),
            _ => return false,
        };
        let is_pure = value.is_some() && !matches!(var, Var::Process(_));
        if self.is_live || is_pure {
            apply_to_variable(action, env);
            self.report(number, RuleEffect::Applied(value.unwrap_or_default()));
        } else {
            self.report(number, RuleEffect::Skipped);
        }
        true
    }

    fn apply(&mut self, number: usize, action: &Action, stage: &mut Stage<'_>) -> Applied {
        if let (Action::Track { counter, key, table }, false) = (action, self.is_live) {
            let text = observe(stage, *counter, key, table);
            self.report(number, RuleEffect::Applied(text));
            return Applied::Next;
        }
        if !self.is_live && !is_pure(action) {
            self.report(number, RuleEffect::Skipped);
            return Applied::Next;
        }
        let text = used_value(action, stage);
        let applied = apply(action, stage);
        let effect = match &applied {
            Applied::Next | Applied::Strict(_) => RuleEffect::Applied(changed(action, stage).unwrap_or(text)),
            Applied::Hold(_) => RuleEffect::Applied(text),
            Applied::Jump(label) => RuleEffect::Applied(format!("jumps to `{}`", shown(label))),
            Applied::Failed => RuleEffect::Applied("the rewrite failed".into()),
            Applied::Wait => RuleEffect::Undecided,
            Applied::Accept => RuleEffect::Accepts,
            Applied::Final(_) => RuleEffect::Ends(text),
        };
        self.report(number, effect);
        applied
    }

    fn count_failed_rewrite(&mut self, stage: &Stage<'_>) {
        if self.is_live {
            count_failed_rewrite(stage);
        }
    }
}

/// Whether an action only affects the stage, and its expressions have no side effects.
fn is_pure(action: &Action) -> bool {
    let number = |number: &Number| match number {
        Number::Fixed(_) => true,
        Number::Made(expression) => !expression.has_side_effects(),
    };
    match action {
        Action::Accept
        | Action::Deny(_)
        | Action::Tarpit(_)
        | Action::Return(_)
        | Action::Auth(_)
        | Action::Reject
        | Action::SendRetry
        | Action::CloseServer
        | Action::SilentDrop { .. }
        | Action::UseService(_)
        | Action::SwitchMode(_)
        | Action::StrictMode(_)
        | Action::DelHeader(_)
        | Action::SetStatus { .. }
        | Action::SetLogLevel(_)
        | Action::Normalize(_)
        | Action::DisableRetry
        | Action::UnsetVar(_)
        | Action::Label(_)
        | Action::Nothing => true,
        Action::Jump(label) => !label.has_side_effects(),
        // The location is only evaluated if it may be empty.
        Action::Redirect(redirect) => !redirect.may_pass() || !redirect.has_side_effects(),
        Action::AddHeader { value, .. }
        | Action::SetHeader { value, .. }
        | Action::ReplaceHeader { with: value, .. }
        | Action::ReplaceUri { with: value, .. }
        | Action::SetPart { value, .. } => !value.has_side_effects(),
        Action::SetAddress { value, .. }
        | Action::SetPriorityClass(value)
        | Action::SetPriorityOffset(value)
        | Action::Capture { value, .. } => !value.has_side_effects(),
        Action::BinaryHeaders { value, .. } => !value.has_side_effects(),
        Action::SetTimeout { value, .. }
        | Action::SetDeadline(value)
        | Action::SetRetries(value)
        | Action::SetServerTos(value)
        | Action::SetServerMark(value) => number(value),
        Action::SetVar { .. }
        | Action::SetVarFormat { .. }
        | Action::AttachServer { .. }
        | Action::SetTos(_)
        | Action::SetMark(_)
        | Action::ChangeList { .. }
        | Action::WaitForBody { .. }
        | Action::WaitForHandshake
        | Action::Pause(_)
        | Action::EarlyHint { .. }
        | Action::ExpectProxy
        | Action::ExpectNetscaler
        | Action::DoLog { .. }
        | Action::LimitBandwidth { .. }
        | Action::Resolve { .. }
        | Action::Script(_)
        | Action::SendSpoeGroup(_)
        | Action::Mirror { .. }
        | Action::UseCache { .. }
        | Action::StoreInCache(_)
        | Action::PurgeCache { .. }
        | Action::Track { .. }
        | Action::ChangeEntry { .. } => false,
    }
}

fn value_if_pure(value: &Expression, env: &Env<'_>) -> Option<String> {
    (!value.has_side_effects()).then(|| value.explain(env))
}

fn text_if_pure(value: &Format, env: &Env<'_>) -> Option<String> {
    (!value.has_side_effects()).then(|| {
        let mut text = Scratch::new();
        value.render(env, &mut text);
        format!("`{}`", shown(&text))
    })
}

/// The value that an action uses, or its response, before it is executed. Values with side effects are not shown.
fn used_value(action: &Action, stage: &Stage<'_>) -> String {
    let env = stage.env();
    let field = |name: &[u8], value: &Format| {
        text_if_pure(value, &env).map(|value| format!("{}: {value}", String::from_utf8_lossy(name)))
    };
    let text = match action {
        Action::AddHeader { name, value } => field(name, value),
        Action::SetHeader { shown, value, .. } => field(shown, value),
        Action::SetAddress { value, .. }
        | Action::SetPriorityClass(value)
        | Action::SetPriorityOffset(value)
        | Action::Capture { value, .. } => value_if_pure(value, &env),
        Action::Track { key, .. } => value_if_pure(key, &env),
        Action::Deny(reply) | Action::Tarpit(reply) | Action::Return(reply) => Some(response(reply)),
        Action::Redirect(redirect) if redirect.has_side_effects() => {
            Some("a redirect whose location has side effects".into())
        }
        Action::Redirect(redirect) => {
            let mut head = http::Head::new();
            redirect.render(&env, &mut head);
            let location = head.get(&http::Name::new(b"location")).map(shown).unwrap_or_default();
            Some(format!("status {}, location `{location}`", head.status()))
        }
        Action::Auth(realm) => Some(format!("asks for a password, realm `{realm}`")),
        Action::Reject => Some("closes the connection".into()),
        Action::SilentDrop { .. } => Some("drops the connection".into()),
        Action::UseService(_) => Some("a service answers".into()),
        _ => None,
    };
    text.unwrap_or_default()
}

fn response(reply: &Reply) -> String {
    match &reply.content {
        Content::Nothing => "closes the connection without a response".into(),
        _ => format!("status {}", reply.status),
    }
}

/// The request line after an action that changes it.
fn changed(action: &Action, stage: &Stage<'_>) -> Option<String> {
    let transaction = stage.transaction.as_deref()?;
    match action {
        Action::SetPart { .. } | Action::ReplaceUri { .. } | Action::Normalize(_) => {
            let request = &transaction.request;
            Some(format!("`{} {}`", shown(request.method()), shown(request.target())))
        }
        _ => None,
    }
}

/// Makes the entry of a key available to expressions, without counting anything.
fn observe(
    stage: &mut Stage<'_>,
    counter: u8,
    key: &Expression,
    table: &std::sync::Arc<state::table::Table>,
) -> String {
    if key.has_side_effects() {
        return "the key has side effects and was not evaluated".into();
    }
    let mut bytes = None;
    let text = {
        let env = stage.env();
        let text = key.explain(&env);
        key.eval(&env).and_then(|value: Value<'_>| {
            track::with_key(value, table.settings.kind, |key| bytes = Some(key.to_vec()))
        });
        text
    };
    let Some(bytes) = bytes else { return "there is no key".into() };
    let now = stage.now_ms;
    let is_known = match &mut stage.transaction {
        Some(transaction) => transaction.trackers.observe(counter.into(), table, &bytes, now),
        None => {
            let held = stage.session.trackers_to_change();
            held.borrow_mut().observe(counter.into(), table, &bytes, now)
        }
    };
    let entry = if is_known { "has an entry" } else { "has no entry" };
    format!("{text} {entry} in table `{}`", table.name())
}
