//! `resolvers` sections (manual, section 5.3.2): converts their lines to [`Resolvers`], and creates `default` if the
//! configuration does not have it.

use std::sync::Arc;

use diag::Diagnostic;
use plan::Resolvers;

use crate::draft::args::Args;
use crate::draft::keyword::{Apply, apply_of};
use crate::draft::resolvers::ResolversDraft;
use crate::draft::{Draft, Section, SectionKind};
use crate::resolve::unique::second;
use crate::resolve::{ResolveContext, tls_server};
use crate::tables::resolvers::add_system_servers;

/// Builds every section.
pub(crate) fn resolvers(draft: &Draft, context: &mut ResolveContext<'_>) -> Vec<Arc<Resolvers>> {
    let mut made: Vec<(&Section, Arc<Resolvers>)> = Vec::new();
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::Resolvers) {
        if let Some((other, _)) = made.iter().find(|(other, _)| *other.name == *section.name) {
            let haproxy = |name: &str, place: &str| {
                format!("resolvers '{name}' has same name as another resolvers (declared at {place}).")
            };
            let error = second(section, other, haproxy, context);
            context.diagnostics.push(error);
            continue;
        }
        made.push((section, Arc::new(read(section, context))));
    }
    let named_default = made.iter().any(|(section, _)| section.name.as_str() == "default");
    let mut all: Vec<_> = made.into_iter().map(|(_, resolvers)| resolvers).collect();
    all.extend(system().filter(|_| !named_default));
    all
}

fn read(section: &Section, context: &mut ResolveContext<'_>) -> Resolvers {
    let mut resolvers = ResolversDraft::default();
    for statement in &section.statements {
        if let Apply::Resolvers(read) = apply_of(statement) {
            let mut args = Args::new(statement, context.diagnostics, context.environment);
            let outcome = read(&mut resolvers, &mut args);
            context.note(outcome);
        }
    }
    // If a line was refused, that error is enough.
    let none = !section.statements.iter().any(|line| line.keyword.name == "nameserver");
    if resolvers.nameservers.is_empty() && none {
        let name = &section.name;
        context.diagnostics.push(
            Diagnostic::warning(format!("resolvers section `{name}` has no name server"))
                .at(section.keyword.span().to(name.span()))
                .haproxy(format!("resolvers '{name}' has no nameservers defined.")),
        );
    }
    let secure = std::mem::take(&mut resolvers.secure);
    let mut made = resolvers.finish(&section.name);
    for (place, words, statement) in secure {
        match tls_server::server(&words, false, None, statement, context) {
            Ok(tls) => made.nameservers[place].secure = tls.map(|tls| tls.connector),
            Err(error) => context.diagnostics.push(error),
        }
    }
    made
}

/// Builds the section `default` from the system's resolver configuration, or `None` if that is missing.
fn system() -> Option<Arc<Resolvers>> {
    base::seen_files::note("/etc/resolv.conf");
    let text = std::fs::read_to_string("/etc/resolv.conf").ok()?;
    let mut draft = ResolversDraft::default();
    add_system_servers(&mut draft, &text);
    (!draft.nameservers.is_empty()).then(|| Arc::new(draft.finish("default")))
}
