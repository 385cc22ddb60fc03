//! Finds a line's row in the keyword tables, or composes the error for an unknown keyword.

use std::collections::HashMap;
use std::sync::OnceLock;

use diag::{Diagnostic, suggest};
use syntax::Word;

use crate::draft::keyword::{Apply, Keyword};
use crate::draft::row::{KeywordRow, Where, not_supported, sections};
use crate::draft::{self, Section, SectionKind};
use crate::surface;
use crate::tables;

/// Keywords that name other proxies. On a proxy without the side they apply to, such a line has no effect, but its names must still
/// be valid.
const NAMES_OTHERS: &[&str] = &["default_backend", "monitor fail", "use-server", "use_backend"];

/// The warning for a line that names other proxies in a section that cannot use it.
pub(crate) fn without_side(words: &[Word], row: &KeywordRow, within: &Section) -> Option<Diagnostic> {
    (!row.places.holds(within.kind.place())).then(|| misplaced(words, row, within))
}

/// Any proxy section except `defaults`.
const PROXIES: Where = Where(Where::F.0 | Where::L.0 | Where::B.0);

/// All rows by their first word.
static INDEX: OnceLock<HashMap<&'static str, Vec<&'static Keyword>>> = OnceLock::new();

fn index() -> &'static HashMap<&'static str, Vec<&'static Keyword>> {
    INDEX.get_or_init(|| {
        let mut index: HashMap<&'static str, Vec<&'static Keyword>> = HashMap::new();
        for row in tables::all() {
            let first = row.name.split(' ').next().unwrap_or(row.name);
            index.entry(first).or_default().push(row);
        }
        // Two-word names come first, so that the longest match wins.
        index.values_mut().for_each(|rows| rows.sort_by_key(|row| std::cmp::Reverse(row.words())));
        index
    })
}

/// Finds the row of a line with its keyword at `words[0]`, in a section of kind `place`.
pub(crate) fn find(words: &[Word], within: &Section) -> Result<&'static Keyword, Diagnostic> {
    let (place, section) = (within.kind.place(), within.keyword.as_str());
    let first = &words[0];
    let rows = index().get(first.as_str()).map_or(&[][..], Vec::as_slice);
    let matches = |row: &&&'static Keyword| {
        row.name
            .split(' ')
            .skip(1)
            .zip(1..)
            .all(|(part, at)| words.get(at).is_some_and(|word| names(word, part)))
    };
    if let Some(row) = rows.iter().filter(|row| row.places.holds(place)).find(matches) {
        return Ok(row);
    }
    // If several rows have that name, the row for proxies makes the most useful message.
    let of_proxies =
        |row: &&&'static Keyword| within.kind.is_proxy() && row.places.holds(PROXIES) && matches(row);
    if let Some(row) = rows.iter().find(of_proxies).or_else(|| rows.iter().find(matches)) {
        // The section's own parser gives a better message than "wrong section".
        let removed = within.kind.inherits() && matches!(row.apply, Apply::Removed(..));
        if removed || NAMES_OTHERS.contains(&row.name) && within.kind.inherits() {
            return Ok(row);
        }
        return Err(misplaced(words, row, within));
    }
    if rows.iter().any(|row| row.places.holds(place)) {
        return Err(unknown_second(words, rows, place, section));
    }
    Err(unknown(first, place, section))
}

/// Whether `word` matches the `part` of a keyword's name; a variable in parentheses may follow.
fn names(word: &Word, part: &str) -> bool {
    *word == part
        || part.ends_with("-var") | part.ends_with("-var-fmt")
            && word.strip_prefix(part).is_some_and(|rest| rest.starts_with('('))
}

/// The error for a keyword of another section. If only the side of the proxy does not fit, HAProxy ignores the line with a warning.
fn misplaced(words: &[Word], row: &KeywordRow, within: &Section) -> Diagnostic {
    let (name, section) = (row.name, within.keyword.as_str());
    let span = words[0].span().to(words[row.words() - 1].span());
    let only_a_side = within.kind.inherits() && row.places.holds(PROXIES);
    let side = if within.kind == SectionKind::Frontend { "backend" } else { "frontend" };
    if !only_a_side {
        let haproxy = match row.places.holds(PROXIES) && within.kind == SectionKind::Defaults {
            true => format!("'{name}' not allowed in 'defaults' section."),
            false => format!("unknown keyword '{name}' in '{section}' section"),
        };
        let error = Diagnostic::alert(format!("`{name}` is not allowed in `{section}` sections"))
            .at(span)
            .label(format!("allowed in: {}", sections(row.places)))
            .haproxy(haproxy);
        return match within.kind {
            SectionKind::UdpLb => {
                let way_out = for_datagrams(name);
                error
                    .help(way_out)
                    .haproxy(format!("'{name}' is not allowed in 'udp-lb' sections: {way_out}."))
            }
            _ => error,
        };
    }
    let title = format!("{section} `{}` has no {side} side", within.name);
    let own = format!("{section} '{}' has no {side} capability.", within.name);
    let refused = |haproxy: String| {
        Diagnostic::alert(format!("`{name}` is not allowed here: {title}"))
            .at(span)
            .label(format!("allowed in: {}", sections(row.places)))
            .haproxy(haproxy)
    };
    // Unlike settings, rules must not be ignored: requests that they were meant to refuse would be accepted.
    match name {
        "tcp-request connection" | "tcp-request session" => {
            refused(format!("{name} is not allowed because {section} {} is not a frontend", within.name))
        }
        "tcp-response content" | "tcp-response inspect-delay" => {
            refused(format!("{name} is only allowed in 'backend' sections or 'defaults' section with a name"))
        }
        "server" | "server-template" | "default-server" => {
            refused(format!("'{name}' not allowed because {own}"))
        }
        "be-unpublished" | "retry-on" => {
            refused(format!("'{name}' only available in backend or listen section"))
        }
        "force-be-switch" => refused(format!("'{name}' only available in frontend or listen section.")),
        "declare capture" => refused("'declare' only available in frontend or listen section".to_owned()),
        _ => Diagnostic::warning(format!("`{name}` is ignored: {title}"))
            .at(span)
            .label(format!("allowed in: {}", sections(row.places)))
            .haproxy(format!("'{name}' ignored because {own}{}", instead(name))),
    }
}

/// The replacement in a `udp-lb` section for a keyword of other proxies.
fn for_datagrams(name: &str) -> &'static str {
    let first = name.split(' ').next().unwrap_or(name);
    match (first, name) {
        ("bind", _) => "use `dgram-bind`",
        ("mode", _) => "remove it: a `udp-lb` section always forwards datagrams",
        ("tcp-request" | "tcp-response" | "http-request" | "http-response" | "quic-initial", _) => {
            "use `udp-request`, for the first datagram of a session"
        }
        ("use_backend", _) => "use `default_backend`, or `use-server` for a choice by condition",
        ("stick" | "cookie" | "persist", _) => {
            "a client keeps its server for a session; `balance source` also keeps it afterwards"
        }
        ("timeout", _) => "use `timeout session`, or `timeout client` and `timeout server`",
        ("retries" | "retry-on", _) | (_, "option redispatch") => {
            "remove it: datagrams are not repeated, and the next session begins at another server"
        }
        (_, "option httplog" | "option tcplog" | "option httpslog") => {
            "remove it: sessions are logged in their own format, unless `log-format` sets another"
        }
        ("backlog" | "fullconn", _) => "use `maxconn`, which limits the sessions",
        ("transparent", _) | (_, "option transparent") => {
            "use `dgram-bind … transparent`, and `source 0.0.0.0 usesrc clientip` for servers"
        }
        _ => "if servers need it, put them in a `backend`, and name that by `default_backend`",
    }
}

/// The keyword that was probably meant.
fn instead(name: &str) -> &'static str {
    match name {
        "maxconn" => " Maybe you want 'fullconn' instead ?",
        _ => "",
    }
}

fn unknown_second(words: &[Word], rows: &[&'static Keyword], place: Where, section: &str) -> Diagnostic {
    let first = words[0].as_str();
    let seconds: Vec<&str> = rows
        .iter()
        .filter(|row| row.places.holds(place))
        .filter_map(|row| row.name.split_once(' ').map(|(_, second)| second))
        .collect();
    let Some(second) = words.get(1) else {
        return Diagnostic::alert(format!("`{first}` is incomplete"))
            .at(words[0].span())
            .label(format!("one of: {}", seconds.join(", ")))
            .haproxy(format!("'{first}' expects an argument ({})", seconds.join(", ")));
    };
    let bare = second.split('(').next().unwrap_or(second);
    if surface::is_known(&format!("{first} {bare}")) {
        return not_supported(&format!("{first} {bare}")).at(words[0].span().to(second.span()));
    }
    let near = suggest(second, seconds.iter().copied());
    let mut message =
        Diagnostic::alert(format!("unknown {first} `{second}` in `{section}` section")).at(second.span());
    message = match near {
        Some(_) => message.did_you_mean(near),
        None if seconds.len() <= 16 => message.help(format!("one of: {}", seconds.join(", "))),
        None => message,
    };
    let mut haproxy = match first {
        "option" if near.is_some() => format!("unknown option '{second}'"),
        "option" => format!("unknown option '{second}'."),
        _ => format!("'{first}' does not know '{second}'."),
    };
    if let Some(near) = near {
        haproxy.push_str(&format!("; did you mean '{near}' maybe ?"));
    }
    message.haproxy(haproxy)
}

fn unknown(first: &Word, place: Where, section: &str) -> Diagnostic {
    if surface::is_known_in(first, place) {
        return not_supported(first).at(first.span());
    }
    let near = nearest(first, place);
    let mut haproxy = format!("unknown keyword '{first}' in '{section}' section");
    if let Some(near) = near {
        haproxy.push_str(&format!("; did you mean '{near}' maybe ?"));
    }
    Diagnostic::alert(format!("unknown keyword `{first}` in `{section}` section"))
        .at(first.span())
        .did_you_mean(near)
        .haproxy(haproxy)
}

/// The word that was probably meant by an unknown keyword.
fn nearest(first: &str, place: Where) -> Option<&'static str> {
    let here = index().iter().filter(|(_, rows)| rows.iter().any(|row| row.places.holds(place)));
    let mut names: Vec<&'static str> =
        here.map(|(name, _)| *name).chain(surface::first_words(place)).collect();
    names.sort_unstable();
    // It may also be a misspelled section, but an equally similar keyword is more likely.
    suggest(first, names.into_iter().chain(draft::section_names()))
}

/// Whether a line with an unknown keyword was probably meant to begin a section, which then contains the following lines.
pub(crate) fn may_begin_section(first: &str, place: Where) -> bool {
    let is_section = |near: &str| draft::section_names().any(|name| name == near);
    // Few words are similar to a section name, and only for those the other names must be searched.
    suggest(first, draft::section_names()).is_some()
        && !index().contains_key(first)
        && nearest(first, place).is_some_and(is_section)
}
