//! `docs/compatibility.md`: the support for every keyword of HAProxy 3.5, and the tests that use it.

use std::fmt::Write;

use base::keyword_support::Support;
use config::draft::row::Where;
use config::keyword::{Apply, Keyword};

use crate::coverage::{Place, Shown};

/// The status of a keyword.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    /// The support recorded in its row.
    Row(Support),
    /// An error with advice, as in HAProxy.
    Removed,
}

const NOT_YET: Status = Status::Row(Support::None("not supported yet"));
const FULL: Status = Status::Row(Support::Full);

impl Status {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Row(Support::Full) => ("full", ""),
            Self::Row(Support::Partial(reason)) => ("partial", reason),
            Self::Row(Support::None(reason)) => ("none", reason),
            Self::Removed => ("removed", "rejected, as in HAProxy"),
        }
    }

    /// Returns whether the keyword has any effect that a test could use.
    fn works(self) -> bool {
        matches!(self, Self::Row(Support::Full | Support::Partial(_)))
    }
}

/// A line of the page.
struct Row {
    name: String,
    status: Status,
    shown: Option<String>,
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

/// Maximum number of supported keywords that no end-to-end test uses.
pub(crate) const MOST_WITHOUT_TEST: usize = 37;

/// Returns the whole page, and the supported keywords that no test uses.
pub(crate) fn page(surface: &str, regression_tests: &str, shown: &Shown) -> (String, Vec<String>) {
    let list: Vec<Vec<&str>> = surface.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    let mut body = String::new();
    let mut summary = String::from(
        "| kind | full | partial | none | removed | of | supported, without an end-to-end test |\n\
         | --- | --: | --: | --: | --: | --: | --: |\n",
    );
    let mut without = Vec::new();
    for (kind, title) in KINDS {
        let rows: Vec<Row> =
            list.iter().filter(|row| row[0] == *kind && row.len() > 2).map(|row| line(row, shown)).collect();
        let count = |word: &str| rows.iter().filter(|row| row.status.words().0 == word).count();
        let missing = rows.iter().filter(|row| row.status.works() && row.shown.is_none());
        let missing: Vec<String> = missing.map(|row| format!("{kind} {}", row.name)).collect();
        let _ = writeln!(
            summary,
            "| {title} | {} | {} | {} | {} | {} | {} |",
            count("full"),
            count("partial"),
            count("none"),
            count("removed"),
            rows.len(),
            missing.len()
        );
        without.extend(missing);
        let _ = writeln!(
            body,
            "\n## {title}\n\n| keyword | support | limitations | test |\n| --- | --- | --- | --- |"
        );
        for row in &rows {
            let (word, reason) = row.status.words();
            let file = row.shown.as_deref().unwrap_or(if row.status.works() { "–" } else { "" });
            let _ = writeln!(
                body,
                "| `{}` | {word} | {} | {file} |",
                row.name.replace('|', "\\|"),
                reason.replace('|', "\\|")
            );
        }
    }
    let page = format!(
        "# Compatibility\n\nThe support for each keyword of HAProxy 3.5. Generated from the keyword tables by \
         `cargo run -p xtask -- docs`; do not edit.\n\n\
         `full`: everything in HAProxy's manual. `partial`: the rest is rejected with an error, or as the row describes. \
         `none`: rejected with an error, or accepted with a warning that it has no effect. `removed`: HAProxy 3.5 rejects it too.\n\n\
         The last column shows an end-to-end test, or a configuration loaded by the tests, that uses the keyword.\n\n\
         {summary}{}{body}",
        tests(regression_tests)
    );
    (page, without)
}

/// Returns the section on HAProxy's regression tests, from rows of test, driver, result and remark.
fn tests(list: &str) -> String {
    let rows: Vec<Vec<&str>> = list.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    let count = |result: &str| rows.iter().filter(|row| row.get(2) == Some(&result)).count();
    let (passed, skipped) = (count("passes"), count("skipped"));
    let mut out = format!(
        "\n## HAProxy's regression tests\n\n{} of its tests were run by `tools/regression-tests.sh CHECKOUT`; {passed} pass, {skipped} require an unsupported \
         feature. \
         The driver runs the scenario: Debian's `varnishtest`, or VTest if that is too old for it.\n\n\
         | test | driver | result | remark |\n| --- | --- | --- | --- |\n",
        rows.len()
    );
    for row in rows {
        let cell = |index: usize| row.get(index).copied().unwrap_or("");
        let _ = writeln!(out, "| `{}` | {} | {} | {} |", cell(0), cell(1), cell(2), cell(3));
    }
    out
}

fn line(row: &[&str], shown: &Shown) -> Row {
    let (kind, place, name) = (row[0], row[1], row[2]);
    let status = status(kind, place, name, row.get(3).copied().unwrap_or(""));
    let used = match kind {
        "section" if place == "crt-list" => shown.find(Place::Listed, name),
        "section" => shown.find(Place::Line, name),
        "proxy" if place == "option" => shown.find(Place::Line, &format!("option {name}")),
        "proxy" => shown.find(Place::Line, name),
        "bind" => shown.find(Place::Parameter("bind"), name),
        "server" => shown.find(Place::Parameter("server"), name),
        "action" => shown.find(Place::Action(place), bare(name)),
        "fetch" | "acl" => shown.find(Place::Fetch, name),
        "converter" => shown.find(Place::Converter, name),
        "cli" => shown.find(Place::Command, name),
        "filter" => shown.find(Place::Line, &format!("filter {name}")),
        "service" => shown.find(Place::Line, &format!("http-request use-service {name}")),
        _ => None,
    };
    let title = match (kind, place) {
        ("section" | "action", place) => format!("{place}: {name}"),
        ("proxy", "option") => format!("option {name}"),
        _ => name.to_owned(),
    };
    Row { name: title, status, shown: used.filter(|_| status.works()).map(str::to_owned) }
}

fn status(kind: &str, place: &str, name: &str, signature: &str) -> Status {
    match kind {
        "section" => of_section(place, name),
        "proxy" if place == "option" => of_keyword(&format!("option {name}"), Where(15)),
        // This keyword is in the manual's matrix, but HAProxy does not have it.
        "proxy" if name == "crt" => Status::Removed,
        "proxy" => of_keyword(name, Where(15)),
        "bind" => of(config::tables::bind::rows().find(|row| row.name == name).map(|row| row.support)),
        // This keyword follows `source`, which has a row.
        "server" if name == "usesrc" => FULL,
        "server" => of(config::tables::server::rows().find(|row| row.name == name).map(|row| row.support)),
        "action" => {
            let row = rules::ACTIONS.iter().find(|row| row.name == bare(name) && in_set(row, place));
            of(row.map(|row| row.support))
        }
        "fetch" => of(sample::fetch::find(name).map(|row| row.support)),
        "converter" => of(sample::convert::find(name).map(|row| row.support)),
        "acl" => {
            let fetch = signature.split(' ').next().unwrap_or(name);
            of(sample::fetch::find(fetch).map(|row| row.support))
        }
        "cli" => {
            let own = control::commands().find(|command| command.words == name);
            use control::socket::master::{COMMANDS, REFUSED};
            let of_master = COMMANDS.iter().chain(REFUSED).find(|command| command.words == name);
            // A command that workers refuse may be one of the master.
            let best = own.filter(|row| row.built || of_master.is_none()).map(|row| row.support);
            of(best.or_else(|| of_master.map(|row| row.support)))
        }
        "filter" => of(config::tables::filter::BUILT
            .iter()
            .find(|(own, _)| *own == name)
            .map(|(_, support)| *support)),
        "service" => {
            let reachable = rules::ACTIONS.iter().any(|row| row.name == "use-service");
            if reachable && name == "prometheus-exporter" { FULL } else { NOT_YET }
        }
        _ => NOT_YET,
    }
}

fn of(row: Option<Support>) -> Status {
    row.map_or(NOT_YET, Status::Row)
}

fn bare(name: &str) -> &str {
    name.split('(').next().unwrap_or(name)
}

fn in_set(row: &rules::ActionRow, place: &str) -> bool {
    let place = match place {
        "tcp-request" => "tcp-request content",
        "tcp-response" => "tcp-response content",
        other => other,
    };
    rules::Ruleset::ALL.iter().any(|set| set.name() == place && row.sets & *set as u16 != 0)
}

fn of_section(place: &str, name: &str) -> Status {
    match place {
        "global" if name == "stats" => FULL,
        "global" => of_keyword(name, Where::GLOBAL),
        "userlist" => of_keyword(name, Where::USERLIST),
        "crt-store" => of_keyword(name, Where::CRT_STORE),
        "acme" => of_keyword(name, Where::ACME),
        "traces" => of_keyword(name, Where::TRACES),
        "crt-list" => {
            of(config::tables::tls::CRT_LIST.iter().find(|row| row.name == name).map(|row| row.support))
        }
        _ => NOT_YET,
    }
}

fn of_keyword(name: &str, places: Where) -> Status {
    let matches = |row: &&Keyword| row.places.holds(places) && (row.name == name || begins(row.name, name));
    match config::tables::all().find(matches) {
        None => NOT_YET,
        Some(Keyword { apply: Apply::Removed(..), .. }) => Status::Removed,
        Some(row) => Status::Row(row.support),
    }
}

/// Returns whether `name` is the first word of a two-word keyword, which the list has too.
fn begins(row: &str, name: &str) -> bool {
    row.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '))
}
