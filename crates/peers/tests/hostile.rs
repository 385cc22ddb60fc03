//! A session with peers that send arbitrary bytes: the result does not depend on how they are split, and memory and output are
//! bounded.

mod memory;

use memory::{Memory, counters, section};
use peers::{DataColumn, DataKind, Definition, HandshakeStatus, KeyKind, PeerSession, SessionEvent, Shape};
use proptest::prelude::*;

/// A table of strings, and one with all types.
fn tables() -> Vec<Definition> {
    let column = |kind: DataKind| DataColumn {
        kind,
        count: if kind.is_array() { 3 } else { 1 },
        period: if kind.shape() == Shape::Rate { 1000 } else { 0 },
    };
    let all = Definition::new(b"all", KeyKind::Ipv4, 4, 60_000, DataKind::all().map(column).collect());
    vec![counters("t", 0), all]
}

/// Returns the result of receiving bytes: events, table contents, and output.
fn outcome(client: bool, bytes: &[u8], cut: usize) -> (Vec<SessionEvent>, String, Vec<u8>) {
    let section = section("A", &["A", "B"], tables());
    let mut tables = Memory::new(&section.tables);
    tables.count(0, b"own", 7, 0);
    let mut session =
        if client { PeerSession::client(&section, 1, 1, 0) } else { PeerSession::server(&section, 0) };
    let mut events = Vec::new();
    for piece in bytes.chunks(cut.max(1)) {
        session.receive(piece, 0, &mut tables);
        if session.greeted().is_some() {
            session.welcome(HandshakeStatus::Success);
            session.resume_input(0, &mut tables);
        }
        events.extend(session.take_events());
        assert!(
            session.kept() <= peers::message::LONGEST + 16 + piece.len(),
            "{} bytes are kept",
            session.kept()
        );
    }
    let mut out = Vec::new();
    for _ in 0..3 {
        session.output(&mut out, 4096, true, 0, &mut tables);
    }
    assert!(out.len() < 100_000, "{} bytes are said", out.len());
    (events, format!("{:?}", tables.contents()), out)
}

fn check(client: bool, bytes: &[u8], cut: usize) {
    assert_eq!(outcome(client, bytes, bytes.len()), outcome(client, bytes, cut));
}

/// Returns the output of a side that teaches another.
fn lesson(client: bool) -> Vec<u8> {
    let section = section("B", &["A", "B"], tables());
    let mut memory = Memory::new(&section.tables);
    (0..20).for_each(|number| memory.count(0, format!("key{number}").as_bytes(), number * 1000, 0));
    let width = section.tables[1].values();
    let values: Vec<_> = section.tables[1]
        .columns
        .iter()
        .flat_map(|column| {
            (0..column.count).map(|_| match column.kind.shape() {
                Shape::Name => peers::EntryValue::Name(Some((*b"s1").into())),
                Shape::Rate => peers::EntryValue::Rate(peers::Rate { age: 5, current: 300, previous: 2 }),
                Shape::Number => peers::EntryValue::Number(500),
            })
        })
        .collect();
    assert_eq!(values.len(), width);
    (0..5_u8).for_each(|last| memory.set(1, &[192, 0, 2, last], &values, 0));
    let mut session =
        if client { PeerSession::client(&section, 0, 1, 0) } else { PeerSession::server(&section, 0) };
    let greeting: &[u8] = if client { b"200\n\0\0" } else { b"HAProxyS 2.1\nB\nA 1 1\n\0\0" };
    session.receive(greeting, 0, &mut memory);
    session.welcome(HandshakeStatus::Success);
    session.resume_input(0, &mut memory);
    let mut out = Vec::new();
    for _ in 0..10 {
        session.output(&mut out, usize::MAX, true, 0, &mut memory);
    }
    out
}

#[test]
fn entries_are_learned_for_any_split() {
    for client in [false, true] {
        let bytes = lesson(!client);
        for cut in 1..40 {
            check(client, &bytes, cut);
        }
        let (events, contents, _) = outcome(client, &bytes, 7);
        assert!(events.contains(&SessionEvent::ResyncFinished), "{events:?}");
        assert!(contents.contains("Number(19000)"), "{contents}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_are_handled_before_and_after_a_greeting(
        client: bool,
        greeted: bool,
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cut in 1..40_usize,
    ) {
        let greeting: &[u8] = match (greeted, client) {
            (false, _) => b"",
            (true, true) => b"200\n",
            (true, false) => b"HAProxyS 2.1\nA\nB 1 1\n",
        };
        check(client, &[greeting, &bytes].concat(), cut);
    }

    #[test]
    fn corrupted_sessions_do_no_harm(
        client: bool,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<u8>()), 1..8),
        cut in 1..40_usize,
    ) {
        let mut bytes = lesson(!client);
        for (place, change, byte) in changes {
            let at = place.index(bytes.len().max(1));
            match change {
                0 if !bytes.is_empty() => drop(bytes.remove(at)),
                1 => bytes.insert(at, byte),
                2 => bytes.truncate(at),
                _ => bytes.get_mut(at).into_iter().for_each(|old| *old = byte),
            }
        }
        check(client, &bytes, cut);
    }
}
