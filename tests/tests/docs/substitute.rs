//! Paths and ports of pages, replaced by those of a test.

use std::collections::BTreeMap;
use std::path::Path;

use weir_tests::free_port;

/// Directories in which pages have files. They are replaced by directories of the test.
const DIRECTORIES: [&str; 9] = [
    "/etc/weir",
    "/etc/haproxy",
    "/etc/ssl/private",
    "/run/weir",
    "/run/haproxy",
    "/var/cache/weir",
    "/var/lib/weir",
    "/var/lib/haproxy",
    "/var/log/weir",
];

pub(crate) struct Substitutes {
    root: String,
    ports: BTreeMap<u16, u16>,
}

impl Substitutes {
    /// Free ports for all ports that `texts` name after a colon, and directories below `root`.
    pub(crate) fn new<'t>(root: &Path, texts: impl Iterator<Item = &'t str>) -> Self {
        let ports = texts.flat_map(ports_in).map(|port| (port, free_port())).collect();
        Self { root: root.display().to_string(), ports }
    }

    /// These ports by those of `text`, free ports for its others, and directories below `root`.
    pub(crate) fn with_ports(root: &Path, text: &str, known: BTreeMap<u16, u16>) -> Self {
        let mut substitutes = Self::new(root, std::iter::once(text));
        substitutes.ports.extend(known);
        substitutes
    }

    /// The port of the test in the place of one of a page.
    pub(crate) fn port(&self, port: u16) -> u16 {
        *self.ports.get(&port).expect("the port of a page")
    }

    /// A path of a page, in the test.
    pub(crate) fn paths(&self, text: &str) -> String {
        DIRECTORIES
            .iter()
            .fold(text.to_owned(), |text, path| text.replace(path, &format!("{}{path}", self.root)))
    }

    /// A configuration or a command of a page, for the test.
    pub(crate) fn apply(&self, text: &str) -> String {
        numbers_replaced(&self.paths(text), |number| self.ports.get(&number).copied())
    }

    /// Output of the test, as the page shows it.
    pub(crate) fn revert(&self, text: &str) -> String {
        let back = |number: u16| self.ports.iter().find(|(_, free)| **free == number).map(|(port, _)| *port);
        numbers_replaced(&text.replace(&self.root, ""), back)
    }
}

fn ports_in(text: &str) -> impl Iterator<Item = u16> {
    text.match_indices(':').filter_map(|(at, _)| {
        let rest = &text[at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok().filter(|port| *port >= 1024)
    })
}

/// Replaces whole numbers that are not part of a word, a fraction or an address.
fn numbers_replaced(text: &str, replacement: impl Fn(u16) -> Option<u16>) -> String {
    let is_inner = |c: char| c.is_alphanumeric() || c == '.' || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[start..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |len| start + len);
        let before = rest[..start].chars().next_back().or(out.chars().next_back());
        let is_alone = !before.is_some_and(is_inner)
            && !rest[end..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let number = rest[start..end].parse().ok().filter(|_| is_alone).and_then(&replacement);
        out.push_str(&rest[..start]);
        match number {
            Some(number) => out.push_str(&number.to_string()),
            None => out.push_str(&rest[start..end]),
        }
        rest = &rest[end..];
    }
    out + rest
}

#[test]
fn ports_and_directories_are_replaced_and_reverted() {
    let page = "bind :8080 # 8080, not 18080 or 10.0.0.8080\ncrt /etc/weir/a.pem";
    let substitutes = Substitutes::new(Path::new("/tmp/x"), [page].into_iter());
    let applied = substitutes.apply(page);
    assert!(!applied.contains(":8080 # 8080,") && applied.contains("18080 or 10.0.0.8080"), "{applied}");
    assert!(applied.ends_with("crt /tmp/x/etc/weir/a.pem"), "{applied}");
    assert_eq!(substitutes.revert(&applied), page);
}
