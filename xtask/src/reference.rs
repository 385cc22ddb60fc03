//! `docs/keywords.md`: the supported keywords, from their tables.

use std::fmt::Write;

use base::keyword_support::Support;
use config::draft::row::Where;
use config::keyword::{Apply, Keyword};

/// Returns the whole page.
pub(crate) fn page() -> String {
    let mut out = String::from(
        "# Keywords\n\nThe supported keywords with the sections that accept them, their arguments and a one-line description. HAProxy's \
         configuration manual describes them in full. Generated from the keyword tables by `cargo run -p xtask -- docs`; do not edit.\n",
    );
    keywords(&mut out, "`global`", Where::GLOBAL);
    keywords(&mut out, "Proxies: `defaults` (D), `frontend` (F), `listen` (L), `backend` (B)", Where(15));
    keywords(&mut out, "`userlist`", Where::USERLIST);
    keywords(&mut out, "`http-errors`", Where::ERRORS);
    keywords(&mut out, "`resolvers`", Where::RESOLVERS);
    keywords(&mut out, "`mailers`", Where::MAILERS);
    keywords(&mut out, "`traces`", Where::TRACES);
    let binds = config::tables::bind::rows().filter(|row| works(row.support));
    table(&mut out, "`bind` lines", binds.map(|row| (row.name, row.signature, row.doc)));
    let listed = config::tables::tls::CRT_LIST.iter().filter(|row| works(row.support));
    table(&mut out, "Lines of a crt-list, `ssl-f-use`", listed.map(|row| (row.name, row.signature, row.doc)));
    let servers = config::tables::server::rows().filter(|row| works(row.support));
    table(&mut out, "`server` lines", servers.map(|row| (row.name, row.signature, row.doc)));
    for set in rules::Ruleset::ALL {
        let rows = rules::ACTIONS.iter().filter(|row| works(row.support) && row.sets & set as u8 != 0);
        table(
            &mut out,
            &format!("Actions of `{}`", set.name()),
            rows.map(|row| (row.name, row.arguments, row.doc)),
        );
    }
    let _ = writeln!(out, "\n## Sample fetches\n\n| fetch | type | description |\n| --- | --- | --- |");
    for fetch in sample::fetch::all() {
        let _ = writeln!(out, "| `{}` | {} | {} |", fetch.name, fetch.gives.name(), fetch.doc);
    }
    let _ = writeln!(
        out,
        "\n## Converters\n\n| converter | input | output | description |\n| --- | --- | --- | --- |"
    );
    for convert in sample::convert::all() {
        let (takes, gives) = (convert.takes.name(), convert.gives.name());
        let _ = writeln!(out, "| `{}` | {takes} | {gives} | {} |", convert.name, convert.doc);
    }
    let commands = control::commands().filter(|command| command.built);
    table(
        &mut out,
        "Commands of the runtime socket",
        commands.map(|command| (command.words, command.usage, command.doc)),
    );
    table(
        &mut out,
        "Commands of the master's socket",
        control::socket::master::COMMANDS.iter().map(|command| (command.words, command.usage, command.doc)),
    );
    out
}

fn works(support: Support) -> bool {
    !matches!(support, Support::None(_))
}

fn keywords(out: &mut String, title: &str, place: Where) {
    let _ = writeln!(
        out,
        "\n## {title}\n\n| keyword | sections | arguments | description |\n| --- | --- | --- | --- |"
    );
    let here = |row: &&Keyword| row.places.holds(place) && !matches!(row.apply, Apply::Removed(..));
    for row in config::tables::all().filter(here).filter(|row| works(row.support)) {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            row.name,
            row.places.letters(),
            code(row.signature),
            row.doc
        );
    }
}

fn table<'a>(out: &mut String, title: &str, rows: impl Iterator<Item = (&'a str, &'a str, &'a str)>) {
    let _ = writeln!(out, "\n## {title}\n\n| keyword | arguments | description |\n| --- | --- | --- |");
    for (name, arguments, doc) in rows {
        let _ = writeln!(out, "| `{name}` | {} | {doc} |", code(arguments));
    }
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}
