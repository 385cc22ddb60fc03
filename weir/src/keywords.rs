//! `-dK`: prints the keywords of the tables in HAProxy's form, for tools that watch the language.

use config::keyword::{self, Where};
use rules::Ruleset;
use sample::args::Spec;

/// The classes: name, what `-dKhelp` says of it, and what prints it.
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

/// Prints the classes named, separated by commas.
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
    println!("# List of supported keyword classes:\nall: list all keywords");
    CLASSES.iter().for_each(|(name, what, _)| println!("{name}: {what}"));
}

fn sections() {
    println!("# List of registered configuration keywords:");
    for (title, place) in [("global", Where::GLOBAL), ("listen", Where(15)), ("userlist", Where::USERLIST)] {
        println!("{title}");
        let rows = keyword::rows().filter(|row| row.places.holds(place) && row.is_supported());
        let mut lines: Vec<String> = rows.map(|row| row.name.to_owned()).collect();
        if title == "listen" {
            lines.extend(config::bind::TABLE.iter().map(|row| parameter("bind <addr>", row.name, row.signature)));
            lines
                .extend(config::server::TABLE.iter().map(|row| parameter("server <name> <addr>", row.name, row.signature)));
            lines.extend(Ruleset::ALL.iter().flat_map(|set| actions(*set)));
        }
        lines.sort();
        lines.iter().for_each(|line| println!("\t{line}"));
    }
}

fn parameter(line: &str, name: &str, signature: &str) -> String {
    format!("{line} {name}{}", if signature.is_empty() { "" } else { " +1" })
}

fn actions(set: Ruleset) -> impl Iterator<Item = String> {
    let rows = rules::ACTIONS.iter().filter(move |row| row.built && row.sets & set as u8 != 0);
    rows.map(move |row| format!("{} {}{}", set.name(), row.name, if row.arguments.starts_with('(') { "(*)" } else { "" }))
}

fn acls() {
    println!("# List of registered ACL keywords:");
    let mut lines: Vec<String> = sample::fetch::all().map(|fetch| format!("{0} = {0}", fetch.name)).collect();
    lines.sort();
    lines.iter().for_each(|line| println!("{line}"));
}

fn fetches() {
    println!("# List of registered sample fetch functions:");
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
    lines.iter().for_each(|(_, line)| println!("{line}"));
}

fn converters() {
    println!("# List of registered sample converter functions:");
    let mut lines: Vec<String> = sample::convert::all()
        .map(|convert| {
            let shown = arguments(convert.args);
            format!("{}{shown}: {} => {}", convert.name, convert.takes.name(), convert.gives.name())
        })
        .collect();
    lines.sort();
    lines.iter().for_each(|line| println!("{line}"));
}

/// `(string[,integer])`.
fn arguments(specs: &[Spec]) -> String {
    if specs.is_empty() {
        return String::new();
    }
    let mut out = String::from("(");
    let mut open = 0;
    for (index, spec) in specs.iter().enumerate() {
        if spec.optional {
            out.push('[');
            open += 1;
        }
        out.push_str(if index > 0 { "," } else { "" });
        out.push_str(spec.kind.name());
    }
    out.push_str(&"]".repeat(open));
    out + ")"
}

fn commands() {
    println!("# List of registered CLI keywords:");
    control::commands().filter(|command| command.built).for_each(|command| println!("{} [WORKER] ", command.words));
}

fn filters() {
    println!("# List of registered filter names:");
}

fn services() {
    println!("# List of registered service names:");
    println!("prometheus-exporter");
}
