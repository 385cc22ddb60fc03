//! The text of an explanation: one block for each rule set, one entry for each rule, and the result.

use std::fmt::Write as _;

use plan::Plan;
use plan::source_text::{self, PlacedSection, SourceLine};
use rules::{ExplainedRule, RuleEffect};
use sample::Test;
use sample::explained::{ExplainedCondition, ExplainedTerm};

/// The text so far.
pub(crate) struct Explanation<'a> {
    plan: &'a Plan,
    text: String,
    /// The place and the response of the last rule that ended something.
    ended: String,
}

impl<'a> Explanation<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        Self { plan, text: String::new(), ended: String::new() }
    }

    /// Adds a line with a name and a value.
    pub(crate) fn fact(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.text, "{name:<9} {value}");
    }

    /// Begins a block.
    pub(crate) fn heading(&mut self, title: &str) {
        let _ = writeln!(self.text, "\n{title}");
    }

    /// Begins the entry of a configuration line.
    pub(crate) fn heading_of_line(&mut self, section: &PlacedSection, line: &SourceLine) {
        let _ = writeln!(self.text, "  {}:{}  {}", section.file, section.number(line), line.text);
    }

    /// Adds a line to the entry of a rule.
    pub(crate) fn detail(&mut self, mark: &str, text: &str) {
        let line = format!("      {mark:<6} {text}");
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    /// Adds the result.
    pub(crate) fn result(&mut self, text: &str) {
        let _ = writeln!(self.text, "\nresult    {text}");
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// The end of the request by the last rule.
    pub(crate) fn end_of_last_rule(&self) -> String {
        self.ended.clone()
    }

    /// The name and the place of a proxy section; `kind` is `frontend` or `backend`, and also finds `listen` sections.
    pub(crate) fn place_of(&self, kind: &str, name: &str) -> String {
        match self.section(kind, name).and_then(|section| Some((section, section.lines.first()?))) {
            Some((section, first)) => format!("{name} ({}:{})", section.file, section.number(first)),
            None => name.to_owned(),
        }
    }

    /// The section of a proxy.
    fn section(&self, kind: &str, name: &str) -> Option<&'a PlacedSection> {
        let is_it = |section: &&PlacedSection| {
            *section.name == *name && (*section.kind == *kind || &*section.kind == "listen")
        };
        self.plan.source.iter().find(is_it)
    }

    /// The lines of a proxy section that begin with `keyword`, with the section.
    pub(crate) fn lines(
        &self,
        kind: &str,
        name: &str,
        keyword: &str,
    ) -> Vec<(&'a PlacedSection, &'a SourceLine)> {
        let Some(section) = self.section(kind, name) else { return Vec::new() };
        let lines = section.lines.iter().filter(|line| line.keyword == keyword);
        lines.map(|line| (section, line)).collect()
    }

    /// Adds a rule with its condition and effect.
    pub(crate) fn rule(&mut self, rule: &ExplainedRule) {
        let text = source_text::line_at(&self.plan.source, rule.file, rule.line);
        if rule.file.is_empty() {
            let _ = writeln!(self.text, "  (added by an option)");
        } else {
            let _ = writeln!(self.text, "  {}:{}  {text}", rule.file, rule.line);
        }
        if let Some(condition) = &rule.condition {
            self.condition(condition);
        }
        match &rule.effect {
            RuleEffect::None => {}
            RuleEffect::Undecided => self.detail("waits", "for data that this explanation does not have"),
            RuleEffect::Applied(text) if text.is_empty() => self.detail("does", ""),
            RuleEffect::Applied(text) => self.detail("does", text),
            RuleEffect::Skipped => self.detail("skip", "the action has side effects and is not run"),
            RuleEffect::Accepts => self.detail("ends", "the rest of these rules is skipped"),
            RuleEffect::Ends(text) => {
                self.detail("ends", text);
                self.ended = match rule.file {
                    "" => text.clone(),
                    file => format!("{text}, by {file}:{}", rule.line),
                };
            }
        }
    }

    /// Adds a condition: each term that was evaluated, with its values.
    pub(crate) fn condition(&mut self, condition: &ExplainedCondition) {
        if condition.unless {
            let is = if condition.test == Test::Yes {
                "false, so the rule applies"
            } else {
                "true, so the rule does not apply"
            };
            condition.terms.iter().for_each(|term| self.term(term));
            self.detail(mark(condition.test), &format!("unless: the condition is {is}"));
            return;
        }
        condition.terms.iter().for_each(|term| self.term(term));
    }

    fn term(&mut self, term: &ExplainedTerm) {
        self.detail(mark(term.test), &term.to_string());
    }
}

fn mark(test: Test) -> &'static str {
    match test {
        Test::Yes => "true",
        Test::No => "false",
        Test::Wait => "waits",
    }
}
