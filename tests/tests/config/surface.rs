//! Coverage of HAProxy's keywords: compares the keyword tables with the list of its keywords. The counts are printed (`cargo test
//! -p weir-tests --test config surface -- --nocapture`); the assertion is that every keyword is either implemented or refused
//! explicitly.

use std::collections::{BTreeMap, HashSet};

use sample::args::{ArgKind, Spec};

/// Returns the list (kind, place, keyword and signature, one per line), which is generated from HAProxy.
fn surface() -> String {
    let path = weir_tests::workspace().join("docs/surface.tsv");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The status of a keyword.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fate {
    Done,
    Refused,
    Absent,
}

fn fate(kind: &str, place: &str, name: &str) -> Option<Fate> {
    let of = |done: bool, refused: bool| match (done, refused) {
        (true, _) => Fate::Done,
        (_, true) => Fate::Refused,
        _ => Fate::Absent,
    };
    Some(match kind {
        "fetch" => of(sample::fetch::find(name).is_some(), false),
        "converter" => of(sample::convert::find(name).is_some(), false),
        "action" => {
            let bare = name.split(['(', ' ']).next().unwrap_or_default();
            let row = rules::ACTIONS
                .iter()
                .find(|row| row.name == bare || row.prefix && bare.starts_with(row.name));
            let here = row.filter(|row| {
                rules::Ruleset::ALL.iter().any(|set| set.name() == place && row.sets & *set as u16 != 0)
            });
            of(here.is_some(), false)
        }
        _ => return None,
    })
}

#[test]
fn all_haproxy_keywords_are_implemented_or_refused() {
    let surface = surface();
    let mut counts: BTreeMap<(&str, Fate), usize> = BTreeMap::new();
    let mut absent = Vec::new();
    let mut seen = HashSet::new();
    for line in surface.lines().skip(1) {
        let mut columns = line.split('\t');
        let (kind, place) = (columns.next().unwrap_or_default(), columns.next().unwrap_or_default());
        let name = columns.next().unwrap_or_default();
        let Some(fate) = fate(kind, place, name) else { continue };
        assert!(seen.insert((kind, place, name)), "{line} stands twice");
        *counts.entry((kind, fate)).or_default() += 1;
        if fate == Fate::Absent {
            absent.push(format!("{kind} {place} {name}"));
        }
    }
    for ((kind, fate), count) in &counts {
        println!("{kind}: {count} {}", format!("{fate:?}").to_lowercase());
    }
    assert!(absent.is_empty(), "{absent:#?}");
}

/// Compares arguments, value and place of each row with HAProxy's.
#[test]
fn keyword_tables_match_haproxy_signatures() {
    let surface = surface();
    let mut wrong = Vec::new();
    for line in surface.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [kind, place, name, signature] = columns[..] else { continue };
        let args =
            signature.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or("", |(args, _)| args);
        let counts = |args: &str| {
            let (needed, optional) =
                args.split_once('[').map_or((args, ""), |(needed, optional)| (needed, optional));
            let count = |part: &str| part.split([',', ']', '[']).filter(|arg| !arg.is_empty()).count();
            (count(needed), count(needed) + count(optional))
        };
        let own = match kind {
            "fetch" => sample::fetch::find(name).map(|row| (row.args, Some(row.columns.show()))),
            "converter" => sample::convert::find(name).map(|row| (row.args, None)),
            _ => None,
        };
        let Some((specs, columns)) = own else { continue };
        if let Some(columns) = columns.filter(|columns| *columns != place) {
            wrong.push(format!("{kind} {name}: {columns} here, {place} there"));
        }
        // Weir's own last argument `own` of counts in stick tables.
        let takes_own =
            ["sc_", "sc0_", "sc1_", "sc2_", "src_", "table_"].iter().any(|start| name.starts_with(start))
                && matches!(specs.last(), Some(Spec { kind: ArgKind::Str, optional: true, .. }));
        let specs = &specs[..specs.len() - usize::from(takes_own)];
        let mine = (specs.iter().filter(|spec| !spec.optional).count(), specs.len());
        let theirs = counts(args);
        // According to the manual, some string arguments may be omitted that the list, which was made from the program, shows as
        // required.
        if mine.0 > theirs.0 || mine.1 != theirs.1 {
            wrong.push(format!("{kind} {name}: {mine:?} arguments here, {theirs:?} there ({signature})"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
