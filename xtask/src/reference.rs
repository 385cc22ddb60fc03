//! The keywords that work, from their tables: `docs/keywords.md`, and the tables for the manual page.

use std::fmt::Write;

use base::keyword_support::Support;
use config::draft::row::Where;
use config::keyword::{Apply, Keyword};

/// The sections that have keywords, with their titles.
const SECTIONS: [(&str, Where); 22] = [
    ("`global`", Where::GLOBAL),
    ("Proxies: `defaults` (D), `frontend` (F), `listen` (L), `backend` (B)", Where(15)),
    ("`userlist`", Where::USERLIST),
    ("`http-errors`", Where::ERRORS),
    ("`resolvers`", Where::RESOLVERS),
    ("`peers`", Where::PEERS),
    ("`mailers`", Where::MAILERS),
    ("`cache`", Where::CACHE),
    ("`fcgi-app`", Where::FCGI_APP),
    ("`crt-store`", Where::CRT_STORE),
    ("`acme`", Where::ACME),
    ("`discovery`", Where::DISCOVERY),
    ("`healthcheck`", Where::HEALTHCHECK),
    ("`log-forward`", Where::LOG_FORWARD),
    ("`log-profile`", Where::LOG_PROFILE),
    ("`opentelemetry`", Where::OPENTELEMETRY),
    ("`ring`", Where::RING),
    ("`udp-lb`", Where::UDP_LB),
    ("`traces`", Where::TRACES),
    ("`spoe-agent`, in the file of a `filter spoe` line", Where::SPOE_AGENT),
    ("`spoe-message`, in the same file", Where::SPOE_MESSAGE),
    ("`spoe-group`, in the same file", Where::SPOE_GROUP),
];

/// Keywords of one kind.
pub(crate) struct ReferenceTable {
    /// The heading, with code in backticks.
    pub(crate) title: String,
    /// The headings of the columns. The first is the name, the last the description.
    pub(crate) columns: &'static [&'static str],
    /// The cells, as many as columns.
    pub(crate) rows: Vec<Vec<String>>,
}

/// Returns all tables of the configuration language, and those of the commands if `with_commands`.
pub(crate) fn tables(with_commands: bool) -> Vec<ReferenceTable> {
    let mut tables: Vec<ReferenceTable> =
        SECTIONS.into_iter().map(|(title, place)| section(title, place)).collect();
    let binds = config::tables::bind::rows().filter(|row| works(row.support));
    tables.push(with_arguments("`bind` lines", binds.map(|row| (row.name, row.signature, row.doc))));
    let listed = config::tables::tls::CRT_LIST.iter().filter(|row| works(row.support));
    let listed = listed.map(|row| (row.name, row.signature, row.doc));
    tables.push(with_arguments("Lines of a crt-list, `ssl-f-use`", listed));
    let servers = config::tables::server::rows().filter(|row| works(row.support));
    tables.push(with_arguments("`server` lines", servers.map(|row| (row.name, row.signature, row.doc))));
    for set in rules::Ruleset::ALL {
        let rows = rules::ACTIONS.iter().filter(|row| works(row.support) && row.sets & set as u16 != 0);
        let rows = rows.map(|row| (row.name, row.arguments, row.doc));
        tables.push(with_arguments(&format!("Actions of `{}`", set.name()), rows));
    }
    let fetches =
        sample::fetch::all().map(|row| [row.name, row.gives.name(), row.doc].map(String::from).into());
    tables.push(ReferenceTable {
        title: "Sample fetches".to_owned(),
        columns: &["fetch", "type", "description"],
        rows: fetches.collect(),
    });
    let converters = sample::convert::all()
        .map(|row| [row.name, row.takes.name(), row.gives.name(), row.doc].map(String::from).into());
    tables.push(ReferenceTable {
        title: "Converters".to_owned(),
        columns: &["converter", "input", "output", "description"],
        rows: converters.collect(),
    });
    if with_commands {
        tables.extend(commands());
    }
    tables
}

/// Returns the commands of the runtime socket and of the master's socket.
pub(crate) fn commands() -> [ReferenceTable; 2] {
    let built = control::commands().filter(|command| command.built);
    let master = control::socket::master::COMMANDS.iter();
    [
        with_arguments(
            "Commands of the runtime socket",
            built.map(|command| (command.words, command.usage, command.doc)),
        ),
        with_arguments(
            "Commands of the master's socket",
            master.map(|command| (command.words, command.usage, command.doc)),
        ),
    ]
}

/// Returns the whole page.
pub(crate) fn page() -> String {
    let mut out = String::from(
        "# Keywords\n\nThe supported keywords with the sections that accept them, their arguments and a one-line description. HAProxy's \
         configuration manual describes them in full. Generated from the keyword tables by `cargo run -p xtask -- docs`; do not edit.\n",
    );
    for table in tables(true) {
        let dashes = vec!["---"; table.columns.len()].join(" | ");
        let _ = writeln!(out, "\n## {}\n\n| {} |\n| {dashes} |", table.title, table.columns.join(" | "));
        for row in &table.rows {
            let cells = table.columns.iter().zip(row).enumerate().map(|(at, (column, cell))| match *column {
                _ if at == 0 => format!("`{cell}`"),
                "arguments" => code(cell),
                _ => cell.clone(),
            });
            let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
        }
    }
    out
}

fn works(support: Support) -> bool {
    !matches!(support, Support::None(_))
}

/// Whether a keyword is in the table of its sections.
fn is_shown(row: &Keyword) -> bool {
    !matches!(row.apply, Apply::Removed(..)) && works(row.support)
}

fn section(title: &str, place: Where) -> ReferenceTable {
    let rows = config::tables::all().filter(|row| row.places.holds(place) && is_shown(row));
    let cells = |row: &Keyword| {
        vec![row.name.to_owned(), row.places.letters(), row.signature.to_owned(), row.doc.to_owned()]
    };
    ReferenceTable {
        title: title.to_owned(),
        columns: &["keyword", "sections", "arguments", "description"],
        rows: rows.map(cells).collect(),
    }
}

fn with_arguments<'a>(
    title: &str,
    rows: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
) -> ReferenceTable {
    let cells = |(name, arguments, doc): (&str, &str, &str)| [name, arguments, doc].map(String::from).into();
    ReferenceTable {
        title: title.to_owned(),
        columns: &["keyword", "arguments", "description"],
        rows: rows.map(cells).collect(),
    }
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_that_works_is_in_a_table() {
        let places = SECTIONS.iter().fold(Where(0), |all, (_, place)| all.or(*place));
        let missing: Vec<&str> = config::tables::all()
            .filter(|row| is_shown(row) && !places.holds(row.places))
            .map(|row| row.name)
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        for table in tables(true) {
            assert!(!table.rows.is_empty(), "{} is empty", table.title);
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.title);
        }
    }
}
