//! Settings of the built-in HTTP client (manual, 3.10): the resolvers section, and the trusted authorities if any client request is
//! possible.

use std::sync::Arc;

use diag::Diagnostic;
use tls::{Connecting, Connector, Trust, load};

use crate::draft::settings::HttpClientWords;
use crate::resolve::ResolveContext;
use crate::resolve::tls_files::located;

/// The default resolvers section.
const DEFAULT: &str = "default";

/// Fills in the settings of client requests.
pub(crate) fn settings(words: &HttpClientWords<'_>, context: &mut ResolveContext<'_>) {
    resolvers(words, context);
    context.global.http_client.verifies = words.verify.unwrap_or(true);
    // A configured file must exist. The system's authorities are large, and are not loaded if no client request is possible.
    if words.ca_file.is_none() && !context.asks_others() {
        return;
    }
    match connector(words, context) {
        Ok(connector) => context.global.http_client.connector = connector,
        Err(error) => context.diagnostics.push(error),
    }
}

fn resolvers(words: &HttpClientWords<'_>, context: &mut ResolveContext<'_>) {
    if words.no_resolvers {
        return;
    }
    let name = words.resolvers.map_or(DEFAULT, |word| word.text);
    let found = context.names.resolvers.iter().find(|section| *section.state.name == *name);
    context.global.http_client.resolvers = found.map(|section| section.state.clone());
    if let (None, Some(word)) = (found, words.resolvers) {
        let known = context.names.resolvers.iter().map(|section| &*section.state.name);
        let near = diag::suggest(name, known);
        context.diagnostics.push(
            Diagnostic::alert(format!("there is no resolvers section `{name}`"))
                .at(word.span)
                .did_you_mean(near)
                .haproxy(format!("Can't find resolvers section '{name}' for do-resolve action.")),
        );
    }
}

/// The TLS connector, or `None` if the system has no authorities and the configuration does not require any.
fn connector(
    words: &HttpClientWords<'_>,
    context: &ResolveContext<'_>,
) -> Result<Option<Arc<Connector>>, Diagnostic> {
    let mut trust = None;
    if words.verify != Some(false) {
        let path = match words.ca_file {
            Some(word) => located(context.tls.authorities, &word, context),
            None => "@system-ca".to_owned(),
        };
        let parts = match (load::authorities(&path), words.ca_file) {
            (Ok(parts), _) => parts,
            (Err(_), None) => return Ok(None),
            (Err(error), Some(word)) => {
                return Err(Diagnostic::alert(error.to_string())
                    .at(word.span)
                    .help("set `httpclient.ssl.ca-file` to a file or directory of CAs")
                    .haproxy(format!(
                        "httpclient: cannot initialize: cannot initialize SSL verify with 'ca-file \"{}\"'.",
                        word.text
                    )));
            }
        };
        trust =
            Some(Arc::new(Trust { authorities: parts.certificates, crls: parts.crls, ..Trust::default() }));
    }
    // Every request opens its own connection, so there are no sessions to resume.
    let connecting = Connecting { trust, sessions: 0, ..Connecting::default() };
    Connector::new(&connecting).map(|connector| Some(Arc::new(connector))).map_err(Diagnostic::alert)
}
