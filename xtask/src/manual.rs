//! Manual pages and shell completions for packages, from the tables and from the text of `--help`.
//!
//! `cargo run -p xtask -- manual FOLDER` writes them. They are not kept in the repository: only packages
//! install them.

use std::fmt::Write;
use std::path::Path;

use crate::completions;
use crate::help::{HelpEntry, HelpSection, load_sections, sections};
use crate::reference::{self, ReferenceTable};

/// Writes all pages and completions into `folder`.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(folder: &Path) -> Result<(), String> {
    let options: Vec<HelpEntry> = sections().into_iter().skip(1).flat_map(|(_, entries)| entries).collect();
    let load: Vec<HelpEntry> = load_sections().into_iter().flat_map(|(_, entries)| entries).collect();
    for (name, text) in [
        ("weir.8", program_page()),
        ("weir.cfg.5", configuration_page()),
        ("weir-api.8", runtime_page()),
        ("weir-load.8", load_page()),
        ("weir.bash", completions::bash(&options, &load)),
        ("_weir", completions::zsh(&options, &load)),
        ("weir.fish", completions::fish(&options, &load)),
    ] {
        std::fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn program_page() -> String {
    let mut page = heading("WEIR", 8, "weir", "load balancer and reverse proxy");
    page += ".SH SYNOPSIS\n.B weir\n.RB [ options ]\n.BR \\-f \" FILE|DIR ...\"\n.br\n.B weir diff\n.BR \\-f \" FILE\"\n.BR \\-\\-socket \" SOCKET\"\n.RB [ \\-\\-json ]\n\
             .br\n.B weir haterm\n.BR \\-L \" [ADDRESS]:PORT[:TLSPORT] ...\"\n.RB [ options ]\n\
             .br\n.B weir health\n.BR \\-f \" FILE\"\n.RB [ \\-\\-timeout \" SECONDS\" ]\n\
             .br\n.B weir load\n.RB [ options ]\n.BR URL \" ...\"\n";
    page += ".SH DESCRIPTION\nWeir is a load balancer and reverse proxy for TCP, TLS, HTTP/1 and HTTP/2. It reads an unmodified \
             haproxy.cfg and answers to the command line, runtime socket, logs and statistics of HAProxy.\n";
    for (index, (title, entries)) in sections().into_iter().enumerate() {
        let title =
            if index == 0 { "EXAMPLES".to_owned() } else { format!("{} OPTIONS", title.to_uppercase()) };
        help_section(&mut page, &(title, entries));
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
    page + ".SH EXIT STATUS\n0 on success and after a stop by a signal, 1 if the configuration or the command line is wrong.\n.SH SEE ALSO\n.BR weir.cfg (5),\n.BR weir-api (8),\n.BR weir-load (8)\n"
}

/// Writes a section of a help text.
fn help_section(page: &mut String, (title, entries): &HelpSection) {
    let _ = writeln!(page, ".SH {title}");
    for entry in entries {
        let _ = writeln!(page, ".TP\n.B {}\n{}", escaped(&entry.flags), text(&entry.text));
    }
}

fn load_page() -> String {
    let mut page = heading("WEIR-LOAD", 8, "weir-load", "load generator for HTTP/1, HTTP/2 and HTTP/3");
    page += ".SH SYNOPSIS\n.B weir load\n.RB [ options ]\n.BR URL \" ...\"\n\
             .SH DESCRIPTION\nSends requests to servers and reports rates, errors and latencies. A URL is http://, https:// or \
             quic://HOST[:PORT][/PATH]. Each user requests the URLs in turn, over one connection to each server. A line is printed \
             each second, and a report at the end. The first interrupt ends the run, and the second one does not wait for requests in \
             flight. A program called haload has the same options.\n";
    for (title, entries) in load_sections() {
        help_section(&mut page, &(format!("{} OPTIONS", title.to_uppercase()), entries));
    }
    page + ".SH EXIT STATUS\n0 if the load was generated, whatever the responses were, and 1 if the command line cannot be used.\n\
            .SH SEE ALSO\n.BR weir (8)\n"
}

fn configuration_page() -> String {
    let mut page = heading("WEIR.CFG", 5, "weir.cfg", "configuration of weir");
    page += ".SH DESCRIPTION\nThe configuration has the language of haproxy.cfg: sections, each with keywords, one per line. \
             This page lists the supported keywords with their arguments and one line on each. The letters after a proxy keyword \
             are the sections that accept it: D for defaults, F for frontend, L for listen, B for backend. HAProxy's configuration \
             manual describes each keyword in full.\n";
    for table in reference::tables(false) {
        keywords(&mut page, &table);
    }
    page + ".SH SEE ALSO\n.BR weir (8),\n.BR weir-api (8)\n"
}

fn runtime_page() -> String {
    let mut page = heading("WEIR-API", 8, "weir-api", "commands of weir's runtime socket");
    page += ".SH DESCRIPTION\nA `stats socket` line in the global section opens a socket for commands, one per line; several are \
             separated by semicolons. The level of the line (user, operator, admin) restricts them. For example:\n.PP\n.EX\n\
             echo \"show info; show stat\" | socat \\- /run/haproxy/admin.sock\n.EE\n";
    for table in reference::commands() {
        keywords(&mut page, &table);
    }
    page + ".SH SEE ALSO\n.BR weir (8),\n.BR weir.cfg (5)\n"
}

fn heading(title: &str, section: u8, name: &str, purpose: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        ".\\\" Generated by `cargo run -p xtask -- manual`.\n.TH {title} {section} \"\" \"Weir {version}\" \"Weir\"\n.SH NAME\n{} \\- {purpose}\n",
        escaped(name)
    )
}

fn keywords(page: &mut String, table: &ReferenceTable) {
    let title = table.title.to_uppercase().replace('`', "");
    let _ = writeln!(page, ".SH {}", escaped(&title));
    let is_of_proxies = table.title.starts_with("Proxies");
    for row in &table.rows {
        let mut arguments = String::new();
        for (column, cell) in table.columns.iter().zip(row).skip(1).take(table.columns.len() - 2) {
            let _ = match *column {
                "sections" if !is_of_proxies => Ok(()),
                "type" | "output" => write!(arguments, " -> {cell}"),
                _ => write!(arguments, " {cell}"),
            };
        }
        let (name, doc) = (escaped(&row[0]), text(&row[row.len() - 1]));
        let _ = writeln!(page, ".TP\n\\fB{name}\\fR{}\n{doc}", escaped(arguments.trim_end()));
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
