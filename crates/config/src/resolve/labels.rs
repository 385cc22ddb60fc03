//! The labels of rule sets and the jumps to them.

use diag::Diagnostic;
use rules::{Rule, RuleSet, Ruleset};

use crate::draft::Statement;
use crate::draft::row::Outcome;
use crate::resolve::ResolveContext;
use crate::resolve::rule_sets::CompiledRules;

/// Records the jumps and labels of a rule.
///
/// # Errors
/// The set already has a label of that name.
pub(crate) fn note(
    rules: &mut CompiledRules,
    kind: Ruleset,
    rule: &Rule,
    set: fn(&mut CompiledRules) -> &mut RuleSet,
    statement: &Statement,
) -> Outcome {
    if let Some(label) = rule.jumps_to() {
        rules.open_jumps.entry((kind as u16, label.into())).or_insert(statement.span);
    }
    let Some(label) = rule.label() else { return Ok(()) };
    if set(rules).has_label(label) {
        let label = String::from_utf8_lossy(label);
        return Err(Diagnostic::alert(format!("the label `{label}` is already defined")).at(statement.span));
    }
    rules.open_jumps.remove(&(kind as u16, label.into()));
    Ok(())
}

/// Reports the jumps without a label further down.
pub(crate) fn check(rules: &CompiledRules, context: &mut ResolveContext<'_>) {
    for ((_, label), span) in &rules.open_jumps {
        let label = String::from_utf8_lossy(label);
        let error = Diagnostic::alert(format!("there is no label `{label}` after this rule"));
        context.diagnostics.push(error.at(*span).help("a jump only goes forwards, within its rule set"));
    }
}
