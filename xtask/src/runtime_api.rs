//! `docs/runtime-api.md`: the commands of the runtime socket and of a master's socket, from their tables, with example answers.
//!
//! The examples are in `docs/runtime-api/*.txt`, one file for each section of the page. A test runs them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use base::keyword_support::Support;
use control::CommandRow;
use control::socket::master;

use crate::anchors::Anchors;

/// The folder of the examples and of their configuration.
const FOLDER: &str = "docs/runtime-api";
/// The configuration of the process to which the examples were given.
const CONFIGURATION: &str = "haproxy.cfg";
/// The section of the master's commands.
const MASTER: &str = "master";

/// A section of the page.
struct Subject {
    /// The name of its file, without `.txt`.
    file: &'static str,
    title: &'static str,
    /// The first words of the section's commands. The longest match over all sections decides.
    starts: &'static [&'static str],
}

const fn subject(file: &'static str, title: &'static str, starts: &'static [&'static str]) -> Subject {
    Subject { file, title, starts }
}

const SUBJECTS: &[Subject] = &[
    subject(
        "session",
        "The session on the socket",
        &[
            "echo",
            "experimental-mode",
            "expert-mode",
            "help",
            "operator",
            "prompt",
            "quit",
            "set anon",
            "set severity-output",
            "set timeout",
            "show anon",
            "show cli",
            "user",
            "wait",
        ],
    ),
    subject(
        "process",
        "Process",
        &[
            "_getsocks",
            "get var",
            "reload",
            "save config",
            "set maxconn global",
            "set rate-limit",
            "set var",
            "show config",
            "show env",
            "show info",
            "show startup-logs",
            "show version",
        ],
    ),
    subject(
        "statistics",
        "Statistics",
        &["clear counters", "dump stats-file", "show schema json", "show stat"],
    ),
    subject(
        "servers",
        "Frontends, backends and servers",
        &[
            "add backend",
            "add server",
            "del backend",
            "del server",
            "disable",
            "enable",
            "get weight",
            "publish backend",
            "refresh discovery",
            "set dynamic-cookie-key",
            "set maxconn",
            "set server",
            "set weight",
            "show backend",
            "show default",
            "show discovery",
            "show hedge",
            "show mirror",
            "show outliers",
            "show retry-budget",
            "show servers",
            "shutdown frontend",
            "unpublish backend",
        ],
    ),
    subject(
        "streams",
        "Sessions and streams",
        &["show errors", "show quic", "show sess", "shutdown session"],
    ),
    subject("tables", "Stick tables", &["clear table", "set table", "show table"]),
    subject(
        "patterns",
        "Maps and ACLs",
        &[
            "add acl",
            "add map",
            "clear acl",
            "clear map",
            "commit acl",
            "commit map",
            "del acl",
            "del map",
            "get acl",
            "get map",
            "prepare",
            "set map",
            "show acl",
            "show map",
        ],
    ),
    subject(
        "certificates",
        "Certificates",
        &[
            "abort ssl",
            "acme",
            "add ssl",
            "commit ssl",
            "del ssl",
            "dump ssl",
            "new ssl",
            "set ssl",
            "show ssl",
            "show tls-keys",
            "update ssl",
        ],
    ),
    subject("caches", "Caches", &["clear cache", "show cache"]),
    subject("peers", "Peers and resolvers", &["show peers", "show resolvers"]),
    subject(
        "debugging",
        "Debugging",
        &[
            "debug",
            "explain",
            "httpclient",
            "set profiling",
            "show activity",
            "show dev",
            "show events",
            "show fd",
            "show libs",
            "show opentelemetry",
            "show pools",
            "show profiling",
            "show tasks",
            "show threads",
            "show trace",
            "trace",
        ],
    ),
];

/// A command line with its answer.
#[derive(Debug, PartialEq, Eq)]
struct Example {
    /// The line of the file.
    line: usize,
    command: String,
    /// The lines to show, with those of the command.
    shown: Vec<String>,
}

/// Returns the whole page.
///
/// # Errors
/// A command has no example or no section, or an example names no command.
pub(crate) fn page(root: &Path) -> Result<String, String> {
    let mut sections = vec![Vec::new(); SUBJECTS.len()];
    let (built, missing): (Vec<_>, Vec<_>) = control::commands().partition(|row| row.built);
    for row in built {
        let subject = subject_of(row.words).ok_or_else(|| format!("`{}` has no section", row.words))?;
        sections[subject].push(row);
    }
    let mut parts: Vec<(&str, &str, Vec<CommandRow>)> =
        SUBJECTS.iter().zip(sections).map(|(subject, rows)| (subject.file, subject.title, rows)).collect();
    parts.push((MASTER, "The master's socket", master::COMMANDS.to_vec()));
    let mut anchors = Anchors::default();
    let (mut index, mut body) = (String::new(), String::new());
    for (file, title, rows) in &parts {
        let path = format!("{FOLDER}/{file}.txt");
        let text = std::fs::read_to_string(root.join(&path)).map_err(|error| format!("{path}: {error}"))?;
        let mut examples = by_command(examples(&text), rows).map_err(|error| format!("{path}:{error}"))?;
        let _ = write!(index, "- [{title}](#{}):", anchors.add(title));
        let _ = write!(body, "\n## {title}\n");
        if *file == MASTER {
            body.push_str(ABOUT_MASTER);
        }
        for (at, row) in rows.iter().enumerate() {
            let own = examples
                .remove(row.words)
                .ok_or_else(|| format!("{path}: `{}` has no example", row.words))?;
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(index, "{comma} [`{}`](#{})", row.words, anchors.add(row.words));
            entry(&mut body, row, &own, if *file == MASTER { "master" } else { "" });
        }
        index.push('\n');
    }
    let path = format!("{FOLDER}/{CONFIGURATION}");
    let configuration =
        std::fs::read_to_string(root.join(&path)).map_err(|error| format!("{path}: {error}"))?;
    let mut out = format!("{INTRODUCTION}\n{index}{body}");
    refused(&mut out, missing.iter().chain(master::REFUSED));
    let _ = write!(out, "\n## The configuration of the examples\n\n```haproxy\n{configuration}```\n");
    Ok(out)
}

const INTRODUCTION: &str = "# Runtime API

Every command of the runtime socket (`stats socket` in `global`) and of the master's socket (`-S`), with an example. \
[The runtime socket](runtime-socket.md) lists the differences from HAProxy. Made from the tables of commands and from \
`docs/runtime-api` by `cargo run -p xtask -- docs`; do not edit.

A connection takes one line and closes after the answer, unless `prompt` keeps it open. The examples show the prompts of that \
mode: commands follow `> `, and lines of a payload follow `+ `. From a shell:

```sh
echo \"show info\" | socat - /run/haproxy/admin.sock
```

- `;` separates commands on one line.
- `<<` at the end of a line begins a payload. It ends with an empty line, or with the word after `<<`.
- A backslash before a space, a semicolon or a backslash makes it a part of the word.
- An answer ends with an empty line, which the examples omit. The answer to a command with nothing to report is the empty \
line alone.

Each entry has the level that the command requires: `user`, `operator` or `admin`. The `level` parameter of `stats socket` sets \
the level of a connection. `…` replaces parts of an answer. The [configuration of the examples](#the-configuration-of-the-examples) \
is at the end.
";

const ABOUT_MASTER: &str = "
The master process (`-W`, `-Ws`) has a socket if `-S` gives its address. The master runs these commands itself. `@1` or `@!<pid>` \
before a command forwards it to a worker.
";

/// The index of the subject of a command.
fn subject_of(words: &str) -> Option<usize> {
    let starts = SUBJECTS.iter().enumerate().flat_map(|(at, subject)| {
        let matching = subject.starts.iter().filter(|start| words.starts_with(**start));
        matching.map(move |start| (start.len(), at))
    });
    starts.max().map(|(_, at)| at)
}

/// The examples of a file: command lines after `> `, lines of a payload after `+ `, then the answer up to an empty line. Lines
/// that begin with `# ` before a command are for the test.
fn examples(text: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut is_open = false;
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(command) = text.strip_prefix("> ") {
            found.push(Example { line, command: command.to_owned(), shown: vec![text.to_owned()] });
            is_open = true;
        } else if text.is_empty() {
            is_open = false;
        } else if is_open && let Some(example) = found.last_mut() {
            example.shown.push(text.to_owned());
        }
    }
    found
}

/// The examples of each command.
///
/// # Errors
/// `line: message` if a line is for none of the commands.
fn by_command(examples: Vec<Example>, rows: &[CommandRow]) -> Result<BTreeMap<&str, Vec<Example>>, String> {
    let mut found: BTreeMap<&str, Vec<Example>> = BTreeMap::new();
    for example in examples {
        // Other commands on the line may enable a mode before it, or show the effect after it.
        let mut parts = example.command.split(';').map(str::trim);
        let first = parts.find_map(|part| command_of(part, rows));
        let words = first.ok_or_else(|| format!("{}: `{}` is no command", example.line, example.command))?;
        found.entry(words).or_default().push(example);
    }
    Ok(found)
}

/// The command of a line: the one with the most words.
fn command_of<'r>(line: &str, rows: &'r [CommandRow]) -> Option<&'r str> {
    let is_meant = |words: &str| match words.split_once('<') {
        // `@!<pid>`: a number or `…` follows the mark.
        Some((start, _)) => {
            let rest = line.strip_prefix(start.trim_end_matches("[!]"));
            let is_number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit() || c == '…');
            rest.is_some_and(is_number)
        }
        None => line.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')),
    };
    let matching = rows.iter().map(|row| row.words).filter(|words| is_meant(words));
    matching.max_by_key(|words| words.len())
}

/// Writes a command with its examples, without those that look the same. `prompt` goes before the `> ` of command lines.
fn entry(out: &mut String, row: &CommandRow, examples: &[Example], prompt: &str) {
    let _ = write!(out, "\n### `{}`\n\n", row.words);
    let usage = format!("{} {}", row.words, row.usage);
    let _ = write!(out, "`{}` · level {}", usage.trim_end(), row.level.name());
    if let Some(mode) = row.mode {
        let _ = write!(out, ", after `{mode} on`");
    }
    let _ = write!(out, "\n\n{}", sentence(row.doc));
    if let Support::Partial(difference) = row.support {
        let _ = write!(out, " Differs from HAProxy: {difference}.");
    }
    out.push_str("\n\n```text\n");
    for (at, example) in examples.iter().enumerate() {
        if examples[..at].iter().all(|other| other.shown != example.shown) {
            let _ = writeln!(out, "{prompt}{}", example.shown.join("\n"));
        }
    }
    out.push_str("```\n");
}

/// A description as a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

fn refused<'a>(out: &mut String, rows: impl Iterator<Item = &'a CommandRow>) {
    out.push_str("\n## Commands of HAProxy that Weir does not have\n\n| command | reason |\n| --- | --- |\n");
    for row in rows {
        let usage = format!("{} {}", row.words, row.usage);
        let reason = match row.support {
            Support::None(reason) => reason,
            _ => row.doc,
        };
        let _ = writeln!(out, "| `{}` | {reason} |", usage.trim_end().replace('|', "\\|"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_belong_to_the_first_command_of_their_line() {
        let rows: Vec<CommandRow> = control::commands().chain(master::COMMANDS.iter().copied()).collect();
        let text =
            "# request /\n> set anon on 1; show anon\nOn\n\n> show servers state app\n+ a\n1\n\nnot shown\n";
        let found = by_command(examples(text), &rows).expect("each has a command");
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["set anon on", "show servers state"]);
        assert_eq!(found["show servers state"][0].shown, ["> show servers state app", "+ a", "1"]);
        assert!(by_command(examples("> show servers\n"), &rows).is_err_and(|error| error.starts_with("1: ")));
        for (line, words) in [
            ("@1 show info", "@<relative pid>"),
            ("@!4711", "@!<pid>"),
            ("@@1 quit", "@@[!]<pid>"),
            ("@master help", "@master"),
        ] {
            assert_eq!(command_of(line, &rows), Some(words), "{line}");
        }
    }

    #[test]
    fn each_built_command_has_a_section() {
        let without = |row: &CommandRow| row.built && subject_of(row.words).is_none();
        let found: Vec<&str> = control::commands().filter(without).map(|row| row.words).collect();
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(subject_of("set maxconn global").map(|at| SUBJECTS[at].file), Some("process"));
        assert_eq!(subject_of("set maxconn server").map(|at| SUBJECTS[at].file), Some("servers"));
    }
}
