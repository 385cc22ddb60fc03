//! Advice about ACLs and backends that no line mentions, and backends that cannot answer (`-dD`).
//!
//! A name counts as used if it appears anywhere in a word of another line: in a condition, inside `%[…]`, or after `@`. Lines that
//! choose a backend at run time make every backend count as used.

use std::collections::{HashMap, HashSet};

use diag::{Diagnostic, Severity};

use crate::draft::{Draft, Section, SectionKind, Statement, is_name_character};
use crate::resolve::ResolveContext;

/// Checks the whole configuration, once the states of its proxies exist.
pub(crate) fn names(draft: &Draft, context: &mut ResolveContext<'_>) {
    acls(draft, context);
    backends(draft, context);
}

/// The names in the arguments of a line. The line's own first argument is skipped if it is a definition.
fn names_in(statement: &Statement) -> impl Iterator<Item = &str> {
    let defines = usize::from(matches!(statement.keyword.name, "acl"));
    let words = statement.arguments().iter().skip(defines);
    words
        .flat_map(|word| word.as_str().split(|at: char| !is_name_character(at)))
        .filter(|name| !name.is_empty())
}

/// Reports ACLs that no line of their section uses. ACLs of a `defaults` section may be used by any section.
fn acls(draft: &Draft, context: &mut ResolveContext<'_>) {
    let defaults = |section: &&Section| section.kind == SectionKind::Defaults;
    let inherited: HashSet<&str> = if draft.sections.iter().filter(defaults).any(has_acl) {
        draft.sections.iter().flat_map(|section| &section.statements).flat_map(names_in).collect()
    } else {
        HashSet::new()
    };
    for section in draft.sections.iter().filter(|section| has_acl(section)) {
        let own: HashSet<&str> = section.statements.iter().flat_map(names_in).collect();
        let mut reported = HashSet::new();
        for statement in section.statements.iter().filter(|one| one.keyword.name == "acl") {
            let Some(name) = statement.arguments().first() else { continue };
            let used = if defaults(&section) { &inherited } else { &own };
            if used.contains(name.as_str()) || !reported.insert(name.as_str()) {
                continue;
            }
            let advice = Diagnostic::new(Severity::Diag, format!("ACL `{name}` is never used"))
                .at(name.span())
                .help("remove it, or check the spelling in the conditions")
                .haproxy(format!("acl '{name}' is never used."));
            context.diagnostics.push(advice);
        }
    }
}

fn has_acl(section: &Section) -> bool {
    section.statements.iter().any(|one| one.keyword.name == "acl")
}

/// Reports backends that no other section mentions, and used ones without a server or a rule that answers.
fn backends(draft: &Draft, context: &mut ResolveContext<'_>) {
    let engines = draft.engines.iter().flat_map(|engine| &engine.sections);
    let sections = || draft.sections.iter().chain(engines.clone());
    // The section that mentions a name, or `None` if several do.
    let mut mentions: HashMap<&str, Option<*const Section>> = HashMap::new();
    for section in sections() {
        let own: *const Section = section;
        for name in section.statements.iter().flat_map(names_in) {
            mentions.entry(name).and_modify(|by| *by = by.filter(|by| *by == own)).or_insert(Some(own));
        }
    }
    let chosen_at_run_time = sections().flat_map(|section| &section.statements).any(is_choice_at_run_time);
    for section in draft.sections.iter().filter(|section| section.kind.is_proxy()) {
        let inherited = inherited(section, draft);
        let mut all = inherited.iter().flat_map(|section| &section.statements);
        if all.any(|one| one.keyword.name == "disabled") {
            continue;
        }
        let name = &section.name;
        let own: *const Section = section;
        let is_mentioned = mentions.get(name.as_str()).is_some_and(|by| *by != Some(own));
        let (message, help, haproxy) =
            if section.kind == SectionKind::Backend && !is_mentioned && !chosen_at_run_time {
                (
                    format!("backend `{name}` is never used"),
                    "select it with `use_backend` or `default_backend`, or remove it",
                    format!("backend '{name}' is never used."),
                )
            } else if section.kind != SectionKind::Frontend && !inherited.iter().any(|one| answers(one)) {
                let (outcome, help) = match context.names.backends.get(name.as_str()).map(|own| own.mode) {
                    Some(state::Mode::Log) => continue,
                    Some(state::Mode::Tcp) => ("each connection is closed", "add a `server` line"),
                    _ => (
                        "each request fails with status 503",
                        "add a `server` line, or a rule that answers, such as `http-request return`",
                    ),
                };
                (
                    format!("`{name}` has no server, so {outcome}"),
                    help,
                    format!("backend '{name}' has no server."),
                )
            } else {
                continue;
            };
        let advice = Diagnostic::new(Severity::Diag, message).at(name.span()).help(help);
        context.diagnostics.push(advice.haproxy(haproxy));
    }
}

/// Whether the line selects a backend by an expression.
fn is_choice_at_run_time(statement: &Statement) -> bool {
    matches!(statement.keyword.name, "use_backend" | "default_backend")
        && statement.arguments().first().is_some_and(|name| name.as_str().contains('%'))
}

/// Keywords that provide servers, or that let a section answer by itself.
const ANSWERS: &[&str] = &[
    "http-error",
    "monitor-uri",
    "redirect",
    "server",
    "server-template",
    "servers from",
    "stick-table",
    "use_backend",
    "default_backend",
    "use-server",
];

/// The actions that end a request with an answer.
const FINAL: &[&str] =
    &["deny", "redirect", "reject", "return", "silent-drop", "tarpit", "use-service", "auth"];

/// The section, and those `defaults` sections that it inherits from.
fn inherited<'a>(section: &'a Section, draft: &'a Draft) -> Vec<&'a Section> {
    let mut all = vec![section];
    let mut last = section;
    // Each step leads to an earlier section, so there is an end.
    while let Some(end) = draft.sections.iter().position(|one| std::ptr::eq(one, last)) {
        let before = draft.sections[..end].iter().rev();
        let mut defaults = before.filter(|one| one.kind == SectionKind::Defaults);
        let next = match &last.from {
            Some(from) => defaults.find(|one| *one.name == **from),
            None if last.kind == SectionKind::Defaults => None,
            None => defaults.next(),
        };
        let Some(next) = next else { break };
        all.push(next);
        last = next;
    }
    all
}

/// Whether the section has servers or answers by itself. A stick table's backend needs neither.
fn answers(section: &Section) -> bool {
    section.statements.iter().any(|statement| {
        let keyword = statement.keyword.name;
        let first = statement.arguments().first().map_or("", |word| word.as_str());
        ANSWERS.contains(&keyword)
            || keyword.starts_with("stats ")
            || keyword.split(' ').any(|word| FINAL.contains(&word))
            || FINAL.contains(&first)
            || first.starts_with("lua.")
    })
}
