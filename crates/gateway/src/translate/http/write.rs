//! Writes the frontends of HTTP listeners.

use crate::text::{Text, line, quote};
use crate::translate::context::Context;

use super::table::{Candidate, NONE, Table};
use super::{HttpRule, RuleTarget};

/// A rule that is attached to listeners.
pub(crate) struct Attached<'r, 'a> {
    pub(crate) rule: &'r HttpRule<'a>,
    /// The listeners with the hostnames.
    pub(crate) hosts: Vec<(usize, Vec<String>)>,
}

/// A frontend of HTTP listeners with the same address and port.
pub(crate) struct Frontend {
    pub(crate) name: String,
    /// The `bind` lines, and those about all listeners.
    pub(crate) binds: Vec<String>,
    pub(crate) is_tls: bool,
    /// The listeners with their hostnames.
    pub(crate) listeners: Vec<(usize, String)>,
}

/// Writes a frontend.
pub(crate) fn write(
    context: &mut Context<'_>,
    text: &mut Text,
    frontend: Frontend,
    rules: &[Attached<'_, '_>],
) {
    let Frontend { name, binds, is_tls, listeners } = frontend;
    text.section("frontend", &name);
    binds.iter().for_each(|bind| text.line(bind));
    text.line("mode http");
    text.line("option forwardfor");
    line!(text, "http-request set-header x-forwarded-proto {}", if is_tls { "https" } else { "http" });
    let mut table = Table::new(listeners);
    for Attached { rule, hosts } in rules {
        for (listener, names) in hosts {
            for host in names {
                for own in &rule.matches {
                    let candidate = Candidate {
                        target: &rule.label,
                        backend: rule.only_backend(),
                        rule: own,
                        age: rule.age,
                        needs_prefix: rule.filters.needs_prefix
                            || rule.targets.iter().any(|target| target.filters.needs_prefix),
                    };
                    table.add(*listener, host, candidate);
                }
            }
        }
    }
    let targets = table.write(context, text, &name, is_tls);
    let mut blocks = Blocks { is_tls, ..Blocks::default() };
    for Attached { rule, .. } in rules.iter().filter(|own| targets.contains(&*own.rule.label)) {
        blocks.rule(text, rule);
    }
    line!(text, "http-request label {NONE}");
    text.line("http-request return status 404");
    blocks.write_responses(text);
    text.line("use_backend %[var(txn.backend)]");
}

/// The blocks of response rules.
#[derive(Default)]
struct Blocks {
    is_tls: bool,
    targets: Vec<(String, Vec<String>)>,
    responses: Vec<(String, Vec<String>)>,
    cors: Vec<(String, Vec<String>)>,
}

impl Blocks {
    /// Writes the block of a rule.
    fn rule(&mut self, text: &mut Text, rule: &HttpRule<'_>) {
        let HttpRule { label, filters, .. } = rule;
        line!(text, "http-request label {}", quote(label));
        if let Some(cors) = &filters.cors {
            line!(text, "http-request set-var(txn.cors) str({label})");
            self.cors.push((label.clone(), cors.response.clone()));
            cors.request.iter().for_each(|own| line!(text, "http-request {own}"));
        }
        for own in &rule.settings {
            line!(text, "http-request {own}");
            if is_final(own) {
                return;
            }
        }
        if !filters.redirect.is_empty() {
            self.redirect(text, &filters.redirect);
            return;
        }
        for own in filters.request.iter().chain(&rule.mirrors) {
            line!(text, "http-request {own}");
            if is_final(own) {
                return;
            }
        }
        if !filters.response.is_empty() {
            line!(text, "http-request set-var(txn.response) str({label})");
            self.responses.push((label.clone(), filters.response.clone()));
        }
        self.targets(text, rule);
    }

    fn redirect(&self, text: &mut Text, lines: &[String]) {
        line!(text, "http-request set-var(txn.scheme) str({})", if self.is_tls { "https" } else { "http" });
        lines.iter().for_each(|own| line!(text, "http-request {own}"));
    }

    /// Writes the random choice of a target.
    fn targets(&mut self, text: &mut Text, rule: &HttpRule<'_>) {
        let used: Vec<&RuleTarget> = rule.targets.iter().filter(|target| target.weight > 0).collect();
        let total: u64 = used.iter().map(|target| target.weight).sum();
        let label = |number: usize| format!("{}.{number}", rule.label);
        if used.len() > 1 {
            line!(text, "http-request set-var(txn.draw) rand({total})");
            let mut sum = 0;
            for (number, target) in used.iter().enumerate().skip(1) {
                sum += target.weight;
                let condition = format!("{{ var(txn.draw) -m int lt {sum} }}");
                line!(text, "http-request jump {} if {condition}", quote(&label(number)));
            }
        }
        for (number, target) in used.iter().enumerate() {
            if number > 0 {
                line!(text, "http-request label {}", quote(&label(number)));
            }
            self.target(text, target, label(number));
        }
        if used.is_empty() {
            text.line("http-request return status 500");
        }
    }

    fn target(&mut self, text: &mut Text, target: &RuleTarget, label: String) {
        let RuleTarget { backend, filters, mirrors, .. } = target;
        let Some(backend) = backend else {
            text.line("http-request return status 500");
            return;
        };
        if !filters.redirect.is_empty() {
            self.redirect(text, &filters.redirect);
            return;
        }
        for own in filters.request.iter().chain(mirrors) {
            line!(text, "http-request {own}");
        }
        if !filters.response.is_empty() {
            line!(text, "http-request set-var(txn.target) str({label})");
            self.targets.push((label, filters.response.clone()));
        }
        line!(text, "http-request set-var(txn.backend) str({backend})");
        text.line("http-request allow");
    }

    /// Writes the rules for responses.
    fn write_responses(self, text: &mut Text) {
        if !self.targets.is_empty() || !self.responses.is_empty() {
            text.line("http-response jump '%[var(txn.target)]'");
            text.line("http-response jump '%[var(txn.response)]'");
            text.line("http-response allow");
            write_blocks(text, "http-response", &self.targets, "jump '%[var(txn.response)]'");
            write_blocks(text, "http-response", &self.responses, "allow");
        }
        if !self.cors.is_empty() {
            text.line("http-after-response jump '%[var(txn.cors)]'");
            text.line("http-after-response allow");
            write_blocks(text, "http-after-response", &self.cors, "allow");
        }
    }
}

/// Whether rules after this one would never run.
fn is_final(line: &str) -> bool {
    let ends = line.starts_with("redirect ") || line.starts_with("return ");
    ends && !line.contains(" if ") && !line.contains(" unless ")
}

fn write_blocks(text: &mut Text, set: &str, blocks: &[(String, Vec<String>)], end: &str) {
    for (label, lines) in blocks {
        line!(text, "{set} label {}", quote(label));
        lines.iter().for_each(|own| line!(text, "{set} {own}"));
        line!(text, "{set} {end}");
        if end != "allow" {
            line!(text, "{set} allow");
        }
    }
}
