//! Differences between two configurations in a readable form: added and removed sections, servers and sockets by name, settings
//! with both values, rules by number.
//!
//! Compares the text (`plan::said`), not its effect: a line that is written differently is reported as changed even if it means the
//! same.

use std::collections::{BTreeMap, HashMap};

use control::DifferenceFormat;
use plan::source_text::{PlacedSection, SourceLine, SourceSection};

/// How a section, or something in it, differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Added,
    Removed,
    Changed,
}

impl How {
    fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
        }
    }

    /// Returns green, red or yellow.
    fn colour(self) -> &'static str {
        match self {
            Self::Added => "\x1b[32m",
            Self::Removed => "\x1b[31m",
            Self::Changed => "\x1b[33m",
        }
    }
}

/// A difference within a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) how: How,
    /// `server s3`, `timeout server`, `2 rules`.
    pub(crate) what: String,
    /// The old and the new value, if they are short.
    pub(crate) values: Option<(String, String)>,
}

/// A section that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Changed {
    /// `backend app`.
    pub(crate) title: String,
    pub(crate) how: How,
    pub(crate) changes: Vec<Difference>,
}

/// Returns all differences between `old` and `new`.
pub(crate) fn between(old: &[PlacedSection], new: &[PlacedSection]) -> Vec<Changed> {
    let mut before: BTreeMap<String, Vec<&PlacedSection>> = BTreeMap::new();
    for section in old {
        before.entry(section.title()).or_default().push(section);
    }
    let mut found: Vec<Changed> = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for section in new {
        let title = section.title();
        let at = seen.entry(title.clone()).or_default();
        let former = before.get(&title).and_then(|all| all.get(*at)).copied();
        *at += 1;
        match former {
            None => found.push(Changed { title, how: How::Added, changes: Vec::new() }),
            Some(former) => {
                let changes = lines(former, section);
                if !changes.is_empty() {
                    found.push(Changed { title, how: How::Changed, changes });
                }
            }
        }
    }
    for (title, all) in before {
        let left = all.len().saturating_sub(seen.get(&title).copied().unwrap_or(0));
        found.extend((0..left).map(|_| Changed {
            title: title.clone(),
            how: How::Removed,
            changes: Vec::new(),
        }));
    }
    found
}

/// Keywords with lines that are identified by their first argument.
const NAMED: &[&str] = &[
    "server",
    "server-template",
    "bind",
    "stats socket",
    "nameserver",
    "mailer",
    "user",
    "group",
    "errorfile",
    "setenv",
    "presetenv",
    "set-var",
    "dgram-bind",
];

/// Keywords that are rules, or work like rules: only the number of differences is reported.
const RULES: &[&str] = &[
    "http-request",
    "http-response",
    "http-after-response",
    "tcp-request",
    "tcp-response",
    "use_backend",
    "use-server",
    "redirect",
    "stick",
    "http-check",
    "tcp-check",
    "filter",
    "capture",
    "force-persist",
    "ignore-persist",
    "monitor",
];

fn is_rule(keyword: &str) -> bool {
    let first = keyword.split(' ').next().unwrap_or_default();
    RULES.contains(&first) && !keyword.ends_with("inspect-delay") && keyword != "monitor-uri"
}

/// Returns the key that identifies a line, and the rest of the line.
fn key(line: &SourceLine) -> (String, &str) {
    let text = &*line.text;
    let (sign, rest) = ["no ", "default "]
        .iter()
        .find_map(|sign| text.strip_prefix(sign).map(|rest| (*sign, rest)))
        .unwrap_or(("", text));
    let value = rest.strip_prefix(line.keyword).unwrap_or(rest).trim_start();
    if NAMED.contains(&line.keyword) {
        let (name, value) = value.split_once(' ').unwrap_or((value, ""));
        return (format!("{sign}{} {name}", line.keyword), value);
    }
    if line.keyword == "acl" {
        let (name, value) = value.split_once(' ').unwrap_or((value, ""));
        return (format!("acl {name}"), value);
    }
    (format!("{sign}{}", line.keyword), value)
}

/// Returns the differences within a section.
fn lines(old: &SourceSection, new: &SourceSection) -> Vec<Difference> {
    let mut changes = Vec::new();
    if old.from != new.from {
        changes.push(Difference {
            how: How::Changed,
            what: "from".to_owned(),
            values: Some((old.from.to_string(), new.from.to_string())),
        });
    }
    let (mut before, mut now) = (Lines::of(old), Lines::of(new));
    for key in std::mem::take(&mut now.order) {
        let (old, new) = (before.by_key.remove(&key).unwrap_or_default(), &now.by_key[&key]);
        setting(key, &old, new, &mut changes);
    }
    for key in before.order {
        if let Some(old) = before.by_key.remove(&key) {
            setting(key, &old, &[], &mut changes);
        }
    }
    let count = rules(&before.rules, &now.rules);
    if count > 0 {
        let what = if count == 1 { "1 rule".to_owned() } else { format!("{count} rules") };
        changes.push(Difference { how: How::Changed, what, values: None });
    }
    changes
}

/// The lines of a section by their keys, and its rules.
#[derive(Default)]
struct Lines<'a> {
    order: Vec<String>,
    by_key: HashMap<String, Vec<&'a str>>,
    rules: Vec<&'a str>,
}

impl<'a> Lines<'a> {
    fn of(section: &'a SourceSection) -> Self {
        let mut all = Self::default();
        for line in &section.lines {
            if is_rule(line.keyword) {
                all.rules.push(&line.text);
                continue;
            }
            let (key, value) = key(line);
            let values = all.by_key.entry(key.clone()).or_default();
            if values.is_empty() {
                all.order.push(key);
            }
            values.push(value);
        }
        all
    }
}

/// The maximum length of values that are shown.
const SHORT: usize = 60;

fn setting(what: String, old: &[&str], new: &[&str], changes: &mut Vec<Difference>) {
    if old == new {
        return;
    }
    let how = match (old.is_empty(), new.is_empty()) {
        (true, _) => How::Added,
        (_, true) => How::Removed,
        _ => How::Changed,
    };
    let (before, now) = (old.join(", "), new.join(", "));
    let shows = how == How::Changed && before.len() <= SHORT && now.len() <= SHORT;
    // An added setting is shown with its value, an added server by its name.
    let named =
        NAMED.iter().any(|keyword| what.starts_with(&format!("{keyword} "))) || what.starts_with("acl ");
    let what = match how {
        How::Added if !named && !now.is_empty() && now.len() <= SHORT => format!("{what} {now}"),
        _ => what,
    };
    changes.push(Difference { how, what, values: shows.then_some((before, now)) });
}

/// Counts the rules that differ. A rule that was replaced is counted once. If only the order differs, counts the rules that have
/// moved.
fn rules(old: &[&str], new: &[&str]) -> usize {
    if old == new {
        return 0;
    }
    let mut left: HashMap<&str, i64> = HashMap::new();
    old.iter().for_each(|rule| *left.entry(rule).or_default() += 1);
    new.iter().for_each(|rule| *left.entry(rule).or_default() -= 1);
    let gone: i64 = left.values().filter(|count| **count > 0).sum();
    let come: i64 = -left.values().filter(|count| **count < 0).sum::<i64>();
    match gone.max(come) {
        0 => old.iter().zip(new).filter(|(old, new)| old != new).count(),
        count => count as usize,
    }
}

/// Renders all differences in the requested format, with a final line break.
pub(crate) fn show(all: &[Changed], shown: DifferenceFormat) -> String {
    match shown {
        DifferenceFormat::Json => json(all),
        DifferenceFormat::Text => text(all, false),
        DifferenceFormat::Colours => text(all, true),
    }
}

fn text(all: &[Changed], colours: bool) -> String {
    if all.is_empty() {
        return "nothing has changed\n".to_owned();
    }
    let paint = |how: How, text: String| match colours {
        true => format!("{}{text}\x1b[0m", how.colour()),
        false => text,
    };
    let title = |text: &str| match colours {
        true => format!("\x1b[1m{text}\x1b[0m"),
        false => text.to_owned(),
    };
    let change = |change: &Difference| {
        let text = match &change.values {
            Some((old, new)) => format!("{} {} → {}", change.what, unless_empty(old), unless_empty(new)),
            None => format!("{} {}", change.what, change.how.word()),
        };
        paint(change.how, text)
    };
    let section = |one: &Changed| match one.changes.is_empty() {
        true => format!("{} {}", title(&one.title), paint(one.how, one.how.word().to_owned())),
        false => {
            let changes: Vec<String> = one.changes.iter().map(change).collect();
            format!("{}: {}", title(&one.title), changes.join(", "))
        }
    };
    let sections: Vec<String> = all.iter().map(section).collect();
    format!("{}; nothing else\n", sections.join("; "))
}

fn unless_empty(value: &str) -> &str {
    if value.is_empty() { "(none)" } else { value }
}

fn json(all: &[Changed]) -> String {
    let change = |change: &Difference| {
        let mut text = format!("{{\"change\":\"{}\",\"what\":{}", change.how.word(), string(&change.what));
        if let Some((old, new)) = &change.values {
            text.push_str(&format!(",\"from\":{},\"to\":{}", string(old), string(new)));
        }
        text + "}"
    };
    let section = |one: &Changed| {
        let changes: Vec<String> = one.changes.iter().map(change).collect();
        format!(
            "{{\"section\":{},\"change\":\"{}\",\"changes\":[{}]}}",
            string(&one.title),
            one.how.word(),
            changes.join(",")
        )
    };
    let sections: Vec<String> = all.iter().map(section).collect();
    format!("[{}]\n", sections.join(","))
}

/// Returns a JSON string (RFC 8259, 7).
fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if (control as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", control as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use config::{Boot, load_text};

    use super::*;

    fn sections(text: &str) -> Vec<PlacedSection> {
        let timeouts = "defaults\n mode http\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n";
        load_text("t.cfg", &format!("{timeouts}{text}"), &Boot::default()).plan.expect("a plan").source
    }

    const OLD: &str = "frontend web\n bind 127.0.0.1:1\n http-request deny if { path /a }\n http-request set-header x y\n default_backend app\nbackend app\n timeout server 30s\n server s1 127.0.0.1:2\n server s2 127.0.0.1:3\nbackend gone\n";

    #[test]
    fn differences_are_rendered_for_people() {
        let new = "frontend web\n bind 127.0.0.1:1\n http-request deny if { path /b }\n http-request set-header x z\n default_backend app\nbackend app\n timeout server 60s\n server s1 127.0.0.1:2\n server s2 127.0.0.1:3 weight 5\n server s3 127.0.0.1:4\nbackend come\n";
        let all = between(&sections(OLD), &sections(new));
        assert_eq!(
            show(&all, DifferenceFormat::Text),
            "frontend web: 2 rules changed; backend app: timeout server 30s → 60s, server s2 127.0.0.1:3 → 127.0.0.1:3 weight 5, server s3 added; backend come added; backend gone removed; nothing else\n"
        );
        assert!(show(&all, DifferenceFormat::Json).contains(
            "{\"section\":\"backend app\",\"change\":\"changed\",\"changes\":[{\"change\":\"changed\",\"what\":\"timeout server\",\"from\":\"30s\",\"to\":\"60s\"}"
        ));
        assert!(show(&all, DifferenceFormat::Colours).contains("\x1b[32mserver s3 added\x1b[0m"));
    }

    #[test]
    fn equivalent_spelling_is_not_a_difference() {
        let spaced = OLD.replace(' ', "   ");
        assert_eq!(
            show(&between(&sections(OLD), &sections(&spaced)), DifferenceFormat::Text),
            "nothing has changed\n"
        );
        assert_eq!(show(&[], DifferenceFormat::Json), "[]\n");
    }

    #[test]
    fn reordered_rules_count_as_changed() {
        assert_eq!(rules(&["a", "b", "c"], &["a", "c", "b"]), 2);
        assert_eq!(rules(&["a", "b"], &["a"]), 1);
        assert_eq!(rules(&["a"], &["b", "c"]), 2);
    }
}
