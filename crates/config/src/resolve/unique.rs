//! Checks that names and numbers of sections are unique. Called after the sections were read, in configuration order.

use std::collections::{HashMap, HashSet};

use diag::Diagnostic;

use crate::draft::{Draft, Section, SectionKind};
use crate::resolve::ResolveContext;

/// The kind of a section in messages.
fn noun(section: &Section) -> &'static str {
    match section.kind {
        SectionKind::Frontend => "frontend",
        SectionKind::Backend => "backend",
        SectionKind::Defaults => "defaults",
        SectionKind::LogForward => "log-forward",
        SectionKind::UdpLb => "udp-lb",
        _ => "proxy",
    }
}

/// Checks that no two proxies share a name, and that no proxy shares a name with a defaults section, in either order. Two
/// defaults sections may have the same name if no section refers to it with `from`.
pub(crate) fn names(draft: &Draft, context: &mut ResolveContext<'_>) {
    let named = |section: &&Section| {
        let kind = section.kind;
        !section.name.is_empty()
            && (kind.is_proxy() || matches!(kind, SectionKind::Defaults | SectionKind::LogForward))
    };
    let mut seen: HashMap<&str, &Section> = HashMap::with_capacity(draft.sections.len());
    let mut chosen: HashSet<&str> = HashSet::new();
    for section in draft.sections.iter().filter(named) {
        let name = section.name.as_str();
        if let Some(other) = seen.insert(name, section) {
            let both_defaults = section.kind == SectionKind::Defaults && other.kind == SectionKind::Defaults;
            if both_defaults && chosen.contains(name) {
                replaced(section, other, context);
            } else if !both_defaults {
                same(section, other, context);
            }
        }
        chosen.extend(section.from.as_ref().map(|from| from.as_str()));
    }
}

/// The error for a duplicate name of `section`; `haproxy` composes HAProxy's wording from the name and the location of the other
/// section.
pub(crate) fn second(
    section: &Section,
    other: &Section,
    haproxy: impl FnOnce(&str, &str) -> String,
    context: &ResolveContext<'_>,
) -> Diagnostic {
    let (name, kind) = (section.name.as_str(), &section.keyword);
    Diagnostic::alert(format!("there are two {kind} sections named `{name}`"))
        .at(section.name.span())
        .related(other.name.span(), "the first one is here")
        .haproxy(haproxy(name, &context.place(other)))
}

fn same(section: &Section, other: &Section, context: &mut ResolveContext<'_>) {
    let (kind, other_kind, name) = (noun(section), noun(other), section.name.as_str());
    let place = context.place(other);
    context.diagnostics.push(
        Diagnostic::alert(format!("{kind} `{name}` has the same name as another {other_kind}"))
            .at(section.name.span())
            .related(other.name.span(), "the first one is here")
            .help("rename one of them and all references to it")
            .haproxy(format!(
                ": {kind} '{name}' has the same name as {other_kind} '{name}' declared at {place}. Please rename \
                 one or the other."
            )),
    );
}

fn replaced(section: &Section, other: &Section, context: &mut ResolveContext<'_>) {
    let (name, place) = (section.name.as_str(), context.place(other));
    context.diagnostics.push(
        Diagnostic::alert(format!("defaults `{name}` would replace a section already selected with `from`"))
            .at(section.name.span())
            .related(other.name.span(), "the first one is here")
            .haproxy(format!(
                ": defaults '{name}' has the same name as another defaults section declared at {place} which was \
                 explicitly referenced hence cannot be replaced. Please remove or rename one of them."
            )),
    );
}

/// Checks `id`: once per section, and no number twice.
pub(crate) fn ids(draft: &Draft, context: &mut ResolveContext<'_>) {
    let mut taken: HashMap<&str, &Section> = HashMap::new();
    let mut own: Option<&Section> = None;
    for section in draft.sections.iter().filter(|section| section.kind.is_proxy()) {
        for statement in section.statements.iter().filter(|statement| statement.keyword.name == "id") {
            let Some(word) = statement.arguments().first() else { continue };
            let twice = own.is_some_and(|own| std::ptr::eq(own, section)).then_some(section);
            own = Some(section);
            let Some(other) = taken.insert(word, section).or(twice) else { continue };
            let (kind, name, other_name) = (noun(section), section.name.as_str(), other.name.as_str());
            let place = context.place(other);
            let title = match twice {
                Some(_) => format!("{kind} `{name}` has two ids"),
                None => format!("proxies `{name}` and `{other_name}` have the same id {word}"),
            };
            context.diagnostics.push(
                Diagnostic::alert(title)
                    .at(word.span())
                    .related(other.name.span(), "the first one is here")
                    .haproxy(format!(
                        ": {kind} {name} reuses same custom id as {} {other_name} (declared at {place}).",
                        noun(other)
                    )),
            );
        }
    }
}
