//! Phrases that make comments and documentation read like a translation.
//!
//! Counts the matches of [`PATTERNS`] in the comments of sources and scripts and in the text of Markdown pages. Each unit (a crate,
//! a folder, a page) has a ceiling in `xtask/prose.tsv`: the number of matches when it was last written, which may only fall. A new
//! unit has no ceiling yet, only the limit. `cargo run -p xtask -- prose` prints the counts, lowers the ceilings that are too high
//! and fails if one is exceeded; with paths, it prints the matches of these files instead.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use regex::Regex;

/// The ceilings: unit and number of matches, separated by a tab.
pub(crate) const CEILINGS: &str = "xtask/prose.tsv";
/// Matches per 10,000 words that the whole repository may have, and each unit of more than
/// [`FEW_WORDS`] words. Codebases whose prose is good have 11.
const MOST: (u32, u32) = (40, 60);
/// In a unit with fewer words than this, one match alone would exceed the limit.
const FEW_WORDS: u32 = 400;

/// The patterns: name, regular expression, and words that may not follow the match.
const PATTERNS: [(&str, &str, &[&str]); 20] = [
    (
        "noun clause with `what`",
        r"(?i)(?:^|[ ,;:(])what (?:is|was|has|had|are|were|it|they|we|there|comes|came|goes|stands|remains|follows|others|\w+s|\w+ed)\b",
        &[],
    ),
    ("opens with What or Who", r"(?:^\s*(?://[/!]?|#|--|\*)? ?|[.:] )(?:What|Who|Whoever|Whatever) ", &[]),
    ("says, said for sets, specifies", r"(?i)\b(?:says?|said)\b", &[]),
    ("tells, told for reports, notifies", r"(?i)\b(?:tells?|told)\b", &[]),
    ("persons for things", r"(?i)\b(?:nobody|somebody|whoever)\b", &[]),
    ("stands for is", r"(?i)\bstands?\b", &[" for", " in for", " out"]),
    ("is none, is no X", r"(?i)\b(?:is|are|was|were) (?:none|no \w+)\b", &[]),
    (
        "where for if",
        r"(?i)(?:, |^\s*//[/!]? )where (?:a|the|it|they|there|that|this|one|some|any|no|neither|none|nobody|both|all|its|their|something|nothing|what)\b",
        &[],
    ),
    ("whose", r"(?i)\bwhose\b", &[]),
    ("so many for that many", r"(?i)\bso (?:many|much|long|few)\b", &[]),
    ("as it is", r"(?i)\bas (?:it|they) (?:is|are|was|were|came|comes|come|stands?|has|have)\b", &[]),
    ("is known of", r"(?i)\bis (?:known|left|kept|told|made|said|here|there) of\b", &[]),
    ("comes to, came of", r"(?i)\b(?:comes? to|came (?:to|of)|became of|becomes of|comes? of)\b", &[]),
    ("of its own", r"(?i)\bof (?:its|their|his|our|the \w+'s) own\b", &[]),
    ("opens with Of", r"(?:^\s*(?://[/!]?|#|--) |[.:] )Of ", &[]),
    ("beside, apart, anew, meanwhile", r"(?i)\b(?:beside|apart|anew|meanwhile)\b", &[]),
    ("as far as", r"(?i)\bas far as\b", &[]),
    ("for who", r"(?i)\b(?:for|to|by|of|from|with) who(?:ever)?\b", &[]),
    (
        "but for, in vain",
        r"(?i)\b(?:but for|all but|in vain|all the same|of late|by turns|in its turn|in their turn)\b",
        &[],
    ),
    (
        "`of` for a compound",
        r"(?i)\b(?:requests?|responses?|frames?|connections?|servers?|fields?|filters?|streams?|names?|lines?|clients?) of (?:HTTP|TCP|TLS|scripts|fields|rules|QUIC|agents|servers|caches|tables)\b",
        &[],
    ),
];

/// Words and matches of a part of the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    words: u32,
    matches: u32,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.words += other.words;
        self.matches += other.matches;
    }

    /// Matches per 10,000 words.
    fn rate(self) -> u32 {
        self.matches * 10_000 / self.words.max(1)
    }
}

/// The compiled patterns.
struct Checker(Vec<(&'static str, Regex, &'static [&'static str])>);

impl Checker {
    fn new() -> Result<Self, String> {
        let compiled = PATTERNS.map(|(name, pattern, not_before)| {
            Regex::new(pattern)
                .map(|regex| (name, regex, not_before))
                .map_err(|error| format!("{name}: {error}"))
        });
        compiled.into_iter().collect::<Result<_, _>>().map(Self)
    }

    /// The names of the patterns that a line matches, once per match.
    fn matches<'a>(&'a self, line: &'a str) -> impl Iterator<Item = &'static str> + 'a {
        self.0.iter().flat_map(move |(name, regex, not_before)| {
            let counted = regex.find_iter(line).filter(move |found| {
                !not_before.iter().any(|follows| line[found.end()..].starts_with(follows))
            });
            counted.map(move |_| *name)
        })
    }

    fn count(&self, text: &[(usize, &str)]) -> Count {
        text.iter().fold(Count::default(), |mut count, (_, line)| {
            let words = line.split_whitespace().count();
            count.add(Count { words: saturating(words), matches: saturating(self.matches(line).count()) });
            count
        })
    }
}

fn saturating(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The units over their ceiling or over the limit, and the whole if it is over the limit.
fn faults(units: &BTreeMap<String, Count>, ceilings: &BTreeMap<String, u32>) -> Vec<String> {
    let mut found = Vec::new();
    let mut all = Count::default();
    for (unit, count) in units {
        all.add(*count);
        if let Some(ceiling) = ceilings.get(unit).filter(|ceiling| count.matches > **ceiling) {
            found.push(format!(
                "{unit}: {} phrases that read like a translation, {ceiling} at most: `cargo run -p xtask -- prose {unit}` lists them",
                count.matches
            ));
        }
        if count.words > FEW_WORDS && count.rate() > MOST.1 {
            found.push(format!("{unit}: {} such phrases per 10,000 words, {} at most", count.rate(), MOST.1));
        }
    }
    if all.rate() > MOST.0 {
        found.push(format!("all: {} such phrases per 10,000 words, {} at most", all.rate(), MOST.0));
    }
    found
}

/// Prints a table of all units and lowers the ceilings, or, if `paths` are given, prints the matches of
/// these files and folders.
///
/// # Errors
/// A file cannot be read or written, or a ceiling is exceeded.
pub(crate) fn report(root: &Path, paths: &[String]) -> Result<(), String> {
    if !paths.is_empty() {
        return list(root, paths);
    }
    let (units, before) = (units(root)?, ceilings(root)?);
    let mut all = Count::default();
    let mut lowered = String::new();
    for (unit, count) in &units {
        println!(
            "{unit:32} {:6} matches {:7} words {:4} per 10,000",
            count.matches,
            count.words,
            count.rate()
        );
        all.add(*count);
        let ceiling = before.get(unit).map_or(count.matches, |ceiling| count.matches.min(*ceiling));
        let _ = writeln!(lowered, "{unit}\t{ceiling}");
    }
    println!("{:32} {:6} matches {:7} words {:4} per 10,000", "all", all.matches, all.words, all.rate());
    std::fs::write(root.join(CEILINGS), lowered).map_err(|error| format!("{CEILINGS}: {error}"))?;
    crate::none(&faults(&units, &before))
}

fn list(root: &Path, paths: &[String]) -> Result<(), String> {
    let checker = Checker::new()?;
    for file in files(root) {
        let name = shown(root, &file);
        if !paths
            .iter()
            .any(|path| name == *path || name.starts_with(&format!("{}/", path.trim_end_matches('/'))))
        {
            continue;
        }
        let source = std::fs::read_to_string(&file).map_err(|error| format!("{name}: {error}"))?;
        for (number, line) in text(&name, &source) {
            for pattern in checker.matches(line) {
                println!("{name}:{number}: [{pattern}] {}", line.trim());
            }
        }
    }
    Ok(())
}

fn ceilings(root: &Path) -> Result<BTreeMap<String, u32>, String> {
    let text =
        std::fs::read_to_string(root.join(CEILINGS)).map_err(|error| format!("{CEILINGS}: {error}"))?;
    text.lines()
        .map(|line| {
            let (unit, number) =
                line.split_once('\t').ok_or_else(|| format!("{CEILINGS}: no tab in `{line}`"))?;
            Ok((unit.to_owned(), number.parse().map_err(|error| format!("{CEILINGS}: {number}: {error}"))?))
        })
        .collect()
}

fn units(root: &Path) -> Result<BTreeMap<String, Count>, String> {
    let checker = Checker::new()?;
    let mut units = BTreeMap::<String, Count>::new();
    for file in files(root) {
        let name = shown(root, &file);
        let source = std::fs::read_to_string(&file).map_err(|error| format!("{name}: {error}"))?;
        units.entry(unit(&name).to_owned()).or_default().add(checker.count(&text(&name, &source)));
    }
    Ok(units)
}

/// The crate, folder or page to which the matches of a file are added.
fn unit(name: &str) -> &str {
    let depth =
        if ["crates/", "docs/", "tests/"].iter().any(|folder| name.starts_with(folder)) { 2 } else { 1 };
    name.match_indices('/').nth(depth - 1).map_or(name, |(end, _)| &name[..end])
}

fn shown(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

/// The sources, scripts and pages that are checked. Generated pages and the history are not.
fn files(root: &Path) -> Vec<PathBuf> {
    const SKIPPED: [&str; 5] =
        ["target", "fuzz/seeds", "docs/keywords.md", "docs/compatibility.md", "docs/runtime-api.md"];
    let (mut folders, mut files) = (vec![root.to_path_buf()], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in
            std::fs::read_dir(&folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
        {
            let name = shown(root, &path);
            let last = path.file_name().unwrap_or_default().to_string_lossy();
            if last.starts_with('.')
                || SKIPPED.contains(&&*name)
                || last == "corpus"
                || last == "generated"
                || last == "target"
            {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|kind| ["rs", "md", "lua", "sh", "py"].iter().any(|known| kind == *known))
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The lines of a file that hold prose, with their numbers from 1.
fn text<'a>(name: &str, source: &'a str) -> Vec<(usize, &'a str)> {
    let kind = name.rsplit('.').next().unwrap_or_default();
    let mut is_code = false;
    let numbered = source.lines().enumerate().map(|(index, line)| (index + 1, line));
    let prose = numbered.filter(|(_, line)| match kind {
        "md" => {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            !is_fence && !is_code && !line.starts_with("    ") && !line.trim().is_empty()
        }
        "rs" => (line.trim_start().starts_with("//") || has_trailing_comment(line)) && !line.contains("SPDX"),
        "lua" => line.contains("--"),
        _ => line.trim_start().starts_with('#') && !line.trim_start().starts_with("#!"),
    });
    prose.collect()
}

/// Whether code is followed by a comment. The `//` in `https://` does not begin one.
fn has_trailing_comment(line: &str) -> bool {
    line.match_indices("// ").any(|(at, _)| {
        !line[..at]
            .chars()
            .next_back()
            .is_some_and(|before| before == ':' || before == '"' || before.is_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<&'static str> {
        Checker::new().expect("the patterns are valid").matches(line).collect()
    }

    #[test]
    fn each_pattern_finds_its_phrase() {
        for (line, expected) in [
            (
                "/// What is kept of it.",
                vec!["noun clause with `what`", "opens with What or Who", "is known of"],
            ),
            ("the file says so", vec!["says, said for sets, specifies"]),
            ("it stands for a name and stands here", vec!["stands for is"]),
            ("// Of the server.", vec!["opens with Of"]),
            ("requests of HTTP/2, where the peer waits", vec!["where for if", "`of` for a compound"]),
            ("// Returns the address of the listener.", vec![]),
        ] {
            let mut found = found(line);
            found.sort_by_key(|name| expected.iter().position(|other| other == name));
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn code_is_not_prose() {
        let source = "let url = \"https://x\";\nlet x = 1; // says\n/// told\n";
        assert_eq!(text("a.rs", source), [(2, "let x = 1; // says"), (3, "/// told")]);
        let page = "# Title\n\n```\nnobody\n```\nEnd\n";
        assert_eq!(text("a.md", page), [(1, "# Title"), (6, "End")]);
    }

    #[test]
    fn a_rise_above_the_ceiling_is_a_fault() {
        let units = BTreeMap::from([("crates/x".to_owned(), Count { words: 1000, matches: 3 })]);
        assert!(faults(&units, &BTreeMap::from([("crates/x".to_owned(), 3)])).is_empty());
        assert_eq!(faults(&units, &BTreeMap::from([("crates/x".to_owned(), 2)])).len(), 1);
        assert!(faults(&units, &BTreeMap::new()).is_empty(), "a new unit has only the limit");
    }

    #[test]
    fn files_count_for_their_crate_or_page() {
        assert_eq!(unit("crates/tls/src/a/b.rs"), "crates/tls");
        assert_eq!(unit("docs/tls.md"), "docs/tls.md");
        assert_eq!(unit("docs/recipes/README.md"), "docs/recipes");
        assert_eq!(unit("xtask/src/main.rs"), "xtask");
        assert_eq!(unit("README.md"), "README.md");
    }

    #[test]
    fn prose_stays_below_its_ceilings() {
        let root = crate::root();
        let units = units(&root).expect("the sources are readable");
        let excesses = faults(&units, &ceilings(&root).expect("the ceilings are readable"));
        assert!(excesses.is_empty(), "{}", excesses.join("\n"));
    }
}
