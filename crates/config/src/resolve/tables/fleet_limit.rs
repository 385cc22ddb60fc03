//! `maxconn … fleet`: limits of servers that hold for all members of a `peers` section.

use std::sync::Arc;

use diag::Diagnostic;
use plan::server::ServerSettings;
use state::Server;
use state::table::{DataType, KeyType, Table};
use syntax::Word;

use crate::draft::server::ServerDraft;
use crate::resolve::ResolveContext;

/// Returns the table that counts the requests of all members. It has one entry for each server, named after the server.
pub(in crate::resolve) fn table(
    word: &Word,
    draft: &ServerDraft<'_>,
    server: &Server,
    context: &ResolveContext<'_>,
) -> Result<Arc<Table>, Diagnostic> {
    let wrong = |text: String| Diagnostic::alert(text).at(word.span());
    if context.around.is_some() {
        return Err(wrong("a server that is added at run time cannot have a `fleet` limit".to_owned())
            .help("add the server to the configuration, and reload"));
    }
    if draft.maxconn == 0 {
        return Err(wrong("`fleet` needs a limit, and `maxconn 0` is none".to_owned())
            .help("use the number of requests that all members together may have at the server"));
    }
    for (is_given, other) in [(draft.minconn > 0, "minconn"), (draft.strict_maxconn, "strict-maxconn")] {
        if is_given {
            return Err(wrong(format!("`maxconn … fleet` cannot be combined with `{other}`"))
                .help(format!("remove `{other}`")));
        }
    }
    let Some(table) = context.names.tables.get(word.as_str()) else {
        let known = context.names.tables.keys().map(|name| &**name);
        return Err(wrong(format!("there is no stick table `{word}`"))
            .did_you_mean(diag::suggest(word.as_str(), known)));
    };
    let settings = &table.settings;
    let unfit = |what: &str| {
        wrong(format!("table `{word}` {what}, which a `fleet` limit needs")).help(
            "use a table such as `stick-table type string len 64 size 1k expire 1m store conn_cur peers <section> aggregate`",
        )
    };
    if settings.aggregate.is_none() {
        return Err(unfit("is not an `aggregate`"));
    }
    if settings.kind != KeyType::Str {
        return Err(unfit(&format!("has keys of type {} instead of string", settings.kind.name())));
    }
    if table.column(DataType::ConnCur).is_none() {
        return Err(unfit("does not store `conn_cur`"));
    }
    if server.name.len() > settings.key_length {
        return Err(wrong(format!(
            "the name of server `{}` is longer than the keys of table `{word}`, which have up to {} bytes",
            server.name, settings.key_length
        ))
        .help("increase `len` of the table"));
    }
    Ok(table.clone())
}

/// Checks that the table has only one server with this name, and that the server exists from the start.
pub(in crate::resolve) fn check_server(
    server: &ServerSettings,
    draft: &ServerDraft<'_>,
    is_discovered: bool,
    context: &mut ResolveContext<'_>,
) {
    let (Some(table), Some(word)) = (&server.fleet, draft.fleet) else { return };
    if is_discovered {
        context.diagnostics.push(
            Diagnostic::alert("servers of a discovery cannot have a `fleet` limit")
                .at(word.span())
                .help("remove `fleet` and the table: the limit then holds for each process"),
        );
        return;
    }
    let name = &server.state.name;
    if !context.fleet_limits.insert((table.number, name.to_string())) {
        context.diagnostics.push(
            Diagnostic::alert(format!("two servers named `{name}` use table `{}`", table.name()))
                .at(word.span())
                .help("rename one of the servers, or use another table: the requests of both would be added"),
        );
    }
}
