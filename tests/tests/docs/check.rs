//! Blocks that are checked without running commands: configurations and scripts.

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_tests::{check, scratch, workspace};

use crate::Page;
use crate::page::{Block, BlockKind, commands};
use crate::substitute::Substitutes;

/// Faults in configurations of a page: `path:line: messages`.
pub(crate) fn configurations(page: &Page) -> Vec<String> {
    let directory = scratch("docs-check");
    let substitutes = Substitutes::new(&directory, std::iter::empty());
    for block in &page.blocks {
        if let Some(file) = &block.file {
            write(&in_directory(&directory, &substitutes.paths(file)), &substitutes.paths(&block.text));
        }
    }
    let text = page.blocks.iter().map(|block| substitutes.paths(&block.text)).collect::<String>();
    provide(&directory, &text);
    let mut faults = Vec::new();
    for block in &page.blocks {
        let Some(text) = whole(block) else { continue };
        let file = directory.join(format!("line-{}.cfg", block.line));
        write(&file, &substitutes.paths(&text));
        let verdict = check(&file, &directory);
        let is_due =
            |text: &&str| !text.contains("has no 'bind' directive") || block.kind == BlockKind::Configuration;
        if !verdict.accepted() || verdict.warnings().iter().any(is_due) {
            faults.push(format!("{}:{}: {}\n{text}", page.path, block.line, verdict.messages));
        }
    }
    faults
}

/// Faults in the syntax of commands that are not run.
pub(crate) fn scripts(page: &Page) -> Vec<String> {
    let scripts = page.blocks.iter().filter_map(|block| match block.kind {
        BlockKind::Script => Some((block.line, block.text.clone())),
        BlockKind::RootConsole => {
            Some((block.line, commands(block).iter().map(|command| format!("{}\n", command.text)).collect()))
        }
        _ => None,
    });
    let fault = |(line, text): (usize, String)| {
        let output = Command::new("bash").args(["-n", "-c", &text]).output().expect("bash runs");
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success() || text.is_empty()).then(|| format!("{}:{line}: {messages}", page.path))
    };
    scripts.filter_map(fault).collect()
}

/// A path below the directory; paths that were substituted are already below it.
pub(crate) fn in_directory(directory: &Path, path: &str) -> PathBuf {
    // An absolute path replaces the directory.
    directory.join(path)
}

pub(crate) fn write(path: &Path, text: &str) {
    let folder = path.parent().expect("a file is in a directory");
    std::fs::create_dir_all(folder).expect("the directory takes directories");
    std::fs::write(path, text).expect("the directory takes files");
}

/// The configuration of a block, completed if it is a fragment.
fn whole(block: &Block) -> Option<String> {
    match &block.kind {
        BlockKind::Configuration => Some(block.text.clone()),
        BlockKind::Fragment(section) => Some(completed(&block.text, section.as_deref())),
        _ => None,
    }
}

/// A fragment with the sections that it needs.
fn completed(fragment: &str, section: Option<&str>) -> String {
    let mut out = String::new();
    let has = |name: &str| fragment.lines().any(|line| line.split_whitespace().next() == Some(name));
    if !has("defaults") && section != Some("defaults") {
        out.push_str(
            "defaults\n    mode http\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n",
        );
    }
    match section {
        None => out.push_str(fragment),
        Some(section) => {
            let name = if section == "global" { "" } else { "fragment" };
            out.push_str(&format!("{section} {name}\n{fragment}"));
            if matches!(section, "frontend" | "listen") && !has("bind") {
                out.push_str("    bind :8080\n");
            }
        }
    }
    let is_defined = |kinds: &[&str], name: &str| {
        let mut heads = fragment.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        heads.any(|words| words.len() > 1 && kinds.contains(&words[0]) && words[1] == name)
    };
    let mut added: Vec<String> = Vec::new();
    for (keyword, kinds, lines) in REFERENCES {
        for name in names_after(fragment, keyword) {
            let kind = kinds[0];
            let is_new = !added.iter().any(|known| *known == format!("{kind} {name}"));
            if is_new && !is_defined(kinds, name) {
                out.push_str(&format!("\n{kind} {name}\n{lines}"));
                added.push(format!("{kind} {name}"));
            }
        }
    }
    out
}

/// Keywords before the name of a section, the sections that may have that name, and lines for one.
const REFERENCES: &[(&str, &[&str], &str)] = &[
    ("use_backend", &["backend", "listen"], "    server s1 192.0.2.1:80\n"),
    ("default_backend", &["backend", "listen"], "    server s1 192.0.2.1:80\n"),
    ("mirror", &["backend", "listen"], "    server s1 192.0.2.1:80\n"),
    ("backend@", &["backend"], "    mode log\n    server s1 udp@192.0.2.1:514\n"),
    ("resolvers", &["resolvers"], "    nameserver n1 192.0.2.53:53\n"),
    ("do-resolve(txn.ip,", &["resolvers"], "    nameserver n1 192.0.2.53:53\n"),
    ("cache-use", &["cache"], "    total-max-size 4\n"),
    ("cache-purge", &["cache"], "    total-max-size 4\n    purge-tags cache-tag\n"),
    ("ring@", &["ring"], "    format iso\n    size 32768\n"),
];

/// The names after a keyword of a line, or after a prefix if the keyword ends with `@` or `,`.
fn names_after<'t>(text: &'t str, keyword: &'t str) -> impl Iterator<Item = &'t str> {
    text.lines().flat_map(move |line| {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let names: Vec<&str> = if keyword.ends_with(['@', ',']) {
            let after = words.iter().filter_map(|word| Some(word.split_once(keyword)?.1));
            after.map(|rest| rest.split([',', ')']).next().unwrap_or_default()).collect()
        } else {
            // The first word of a section's head is not a reference.
            let pairs = words.windows(2).enumerate();
            pairs
                .filter(|(at, pair)| pair[0] == keyword && (*at > 0 || line.starts_with(' ')))
                .map(|(_, pair)| pair[1])
                .collect()
        };
        names.into_iter().filter(|name| !name.contains(['%', '"', '{']))
    })
}

/// Makes the files that configurations name in the directory.
fn provide(directory: &Path, text: &str) {
    let prefix = directory.display().to_string();
    let words = text.split(|c: char| c.is_whitespace() || "\",()'=".contains(c));
    for word in words.filter(|word| word.starts_with(&prefix) || word.ends_with(".pem")) {
        let path = &directory.join(word);
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if path.exists() || matches!(extension, "sock" | "cfg" | "key" | "pid") {
            let _ = path.parent().map(std::fs::create_dir_all);
            continue;
        }
        match extension {
            "pem" | "crt" => {
                write(path, "");
                certificate(path);
            }
            "lua" => write(path, &recipe(path)),
            "http" => write(path, "HTTP/1.0 503 Unavailable\r\nContent-Length: 0\r\n\r\n"),
            "" => std::fs::create_dir_all(path).expect("the directory takes directories"),
            _ => write(path, ""),
        }
    }
}

/// The script of that name among the recipes.
fn recipe(path: &Path) -> String {
    let name = path.file_name().expect("a file has a name");
    std::fs::read_to_string(workspace().join("docs/recipes").join(name)).unwrap_or_default()
}

/// A certificate with its key, as a `crt` file has them.
fn certificate(path: &Path) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-keyout", "-", "-out", "-"])
        .output()
        .expect("openssl runs");
    std::fs::write(path, made.stdout).expect("the directory takes files");
}

#[test]
fn fragments_get_the_sections_that_they_name() {
    let text = completed("    use_backend a if TRUE\n    default_backend b\n", Some("frontend"));
    for part in ["defaults\n", "frontend fragment\n", "    bind :8080\n", "\nbackend a\n", "\nbackend b\n"] {
        assert!(text.contains(part), "{text}");
    }
    let text = completed("frontend f\n    bind :1\n    default_backend b\nbackend b\n", None);
    assert_eq!(text.matches("backend b\n").count(), 2, "{text}");
}
