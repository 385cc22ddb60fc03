//! `docs/compatibility.md`: what becomes of every keyword of HAProxy 3.5.

use std::fmt::Write;

use config::keyword::{self, Apply, Keyword, Where};

/// What becomes of a keyword.
#[derive(Clone, PartialEq, Eq)]
enum Status {
    Done,
    /// Accepted with a warning, and the reason.
    WithoutEffect(&'static str),
    /// An error that says so.
    NotYet,
    /// An error with the way out, as in HAProxy.
    Removed,
}

impl Status {
    fn text(&self) -> String {
        match self {
            Self::Done => "works".to_owned(),
            Self::WithoutEffect(reason) => format!("accepted with a warning: {reason}"),
            Self::NotYet => "refused: not supported yet".to_owned(),
            Self::Removed => "refused, as HAProxy does".to_owned(),
        }
    }
}

/// The kinds of the list, in the order of the page, and their titles.
const KINDS: &[(&str, &str)] = &[
    ("section", "Keywords of `global`, `userlist` and other sections"),
    ("proxy", "Keywords of proxies"),
    ("bind", "Parameters of `bind` lines"),
    ("server", "Parameters of `server` lines"),
    ("action", "Actions of rules"),
    ("fetch", "Sample fetches"),
    ("converter", "Converters"),
    ("acl", "ACL aliases"),
    ("cli", "Commands of the runtime socket"),
    ("filter", "Filters"),
    ("service", "Services"),
];

/// The whole page.
pub(crate) fn page(surface: &str, regression_tests: &str) -> String {
    let rows: Vec<Vec<&str>> = surface.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    let mut body = String::new();
    let mut summary = String::from(
        "| kind | works | with a warning | not yet | removed | of |\n| --- | --: | --: | --: | --: | --: |\n",
    );
    for (kind, title) in KINDS {
        let mine: Vec<(String, Status)> = rows
            .iter()
            .filter(|row| row[0] == *kind && row.len() > 2)
            .map(|row| (name(row), status(kind, row[1], row[2], row.get(3).copied().unwrap_or(""))))
            .collect();
        let count = |wanted: fn(&Status) -> bool| mine.iter().filter(|(_, status)| wanted(status)).count();
        let _ = writeln!(
            summary,
            "| {title} | {} | {} | {} | {} | {} |",
            count(|status| *status == Status::Done),
            count(|status| matches!(status, Status::WithoutEffect(_))),
            count(|status| *status == Status::NotYet),
            count(|status| *status == Status::Removed),
            mine.len()
        );
        let _ = writeln!(body, "\n## {title}\n\n| keyword | here |\n| --- | --- |");
        for (name, status) in &mine {
            let _ = writeln!(body, "| `{}` | {} |", name.replace('|', "\\|"), status.text());
        }
    }
    format!(
        "# Compatibility\n\nWhat becomes of every keyword of HAProxy 3.5. Made from the keyword tables by `cargo run -p xtask -- docs`; \
         do not edit.\n\nA keyword that is not supported yet is refused with a message that says so: nothing is accepted and ignored in silence.\n\n{summary}{}{body}",
        tests(regression_tests)
    )
}

/// The section on HAProxy's regression tests, from rows of test, driver, result and remark.
fn tests(list: &str) -> String {
    let rows: Vec<Vec<&str>> = list.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    let passed = rows.iter().filter(|row| row.get(2) == Some(&"passes")).count();
    let mut out = format!(
        "\n## HAProxy's regression tests\n\n{} of its tests were tried: those of what is built here, and of the rooms around it; {passed} of them \
         pass. The driver is what runs the scenario: Debian's `varnishtest`, or VTest where that is too old for it.\n\n\
         | test | driver | result | remark |\n| --- | --- | --- | --- |\n",
        rows.len()
    );
    for row in rows {
        let cell = |index: usize| row.get(index).copied().unwrap_or("");
        let _ = writeln!(out, "| `{}` | {} | {} | {} |", cell(0), cell(1), cell(2), cell(3));
    }
    out
}

fn name(row: &[&str]) -> String {
    match (row[0], row[1]) {
        ("section" | "action", place) => format!("{place}: {}", row[2]),
        ("proxy", "option") => format!("option {}", row[2]),
        _ => row[2].to_owned(),
    }
}

fn status(kind: &str, place: &str, name: &str, signature: &str) -> Status {
    match kind {
        "section" => of_section(place, name),
        "proxy" if place == "option" => of_keyword(&format!("option {name}"), Where(15)),
        "proxy" => of_keyword(name, Where(15)),
        "bind" => with_warnings(name, config::bind::WITHOUT_EFFECT)
            .unwrap_or_else(|| of(config::bind::TABLE.iter().any(|row| row.name == name))),
        // Stands behind `source`, which is a row.
        "server" if name == "usesrc" => Status::Done,
        "server" => with_warnings(name, config::server::WITHOUT_EFFECT)
            .unwrap_or_else(|| of(config::server::rows().any(|row| row.name == name))),
        "action" => {
            of(rules::ACTIONS.iter().any(|row| row.built && row.name == bare(name) && in_set(row, place)))
        }
        "fetch" => of(sample::fetch::find(name).is_some()),
        "converter" => of(sample::convert::find(name).is_some()),
        "acl" => of(sample::fetch::find(signature.split(' ').next().unwrap_or(name)).is_some()),
        "cli" => {
            let of_master = || control::master::COMMANDS.iter().any(|command| command.words == name);
            of(control::commands().any(|command| command.built && command.words == name) || of_master())
        }
        "filter" => of(config::tables::filter::BUILT.contains(&name)),
        "service" => {
            let reachable = rules::ACTIONS.iter().any(|row| row.built && row.name == "use-service");
            of(reachable && name == "prometheus-exporter")
        }
        _ => Status::NotYet,
    }
}

/// A parameter that is taken with a warning.
fn with_warnings(name: &str, list: &[(&str, &'static str)]) -> Option<Status> {
    list.iter().find(|(own, _)| *own == name).map(|(_, why)| Status::WithoutEffect(why))
}

fn of(done: bool) -> Status {
    if done { Status::Done } else { Status::NotYet }
}

fn bare(name: &str) -> &str {
    name.split('(').next().unwrap_or(name)
}

fn in_set(row: &rules::Row, place: &str) -> bool {
    let place = match place {
        "tcp-request" => "tcp-request content",
        "tcp-response" => "tcp-response content",
        other => other,
    };
    rules::Ruleset::ALL.iter().any(|set| set.name() == place && row.sets & *set as u8 != 0)
}

fn of_section(place: &str, name: &str) -> Status {
    match place {
        "global" if name == "stats" => Status::Done,
        "global" => of_keyword(name, Where::GLOBAL),
        "userlist" => of_keyword(name, Where::USERLIST),
        _ => Status::NotYet,
    }
}

fn of_keyword(name: &str, places: Where) -> Status {
    let matches = |row: &&Keyword| row.places.holds(places) && (row.name == name || begins(row.name, name));
    match keyword::rows().find(matches).map(|row| row.apply) {
        None | Some(Apply::Unsupported) => Status::NotYet,
        Some(Apply::Ineffective(reason)) => Status::WithoutEffect(reason),
        Some(Apply::Removed(..)) => Status::Removed,
        Some(_) => Status::Done,
    }
}

/// Whether `name` is the first word of a keyword of two, which the list names too.
fn begins(row: &str, name: &str) -> bool {
    row.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '))
}
