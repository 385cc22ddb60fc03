//! The names of everything that HAProxy 3.5 accepts in sections, bind and server lines, to tell unsupported words from misspelled
//! ones.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use crate::draft::row::Where;

/// One name per line: kind, section or class, name, and for proxy keywords the letters of the manual's matrix, separated by tabs.
const NAMES: &str = include_str!("../data/surface.tsv");

struct SurfaceNames {
    all: HashSet<&'static str>,
    by_first: HashMap<&'static str, u32>,
    options: HashSet<&'static str>,
    bind: HashSet<&'static str>,
    server: HashSet<&'static str>,
}

static INDEX: OnceLock<SurfaceNames> = OnceLock::new();

fn names() -> &'static SurfaceNames {
    INDEX.get_or_init(|| {
        let mut names = SurfaceNames {
            all: HashSet::new(),
            by_first: HashMap::new(),
            options: HashSet::new(),
            bind: HashSet::new(),
            server: HashSet::new(),
        };
        for line in NAMES.lines() {
            let mut columns = line.split('\t');
            let (kind, class) = (columns.next().unwrap_or(""), columns.next().unwrap_or(""));
            let name = columns.next().unwrap_or("");
            let places = match (kind, class) {
                ("proxy", "option") => {
                    names.options.insert(name);
                    continue;
                }
                ("bind", _) => {
                    names.bind.insert(name);
                    continue;
                }
                ("server", _) => {
                    names.server.insert(name);
                    continue;
                }
                ("proxy", _) => places_of(columns.next().unwrap_or("")),
                ("section", "global") => Where::GLOBAL,
                ("section", "userlist") => Where::USERLIST,
                ("section", "resolvers") => Where::RESOLVERS,
                _ => continue,
            };
            names.all.insert(name);
            *names.by_first.entry(name.split(' ').next().unwrap_or(name)).or_default() |= places.0;
        }
        names
    })
}

fn places_of(letters: &str) -> Where {
    let bit = |letter| match letter {
        'D' => Where::D,
        'F' => Where::F,
        'L' => Where::L,
        'B' => Where::B,
        _ => Where(0),
    };
    letters.chars().fold(Where(0), |all, letter| all.or(bit(letter)))
}

/// Whether the one or two words are a section keyword or, after `option`, an option.
pub(crate) fn is_known(name: &str) -> bool {
    names().all.contains(name)
        || name.strip_prefix("option ").is_some_and(|option| names().options.contains(option))
}

/// Whether any keyword of sections of kind `place` begins with the word.
pub(crate) fn is_known_in(first: &str, place: Where) -> bool {
    names().by_first.get(first).is_some_and(|places| Where(*places).holds(place))
}

/// The first words of the keywords of sections of kind `place`.
pub(crate) fn first_words(place: Where) -> impl Iterator<Item = &'static str> {
    names().by_first.iter().filter(move |(_, places)| Where(**places).holds(place)).map(|(name, _)| *name)
}

/// Whether the word is a `bind` parameter.
pub(crate) fn is_bind_keyword(name: &str) -> bool {
    names().bind.contains(name)
}

/// All parameters of `bind` lines.
pub(crate) fn bind_keywords() -> impl Iterator<Item = &'static str> {
    names().bind.iter().copied()
}

/// Whether the word is a `server` parameter.
pub(crate) fn is_server_keyword(name: &str) -> bool {
    names().server.contains(name)
}

/// All parameters of `server` lines.
pub(crate) fn server_keywords() -> impl Iterator<Item = &'static str> {
    names().server.iter().copied()
}
