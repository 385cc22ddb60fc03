//! HAProxy's wording of rule errors for the one-line form, which contains the proxy and the rule. `rule::compile` applies it; the
//! parsers create the texts.

use diag::{Diagnostic, suggest};
use sample::{Scope, Word};

use crate::context::Ruleset;
use crate::reply::WORDS;

/// The rule that contains an error.
pub(crate) struct RulePlace<'a> {
    /// The rule set of the rule.
    pub(crate) set: Ruleset,
    /// The action of the rule, including parentheses, such as `set-var(txn.a)`.
    pub(crate) action: &'a str,
    /// The scope of the rule, which includes its proxy.
    pub(crate) scope: &'a Scope<'a>,
}

impl RulePlace<'_> {
    /// An error in the action or its arguments.
    pub(crate) fn in_arguments(&self, error: Diagnostic) -> Diagnostic {
        let Self { set, action, scope } = self;
        let set = set.name();
        if !self.is_http() {
            let named = action.starts_with("track-sc") || *action == "capture";
            return if named { error.wrap_line(&format!("'{set} {action}' : "), "") } else { error };
        }
        let owner = owner(scope);
        error.wrap_line(&format!("error detected in {owner} while parsing '{set} {action}' rule : "), ".")
    }

    /// An error in the condition that begins with `word`.
    pub(crate) fn in_condition(&self, error: Diagnostic, word: &str) -> Diagnostic {
        let Self { set, action, scope } = self;
        let (set, owner) = (set.name(), owner(scope));
        if !self.is_http() {
            let before =
                format!("'{set} {action}' : error detected in {owner} while parsing '{word}' condition : ");
            return error.wrap_line(&before, "");
        }
        if *action == "redirect" {
            return self.in_arguments(error.wrap_line("error in condition: ", ""));
        }
        error.wrap_line(&format!("error detected while parsing an '{set} {action}' condition : "), ".")
    }

    /// A word that is neither an argument nor the beginning of a condition.
    pub(crate) fn unexpected(&self, word: Word<'_>) -> Diagnostic {
        let Self { set, action, scope } = self;
        let (set, text) = (set.name(), word.text);
        let is_reply = matches!(*action, "deny" | "tarpit" | "return");
        let options = ["if", "unless"].into_iter().chain(WORDS.into_iter().filter(|_| is_reply));
        Diagnostic::alert(format!("unexpected `{text}`; only `if` or `unless` may follow"))
            .at(word.span)
            .did_you_mean(suggest(text, options))
            .haproxy(if self.is_http() {
                format!(
                    ": '{set} {action}' expects either 'if' or 'unless' followed by a condition but found '{text}'."
                )
            } else {
                format!("'{set} {action}' only accepts 'if' or 'unless', in {} (got '{text}')", owner(scope))
            })
    }

    fn is_http(&self) -> bool {
        self.set.is_http()
    }
}

/// The proxy in HAProxy's notation: `frontend 'web'`.
pub(crate) fn owner(scope: &Scope<'_>) -> String {
    let Some(proxy) = scope.proxy else { return "section".to_owned() };
    let kind = match (proxy.is_frontend, proxy.is_backend) {
        (true, true) => "proxy",
        (true, false) => "frontend",
        _ => "backend",
    };
    format!("{kind} '{}'", proxy.name)
}
