//! Manual pages and shell completions for packages, from the tables and from the text of `--help`.
//!
//! `cargo run -p xtask -- manual FOLDER` writes them. They are not kept in the repository: only packages
//! install them.

use std::fmt::Write;
use std::path::Path;

use base::keyword_support::Support;
use config::draft::row::Where;
use config::keyword::Apply;

use crate::completions;
use crate::help::{HelpEntry, sections};

/// Writes all pages and completions into `folder`.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(folder: &Path) -> Result<(), String> {
    let options: Vec<HelpEntry> = sections().into_iter().skip(1).flat_map(|(_, entries)| entries).collect();
    for (name, text) in [
        ("weir.8", program_page()),
        ("weir.cfg.5", configuration_page()),
        ("weir-api.8", runtime_page()),
        ("weir.bash", completions::bash(&options)),
        ("_weir", completions::zsh(&options)),
        ("weir.fish", completions::fish(&options)),
    ] {
        std::fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn program_page() -> String {
    let mut page = heading("WEIR", 8, "weir", "load balancer and reverse proxy");
    page += ".SH SYNOPSIS\n.B weir\n.RB [ options ]\n.BR \\-f \" FILE|DIR ...\"\n.br\n.B weir diff\n.BR \\-f \" FILE\"\n.BR \\-\\-socket \" SOCKET\"\n.RB [ \\-\\-json ]\n\
             .br\n.B weir health\n.BR \\-f \" FILE\"\n.RB [ \\-\\-timeout \" SECONDS\" ]\n";
    page += ".SH DESCRIPTION\nWeir is a load balancer and reverse proxy for TCP, TLS, HTTP/1 and HTTP/2. It reads an unmodified \
             haproxy.cfg and answers to the command line, runtime socket, logs and statistics of HAProxy.\n";
    for (index, (title, entries)) in sections().into_iter().enumerate() {
        let title =
            if index == 0 { "EXAMPLES".to_owned() } else { format!("{} OPTIONS", title.to_uppercase()) };
        let _ = writeln!(page, ".SH {title}");
        for entry in entries {
            let _ = writeln!(page, ".TP\n.B {}\n{}", escaped(&entry.flags), text(&entry.text));
        }
    }
    page += ".SH SIGNALS\n";
    for (signal, effect) in [
        (
            "SIGUSR1",
            "stop listening, and end once all connections have ended or `hard-stop-after` has passed",
        ),
        ("SIGTERM, SIGINT", "end at once"),
        (
            "SIGUSR2",
            "reload: the master starts a new worker; with `reload in-place`, the process reads its configuration again",
        ),
        ("SIGHUP", "print the state of all servers; the master reloads"),
    ] {
        let _ = writeln!(page, ".TP\n.B {signal}\n{}", text(effect));
    }
    page += ".SH FILES\n";
    for (file, purpose) in [
        ("/etc/haproxy/haproxy.cfg", "the configuration that the service `weir` reads"),
        ("/etc/default/weir", "arguments of the service"),
        ("/run/haproxy/", "runtime sockets"),
        ("/usr/share/doc/weir/", "the documentation and examples"),
    ] {
        let _ = writeln!(page, ".TP\n.I {file}\n{}", text(purpose));
    }
    page + ".SH EXIT STATUS\n0 on success and after a stop by a signal, 1 if the configuration or the command line is wrong.\n.SH SEE ALSO\n.BR weir.cfg (5),\n.BR weir-api (8)\n"
}

fn configuration_page() -> String {
    let mut page = heading("WEIR.CFG", 5, "weir.cfg", "configuration of weir");
    page += ".SH DESCRIPTION\nThe configuration has the language of haproxy.cfg: sections, each with keywords, one per line. \
             This page lists the supported keywords with their arguments and one line on each. The letters behind a proxy keyword \
             are the sections that accept it: D for defaults, F for frontend, L for listen, B for backend. HAProxy's configuration \
             manual describes each keyword in full.\n";
    let sections = [
        ("GLOBAL", Where::GLOBAL),
        ("PROXIES", Where(15)),
        ("USERLIST", Where::USERLIST),
        ("HTTP-ERRORS", Where::ERRORS),
        ("RESOLVERS", Where::RESOLVERS),
        ("MAILERS", Where::MAILERS),
        ("TRACES", Where::TRACES),
    ];
    for (title, place) in sections {
        let rows = config::tables::all()
            .filter(|row| row.places.holds(place) && !matches!(row.apply, Apply::Removed(..)))
            .filter(|row| works(row.support));
        let rows = rows.map(|row| {
            let letters = if title == "PROXIES" { row.places.letters() } else { String::new() };
            (row.name, format!("{} {letters}", row.signature), row.doc)
        });
        keywords(&mut page, title, rows);
    }
    let binds = config::tables::bind::rows().filter(|row| works(row.support));
    keywords(&mut page, "BIND LINES", binds.map(|row| (row.name, row.signature.to_owned(), row.doc)));
    let servers = config::tables::server::rows().filter(|row| works(row.support));
    keywords(&mut page, "SERVER LINES", servers.map(|row| (row.name, row.signature.to_owned(), row.doc)));
    for set in rules::Ruleset::ALL {
        let rows = rules::ACTIONS.iter().filter(|row| works(row.support) && row.sets & set as u8 != 0);
        let title = format!("{} ACTIONS", set.name().to_uppercase());
        keywords(&mut page, &title, rows.map(|row| (row.name, row.arguments.to_owned(), row.doc)));
    }
    let fetches = sample::fetch::all();
    keywords(
        &mut page,
        "SAMPLE FETCHES",
        fetches.map(|fetch| (fetch.name, format!("-> {}", fetch.gives.name()), fetch.doc)),
    );
    let converters = sample::convert::all();
    keywords(
        &mut page,
        "CONVERTERS",
        converters.map(|row| (row.name, format!("{} -> {}", row.takes.name(), row.gives.name()), row.doc)),
    );
    page + ".SH SEE ALSO\n.BR weir (8),\n.BR weir-api (8)\n"
}

fn runtime_page() -> String {
    let mut page = heading("WEIR-API", 8, "weir-api", "commands of weir's runtime socket");
    page += ".SH DESCRIPTION\nA `stats socket` line in the global section opens a socket for commands, one per line; several are \
             separated by semicolons. The level of the line (user, operator, admin) restricts them. For example:\n.PP\n.EX\n\
             echo \"show info; show stat\" | socat \\- /run/haproxy/admin.sock\n.EE\n";
    let commands = control::commands().filter(|command| command.built);
    let all = commands.map(|command| (command.words, command.usage.to_owned(), command.doc));
    keywords(&mut page, "COMMANDS", all);
    let master = control::socket::master::COMMANDS.iter();
    keywords(
        &mut page,
        "COMMANDS OF THE MASTER",
        master.map(|command| (command.words, command.usage.to_owned(), command.doc)),
    );
    page + ".SH SEE ALSO\n.BR weir (8),\n.BR weir.cfg (5)\n"
}

fn works(support: Support) -> bool {
    !matches!(support, Support::None(_))
}

fn heading(title: &str, section: u8, name: &str, purpose: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        ".\\\" Generated by `cargo run -p xtask -- manual`.\n.TH {title} {section} \"\" \"Weir {version}\" \"Weir\"\n.SH NAME\n{} \\- {purpose}\n",
        escaped(name)
    )
}

fn keywords<'a>(page: &mut String, title: &str, rows: impl Iterator<Item = (&'a str, String, &'a str)>) {
    let _ = writeln!(page, ".SH {title}");
    for (name, arguments, doc) in rows {
        let arguments = arguments.trim();
        let _ = writeln!(page, ".TP\n\\fB{}\\fR {}\n{}", escaped(name), escaped(arguments), text(doc));
    }
}

/// Text with `code` in bold.
fn text(source: &str) -> String {
    let mut out = String::new();
    for (index, part) in source.split('`').enumerate() {
        let part = escaped(part);
        if index % 2 == 1 {
            let _ = write!(out, "\\fB{part}\\fR");
        } else {
            out += &part;
        }
    }
    // A control line begins with one of these.
    if out.starts_with(['.', '\'']) { format!("\\&{out}") } else { out }
}

/// `source` with the characters escaped that have a meaning in roff.
fn escaped(source: &str) -> String {
    let out = source.replace('\\', "\\e").replace('-', "\\-");
    if out.starts_with(['.', '\'']) { format!("\\&{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_have_all_keywords_and_valid_lines() {
        let (program, configuration, runtime) = (program_page(), configuration_page(), runtime_page());
        assert!(
            configuration.contains("\\fBhttp\\-request\\fR") && configuration.contains("\\fBbalance\\fR")
        );
        assert!(runtime.contains("\\fBshow stat\\fR"));
        for page in [program, configuration, runtime] {
            for line in page.lines().filter(|line| line.starts_with('.')) {
                let known =
                    [".\\\"", ".TH", ".SH", ".TP", ".B ", ".BR", ".RB", ".I ", ".PP", ".EX", ".EE", ".br"];
                assert!(known.iter().any(|request| line.starts_with(request)), "{line}");
            }
        }
    }
}
