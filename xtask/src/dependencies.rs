//! Checks dependencies against the rules of `deny.toml`: licences, duplicate versions, sources.
//!
//! cargo-deny checks more (including advisories), but takes minutes to build and downloads advisories. This check needs only `cargo
//! metadata`. It covers the dependencies of the machine's own target.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The rules, relative to the workspace.
const RULES: &str = "deny.toml";

/// The rules of `deny.toml`.
#[derive(Debug, Default, PartialEq)]
struct Rules {
    /// SPDX identifiers of the permitted licences.
    licences: Vec<String>,
    /// Permitted second versions: name and beginning of the version.
    skipped: Vec<(String, String)>,
}

/// A package of the dependency graph.
struct Package {
    name: String,
    version: String,
    /// An SPDX expression, or one of the older form with `/`.
    licence: String,
    /// `None` for packages of the workspace.
    source: Option<String>,
}

/// Returns every violation of the rules in the workspace at `root`.
///
/// # Errors
/// The rules cannot be read, or `cargo metadata` fails.
pub(crate) fn breaches(root: &Path) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(root.join(RULES)).map_err(|error| format!("{RULES}: {error}"))?;
    let rules = rules(&text);
    let packages = packages(root)?;
    let mut found = Vec::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let Package { name, version, licence, source } = package;
        if !allows(licence, &rules.licences) {
            found.push(format!("{name} {version} has the licence `{licence}`, which {RULES} does not allow"));
        }
        if !source.as_ref().is_some_and(|source| source.starts_with("registry+")) {
            found.push(format!("{name} {version} is not from the registry"));
        }
    }
    found.extend(duplicates(&packages, &rules.skipped));
    Ok(found)
}

/// Parses the rules that this check supports, from their two sections.
fn rules(text: &str) -> Rules {
    let mut rules = Rules::default();
    let (mut section, mut list) = ("", "");
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(title) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            (section, list) = (title, "");
            continue;
        }
        let values = match line.split_once(" = [") {
            Some((name, values)) => {
                list = name;
                values
            }
            None => line,
        };
        match (section, list) {
            ("licenses", "allow") => rules.licences.extend(quoted(values).map(str::to_owned)),
            ("bans", "skip") => {
                let package = quoted(values).next().and_then(|package| package.split_once('@'));
                rules.skipped.extend(package.map(|(name, version)| (name.to_owned(), version.to_owned())));
            }
            _ => {}
        }
        if line.ends_with(']') {
            list = "";
        }
    }
    rules
}

/// Returns the texts in quotation marks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// Returns additional versions of a package that no entry permits, and unused entries.
fn duplicates(packages: &[Package], skipped: &[(String, String)]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let is = |version: &str, beginning: &str| {
        version.strip_prefix(beginning).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let mut found = Vec::new();
    for (name, versions) in &versions {
        let allowed = |version: &str| skipped.iter().any(|(own, part)| own == name && is(version, part));
        let left: Vec<&str> = versions.iter().copied().filter(|version| !allowed(version)).collect();
        if left.len() > 1 {
            found.push(format!("{name} is there in the versions {}", left.join(", ")));
        }
    }
    for (name, part) in skipped {
        let of_name = versions.get(name.as_str());
        if !of_name.is_some_and(|all| all.len() > 1 && all.iter().any(|version| is(version, part))) {
            found.push(format!("{RULES}: `{name}@{part}` need not be skipped any more"));
        }
    }
    found
}

/// Returns whether a licence expression can be satisfied by these licences.
fn allows(expression: &str, licences: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&words, &mut at, licences) && at == words.len()
}

/// Evaluates `a OR b`, which binds less tightly than `AND`.
fn either(words: &[&str], at: &mut usize, licences: &[String]) -> bool {
    let mut holds = both(words, at, licences);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        holds |= both(words, at, licences);
    }
    holds
}

/// Evaluates `a AND b`.
fn both(words: &[&str], at: &mut usize, licences: &[String]) -> bool {
    let mut holds = one(words, at, licences);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        holds &= one(words, at, licences);
    }
    holds
}

/// Evaluates a licence, one `WITH` an exception, or an expression in parentheses.
fn one(words: &[&str], at: &mut usize, licences: &[String]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let holds = either(words, at, licences);
        *at += usize::from(words.get(*at) == Some(&")"));
        return holds;
    }
    if words.get(*at) == Some(&"WITH") {
        // An exception permits more than the licence alone.
        *at += 2;
    }
    licences.iter().any(|licence| licence == word)
}

/// Returns the packages needed for the machine's own target.
fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(root).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(text.into_owned()) } else { Err(format!("{program}: {errors}")) }
    };
    let about = run("rustc", &["-vV"])?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    let arguments = ["metadata", "--locked", "--format-version", "1", "--filter-platform", host];
    let metadata: Value = serde_json::from_str(&run("cargo", &arguments)?)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(packages
        .iter()
        .map(|package| Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: text(&package["license"]),
            source: package["source"].as_str().map(str::to_owned),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_follow_the_rules() {
        let found = breaches(&crate::root()).expect("the rules and the dependencies are readable");
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }

    #[test]
    fn rules_are_read_from_their_sections() {
        let text = "[licenses]\n# \"GPL-3.0\"\nallow = [\"MIT\", \"ISC\"]\n[bans]\nmultiple-versions = \"deny\"\nskip = [\n    \
                    { crate = \"a@0.1\", reason = \"b\" },\n]\n[sources]\nallow = [\"other\"]\n";
        let owned = |text: &str| text.to_owned();
        let expected =
            Rules { licences: vec![owned("MIT"), owned("ISC")], skipped: vec![(owned("a"), owned("0.1"))] };
        assert_eq!(rules(text), expected);
    }

    #[test]
    fn licence_expressions_are_evaluated() {
        let licences = ["MIT".to_owned(), "Apache-2.0".to_owned()];
        let cases = [
            ("MIT", true),
            ("GPL-3.0", false),
            ("", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("MIT AND (GPL-3.0 OR Apache-2.0)", true),
            ("MIT OR GPL-3.0 AND BSL-1.0", true),
            ("(MIT OR GPL-3.0) AND BSL-1.0", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
            ("MIT MIT", false),
        ];
        for (expression, expected) in cases {
            assert_eq!(allows(expression, &licences), expected, "{expression}");
        }
    }

    #[test]
    fn duplicate_versions_and_entries_must_match() {
        let package = |version: &str| Package {
            name: "a".to_owned(),
            version: version.to_owned(),
            licence: String::new(),
            source: None,
        };
        let entry = |version: &str| ("a".to_owned(), version.to_owned());
        let both = [package("0.1.7"), package("0.10.2")];
        assert_eq!(duplicates(&both, &[entry("0.1")]), Vec::<String>::new());
        assert_eq!(duplicates(&both, &[]), ["a is there in the versions 0.1.7, 0.10.2"]);
        let unneeded = "deny.toml: `a@0.1` need not be skipped any more";
        assert_eq!(duplicates(&both[..1], &[entry("0.1")]), [unneeded]);
        assert_eq!(duplicates(&both[1..], &[entry("0.1")]), [unneeded]);
    }
}
