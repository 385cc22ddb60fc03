//! `-dK`: prints the keywords of the tables in HAProxy's format, for tools that track the language.

use config::draft::row::Where;
use rules::Ruleset;
use sample::args::Spec;

use crate::messages::say;

/// The classes: name, description in `-dKhelp`, and print function.
#[rustfmt::skip]
const CLASSES: &[(&str, &str, fn())] = &[
    ("acl", "ACL keywords",              acls),
    ("cfg", "configuration keywords",    sections),
    ("cli", "CLI keywords",              commands),
    ("cnv", "sample converter keywords", converters),
    ("flt", "filter names",              filters),
    ("smp", "sample fetch functions",    fetches),
    ("svc", "service names",             services),
];

/// Prints the named classes, separated by commas.
pub(crate) fn dump(classes: &str) {
    for class in classes.split(',') {
        match CLASSES.iter().find(|(name, ..)| *name == class) {
            Some((_, _, print)) => print(),
            None if class == "all" => CLASSES.iter().for_each(|(_, _, print)| print()),
            None => help(),
        }
    }
}

fn help() {
    say(format_args!("# List of supported keyword classes:\nall: list all keywords"));
    CLASSES.iter().for_each(|(name, what, _)| say(format_args!("{name}: {what}")));
}

fn sections() {
    say(format_args!("# List of registered configuration keywords:"));
    for (title, place) in [
        ("global", Where::GLOBAL),
        ("listen", Where(15)),
        ("userlist", Where::USERLIST),
        ("resolvers", Where::RESOLVERS),
    ] {
        say(format_args!("{title}"));
        let rows = config::tables::all().filter(|row| row.places.holds(place) && row.is_supported());
        let mut lines: Vec<String> = rows.map(|row| row.name.to_owned()).collect();
        if title == "listen" {
            lines.extend(
                config::tables::bind::TABLE
                    .iter()
                    .map(|row| parameter("bind <addr>", row.name, row.signature)),
            );
            lines.extend(
                config::tables::server::rows()
                    .map(|row| parameter("server <name> <addr>", row.name, row.signature)),
            );
            lines.extend(Ruleset::ALL.iter().flat_map(|set| actions(*set)));
        }
        lines.sort();
        lines.iter().for_each(|line| say(format_args!("\t{line}")));
    }
}

fn parameter(line: &str, name: &str, signature: &str) -> String {
    format!("{line} {name}{}", if signature.is_empty() { "" } else { " +1" })
}

fn actions(set: Ruleset) -> impl Iterator<Item = String> {
    let rows = rules::ACTIONS.iter().filter(move |row| row.sets & set as u16 != 0);
    rows.map(move |row| {
        format!("{} {}{}", set.name(), row.name, if row.arguments.starts_with('(') { "(*)" } else { "" })
    })
}

fn acls() {
    say(format_args!("# List of registered ACL keywords:"));
    let mut lines: Vec<String> = sample::fetch::all().map(|fetch| format!("{0} = {0}", fetch.name)).collect();
    lines.sort();
    lines.iter().for_each(|line| say(format_args!("{line}")));
}

fn fetches() {
    say(format_args!("# List of registered sample fetch functions:"));
    let columns = |fetch: &sample::fetch::Fetch| {
        fetch.columns.show().chars().flat_map(|column| [column, ' ']).collect::<String>()
    };
    let mut lines: Vec<(&str, String)> = sample::fetch::all()
        .map(|fetch| {
            let shown = arguments(fetch.args);
            (fetch.name, format!("[ {}] {}{shown}: {}", columns(fetch), fetch.name, fetch.gives.name()))
        })
        .collect();
    lines.sort();
    lines.iter().for_each(|(_, line)| say(format_args!("{line}")));
}

fn converters() {
    say(format_args!("# List of registered sample converter functions:"));
    let mut lines: Vec<(&str, String)> = sample::convert::all()
        .map(|convert| {
            let shown = arguments(convert.args);
            // HAProxy prints the output type before the input type.
            let types = format!("{} => {}", convert.gives.name(), convert.takes.name());
            (convert.name, format!("{}{shown}: {types}", convert.name))
        })
        .collect();
    lines.sort();
    lines.iter().for_each(|(_, line)| say(format_args!("{line}")));
}

/// Returns for example `(string[,integer,integer])`: optional arguments in one pair of brackets.
fn arguments(specs: &[Spec]) -> String {
    if specs.is_empty() {
        return String::new();
    }
    let names = |optional| {
        let own = specs.iter().filter(move |spec: &&Spec| spec.optional == optional);
        own.map(|spec| match spec.kind.name() {
            // In HAProxy the names of variables are strings.
            "variable" => "string",
            name => name,
        })
        .collect::<Vec<_>>()
        .join(",")
    };
    match (names(false), names(true)) {
        (needed, more) if more.is_empty() => format!("({needed})"),
        (needed, more) if needed.is_empty() => format!("([{more}])"),
        (needed, more) => format!("({needed}[,{more}])"),
    }
}

fn commands() {
    say(format_args!("# List of registered CLI keywords:"));
    control::commands()
        .filter(|command| command.built)
        .for_each(|command| say(format_args!("{} [WORKER] ", command.words)));
}

fn filters() {
    say(format_args!("# List of registered filter names:"));
}

fn services() {
    say(format_args!("# List of registered service names:"));
    say(format_args!("prometheus-exporter"));
}
