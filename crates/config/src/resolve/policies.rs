//! `outlier-ejection`, `retry-budget` and `hedge` of a backend, and the checks that they apply to it.

use balance::{Budget, Hedge, Outliers, outliers};
use diag::Diagnostic;
use state::Mode;

use crate::draft::Statement;
use crate::resolve::{PendingProxy, ResolveContext};

/// The policies of a backend.
#[derive(Default)]
pub(crate) struct Policies {
    pub(crate) outliers: Option<Box<Outliers>>,
    pub(crate) budget: Option<Budget>,
    pub(crate) hedge: Option<Hedge>,
}

/// The policies of a proxy.
pub(crate) fn policies(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) -> Policies {
    let configured = &proxy.settings.policies;
    if !proxy.settings.is_backend() {
        return Policies::default();
    }
    let forwards = &[Mode::Tcp, Mode::Http];
    if let Some((own, line)) = &configured.outliers
        && let servers = proxy.settings.servers.len()
        && proxy.settings.servers.iter().all(|(line, _)| line.keyword.name == "server")
        && outliers::allowed(servers, own.max_ejected) == 0
        && servers > 0
    {
        let count = if servers == 1 { "one server".to_owned() } else { format!("{servers} servers") };
        context.diagnostics.push(
            Diagnostic::warning(format!(
                "`outlier-ejection` has no effect in backend `{}`: `max-ejected {}%` of {count} is less than one",
                proxy.settings.name, own.max_ejected
            ))
            .at(line.keyword_span()),
        );
    }
    Policies {
        outliers: fitting(&configured.outliers, forwards, proxy, context),
        budget: fitting(&configured.budget, forwards, proxy, context),
        hedge: fitting(&configured.hedge, &[Mode::Http], proxy, context),
    }
}

/// Returns a line's policy if it fits the proxy's mode. A line of the proxy itself that does not fit is an error; an inherited one
/// is ignored with a warning.
fn fitting<T: Clone>(
    configured: &Option<(T, &Statement)>,
    modes: &[Mode],
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> Option<T> {
    let (value, line) = configured.as_ref()?;
    let (mode, name) = (proxy.settings.mode, proxy.settings.name);
    if modes.contains(&mode) {
        return Some(value.clone());
    }
    let own = proxy.section.statements.iter().any(|statement| std::ptr::eq(statement, *line));
    let keyword = line.keyword.name;
    let text = format!("`{keyword}` cannot be used in `mode {}`, the mode of `{name}`", mode.name());
    let wanted: Vec<String> = modes.iter().map(|mode| format!("`mode {}`", mode.name())).collect();
    let diagnostic = if own { Diagnostic::alert(text) } else { Diagnostic::warning(text) };
    let help =
        format!("it requires {}; use `no {keyword}` in the backend to disable it", wanted.join(" or "));
    context.diagnostics.push(diagnostic.at(line.keyword_span()).help(help));
    None
}
