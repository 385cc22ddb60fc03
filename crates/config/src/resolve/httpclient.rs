//! How requests of the process's own are made (manual, 3.10): the resolvers section, and whom they
//! trust where anything makes some.

use std::sync::Arc;

use diag::Diagnostic;
use tls::{Connecting, Connector, Trust, load};

use crate::draft::settings::HttpClientWords;
use crate::resolve::ResolveContext;
use crate::resolve::tls_files::located;

/// The section that is asked unless another one is named.
const DEFAULT: &str = "default";

/// Fills the settings of requests in.
pub(crate) fn settings(words: &HttpClientWords<'_>, context: &mut ResolveContext<'_>) {
    resolvers(words, context);
    context.global.http_client.verifies = words.verify.unwrap_or(true);
    // What is named has to be there; the system's own authorities are many, and left unread where
    // nobody is asked.
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

/// `None` where the system has no authorities, and nobody said that it must.
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
                    .help("`httpclient.ssl.ca-file` names a file or a directory of authorities")
                    .haproxy(format!(
                        "httpclient: cannot initialize: cannot initialize SSL verify with 'ca-file \"{}\"'.",
                        word.text
                    )));
            }
        };
        trust =
            Some(Arc::new(Trust { authorities: parts.certificates, crls: parts.crls, ..Trust::default() }));
    }
    // One connection a request: nothing is left to be resumed.
    let connecting = Connecting { trust, sessions: 0, ..Connecting::default() };
    Connector::new(&connecting).map(|connector| Some(Arc::new(connector))).map_err(Diagnostic::alert)
}
