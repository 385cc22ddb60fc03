//! The anchors of headings, as GitHub makes them.

use std::collections::{BTreeMap, BTreeSet};

/// The anchors given on one page.
#[derive(Default)]
pub(crate) struct Anchors(BTreeMap<String, usize>);

impl Anchors {
    /// Returns the anchor of the next heading, which is numbered if an earlier one has the same anchor.
    pub(crate) fn add(&mut self, heading: &str) -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
        let count = self.0.entry(anchor.clone()).or_default();
        *count += 1;
        if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
    }
}

/// Returns the anchors of a Markdown page: of its headings, and those written as `<a name="…">` or `id="…"`.
pub(crate) fn of_page(markdown: &str) -> BTreeSet<String> {
    let mut anchors = Anchors::default();
    let mut found = BTreeSet::new();
    let mut is_code = false;
    for line in markdown.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        let text = line.trim_start_matches('#');
        if text.len() < line.len() && text.starts_with(' ') {
            found.insert(anchors.add(&without_targets(text.trim())));
        }
        for mark in ["name=\"", "id=\""] {
            let named = line.split(mark).skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(named.map(str::to_owned));
        }
    }
    found
}

/// Removes the targets of links, which are not part of a heading's text.
fn without_targets(heading: &str) -> String {
    let mut parts = heading.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_unique() {
        let mut anchors = Anchors::default();
        let headings = ["Maps and ACLs", "show cli level", "@!<pid>", "@@[!]<pid>", "acme challenge_ready"];
        let made = headings.map(|heading| anchors.add(heading));
        assert_eq!(made, ["maps-and-acls", "show-cli-level", "pid", "pid-1", "acme-challenge_ready"]);
    }

    #[test]
    fn pages_have_the_anchors_of_their_headings() {
        let text = "# A page\n## 503: `a` and [b](c.md)\n```text\n# not one\n```\n#tag\n<a id=\"own\"></a>\n## A page\n";
        let found: Vec<String> = of_page(text).into_iter().collect();
        assert_eq!(found, ["503-a-and-b", "a-page", "a-page-1", "own"]);
    }
}
