//! Advice about statements that are allowed but suspicious (`-dD`; management manual, chapter 3). Advice affects neither the plan
//! nor the exit code.

use diag::{Diagnostic, Severity};

use crate::draft::{Draft, SectionKind};
use crate::resolve::servers::MadeServer;
use crate::resolve::{PendingProxy, ResolveContext};

/// Checks the order of the sections.
pub(crate) fn sections(draft: &Draft, context: &mut ResolveContext<'_>) {
    if !context.setting.diagnostics {
        return;
    }
    let mut has_other = false;
    for section in &draft.sections {
        if section.kind != SectionKind::Global {
            has_other = true;
        } else if has_other {
            let text = "global section detected after a non-global one, the prevalence of their statements is unspecified";
            context.diagnostics.push(
                Diagnostic::new(Severity::Diag, "`global` section after other sections")
                    .at(section.keyword.span())
                    .haproxy(text),
            );
        }
    }
}

/// Checks the servers of a backend.
pub(crate) fn servers(
    proxy: &PendingProxy<'_>,
    servers: &[MadeServer<'_>],
    context: &mut ResolveContext<'_>,
) {
    if !context.setting.diagnostics {
        return;
    }
    let backend = proxy.settings.name;
    let mut cookies: Vec<&str> = Vec::new();
    for MadeServer { statement, draft, state, .. } in servers {
        let name = &state.name;
        let mut advise = |message: String, text: String| {
            let advice = Diagnostic::new(Severity::Diag, message).at(statement.keyword_span());
            context.diagnostics.push(advice.haproxy(text));
        };
        if draft.weight == 0 {
            advise(
                format!("server `{backend}/{name}` has weight 0 and is never selected by load balancing"),
                format!(
                    "'server {backend}/{name}' : configured with weight of 0 will never be selected by load balancing \
                     algorithms"
                ),
            );
        }
        // Backup servers may share the cookie of the server they replace.
        let Some(cookie) = draft.cookie.filter(|_| !draft.backup) else { continue };
        if cookies.contains(&cookie) {
            advise(
                format!("server `{backend}/{name}` has the same cookie value as an earlier server"),
                format!(
                    "'server {name}' : same cookie value is set for a previous non-backup server in the same backend, it \
                     may break connection persistence"
                ),
            );
        } else {
            cookies.push(cookie);
        }
    }
}
