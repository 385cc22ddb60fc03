//! One session between two sides, or between one side and an arbitrary peer.

mod memory;

use memory::{Memory, counters, section};
use peers::{
    Breach, DataColumn, DataKind, Definition, EntryValue, HEARTBEAT, HandshakeStatus, KeyKind, Over,
    PeerSession, PeersSection, Rate, SessionEvent, TIMEOUT,
};
use std::sync::Arc;

const LIMIT: usize = 4096;

/// Both sides of a connection, with their tables.
struct Pair {
    now: u64,
    ends: [PeerSession; 2],
    tables: [Memory; 2],
    events: [Vec<SessionEvent>; 2],
    up_to_date: bool,
    /// Number of bytes received by each side.
    moved: [usize; 2],
}

impl Pair {
    fn new(definitions: Vec<Definition>) -> Pair {
        let sections = ["A", "B"].map(|name| section(name, &["A", "B"], definitions.clone()));
        let ends = [PeerSession::client(&sections[0], 1, 77, 0), PeerSession::server(&sections[1], 0)];
        let tables = [Memory::new(&definitions), Memory::new(&definitions)];
        Pair { now: 0, ends, tables, events: Default::default(), up_to_date: true, moved: [0; 2] }
    }

    /// Exchanges bytes in random pieces until there is no more output.
    fn settle(&mut self) {
        let mut random = fastrand::Rng::with_seed(self.now + 1);
        loop {
            let mut idle = true;
            for side in 0..2 {
                let mut out = Vec::new();
                self.ends[side].output(&mut out, LIMIT, self.up_to_date, self.now, &mut self.tables[side]);
                assert!(out.len() < LIMIT + 20_000, "{} bytes at once", out.len());
                idle &= out.is_empty();
                self.moved[1 - side] += out.len();
                let mut rest = &out[..];
                while !rest.is_empty() {
                    let (piece, more) = rest.split_at(random.usize(1..=rest.len()));
                    self.receive(1 - side, piece);
                    rest = more;
                }
            }
            if idle {
                return;
            }
        }
    }

    fn receive(&mut self, side: usize, bytes: &[u8]) {
        let end = &mut self.ends[side];
        end.receive(bytes, self.now, &mut self.tables[side]);
        if end.greeted().is_some() {
            end.welcome(HandshakeStatus::Success);
            end.resume_input(self.now, &mut self.tables[side]);
        }
        self.events[side].extend(end.take_events());
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        self.ends.iter_mut().for_each(|end| end.tick(self.now));
        self.settle();
    }
}

/// Returns a table with all types.
fn everything() -> Definition {
    let column = |kind: DataKind| DataColumn {
        kind,
        count: if kind.is_array() { 5 } else { 1 },
        period: if kind.shape() == peers::Shape::Rate { 10_000 } else { 0 },
    };
    Definition::new(b"all", KeyKind::Ipv6, 16, 60_000, DataKind::all().map(column).collect())
}

fn full_row(seed: u64) -> Vec<EntryValue> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut values = Vec::new();
    for column in &everything().columns {
        for _ in 0..column.count {
            values.push(match column.kind.shape() {
                peers::Shape::Number => EntryValue::Number(random.u64(..)),
                peers::Shape::Rate => EntryValue::Rate(Rate {
                    age: random.u32(..),
                    current: random.u32(..),
                    previous: random.u32(..),
                }),
                peers::Shape::Name => {
                    EntryValue::Name(Some(format!("s{}", random.u8(..)).into_bytes().into()))
                }
            });
        }
    }
    values
}

#[test]
fn changes_reach_the_other_side_and_are_acknowledged() {
    let mut pair = Pair::new(vec![counters("t", 0), everything()]);
    pair.settle();
    assert_eq!(pair.events[0], [SessionEvent::Established { peer: 1, process: None }]);
    assert_eq!(pair.events[1], [SessionEvent::Established { peer: 0, process: Some(77) }]);
    for round in 0..200_u64 {
        let side = (round % 2) as usize;
        pair.tables[side].count(0, format!("key{}-{side}", round % 37).as_bytes(), round, pair.now);
        pair.tables[side].set(
            1,
            &u128::from(round % 50 * 2 + side as u64).to_be_bytes(),
            &full_row(round),
            pair.now,
        );
        if round % 7 == 0 {
            pair.pass(10);
        }
    }
    pair.settle();
    assert_eq!(pair.tables[0].contents(), pair.tables[1].contents());
    for side in 0..2 {
        for table in 0..2 {
            let latest = peers::Tables::latest(&pair.tables[side], table, None);
            assert_eq!(pair.ends[side].taught(table), (latest, latest), "{side} {table}");
        }
    }
}

#[test]
fn a_resync_sends_everything_and_reports_completeness() {
    for (up_to_date, event) in [(true, SessionEvent::ResyncFinished), (false, SessionEvent::ResyncPartial)] {
        let mut pair = Pair::new(vec![counters("t", 60_000), counters("empty", 0), counters("forever", 0)]);
        pair.up_to_date = up_to_date;
        let known = peers::PeerEntry { key: b"heard", expire: Some(5000), values: &[EntryValue::Number(3)] };
        peers::Tables::learn(&mut pair.tables[1], 0, &known, peers::EntryOrigin::Local, 0);
        for number in 0..5000_u64 {
            pair.tables[1].count(2, format!("k{number}").as_bytes(), number, 0);
        }
        // According to an old acknowledgement this side already has all changes, but it requests a resync anyway.
        pair.settle();
        pair.ends[1].resume(&[0, 0, 5000], None);
        pair.now = 1000;
        pair.ends[0].request_resync();
        pair.settle();
        assert_eq!(pair.tables[0].contents(), pair.tables[1].contents());
        assert_eq!(pair.tables[0].tables[0].entries[&b"heard"[..]].expires, 5000);
        assert!(pair.events[0].contains(&event), "{:?}", pair.events[0]);
        assert!(
            pair.events[1].contains(&SessionEvent::ResyncRequested)
                && pair.events[1].contains(&SessionEvent::ResyncConfirmed)
        );
    }
}

#[test]
fn resyncs_and_all_tables_progress_under_heavy_changes() {
    let definitions: Vec<_> = ["busy", "a", "b"].map(|name| counters(name, 0)).into();
    let mut pair = Pair::new(definitions);
    pair.settle();
    (0..2000_u64).for_each(|number| pair.tables[0].count(1, format!("k{number}").as_bytes(), number, 0));
    pair.ends[1].request_resync();
    let mut turns = 0;
    while !pair.events[1].contains(&SessionEvent::ResyncFinished)
        || pair.tables[1].tables[1].entries.len() < 2000
    {
        turns += 1;
        assert!(turns < 1000, "{:?}", pair.events[1]);
        // More than is sent in a turn.
        (0..500_u64).for_each(|number| pair.tables[0].count(0, format!("k{number}").as_bytes(), turns, 0));
        for side in [1, 0] {
            let mut out = Vec::new();
            pair.ends[side].output(&mut out, LIMIT, true, 0, &mut pair.tables[side]);
            pair.receive(1 - side, &out);
        }
    }
    pair.settle();
    assert_eq!(pair.tables[0].contents(), pair.tables[1].contents());
}

#[test]
fn sessions_resume_after_the_last_acknowledgement() {
    let mut pair = Pair::new(vec![counters("t", 0)]);
    for number in 0..10 {
        pair.tables[0].count(0, format!("k{number}").as_bytes(), number, 0);
    }
    pair.settle();
    assert_eq!((pair.ends[0].taught(0), pair.tables[1].learned), ((10, 10), 10));
    let mut next = Pair::new(vec![counters("t", 0)]);
    next.tables = pair.tables;
    next.ends[0].resume(&[7], None);
    next.settle();
    assert_eq!((next.ends[0].taught(0), next.tables[1].learned), ((10, 10), 13));
}

#[test]
fn a_peer_with_a_shard_gets_only_its_keys() {
    let mut pair = Pair::new(vec![counters("t", 0)]);
    pair.settle();
    pair.ends[0].resume(&[0], Some((2, 3)));
    let keys: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    keys.iter().for_each(|key| pair.tables[0].count(0, key.as_bytes(), 1, 0));
    pair.settle();
    for key in &keys {
        let there = pair.tables[1].counted(0, key.as_bytes()).is_some();
        assert_eq!(there, peers::shard_of(b"t", key.as_bytes(), 3) == 2, "{key}");
    }
    let (acknowledged, sent) = pair.ends[0].taught(0);
    assert!(sent == 300 && acknowledged > 290, "{acknowledged} of {sent}");
}

#[test]
fn idle_sessions_send_heartbeats_and_end_without_them() {
    let mut pair = Pair::new(vec![counters("t", 0)]);
    pair.settle();
    for _ in 0..10 {
        let next = pair.ends.iter().filter_map(PeerSession::next).min().unwrap();
        assert!(next > pair.now && next <= pair.now + HEARTBEAT);
        pair.pass(next - pair.now);
    }
    assert!(pair.ends.iter().all(|end| end.is_open() && end.counts().heartbeats_received >= 9));
    let now = pair.now + TIMEOUT;
    pair.ends[0].tick(now);
    assert_eq!(pair.ends[0].over(), Some(Over::Timeout));
}

#[test]
fn a_blocked_heartbeat_is_sent_once() {
    let section = section("A", &["A", "B"], vec![counters("t", 0)]);
    let mut tables = Memory::new(&section.tables);
    let (mut session, _) = told(&section, &mut tables, &[]);
    assert_eq!(session.next(), Some(HEARTBEAT));
    session.tick(HEARTBEAT);
    assert_eq!(session.next(), Some(TIMEOUT));
    let mut out = Vec::new();
    session.output(&mut out, LIMIT, true, HEARTBEAT, &mut tables);
    assert_eq!((out, session.next()), (vec![0, 4], Some(TIMEOUT)));
}

/// Returns a listening side after the greeting, and its output in response to the peer's bytes.
fn told(section: &Arc<PeersSection>, tables: &mut Memory, bytes: &[u8]) -> (PeerSession, Vec<u8>) {
    let mut session = PeerSession::server(section, 0);
    session.receive(b"HAProxyS 2.1\nA\nB 1 1\n", 0, tables);
    session.welcome(HandshakeStatus::Success);
    let mut out = Vec::new();
    session.receive(bytes, 0, tables);
    session.output(&mut out, LIMIT, true, 0, tables);
    let out = out.strip_prefix(b"200\n").expect("the greeting is answered").to_vec();
    (session, out)
}

#[test]
fn protocol_violations_end_the_session_with_an_error() {
    let section = section("A", &["A", "B"], vec![counters("t", 0)]);
    let table: &[u8] = &[10, 130, 7, 1, 1, b't', 6, 32, 4, 0];
    let cases: [(&str, Vec<u8>, u8); 9] = [
        ("truncated acknowledgement", vec![10, 132, 0], 0),
        ("unknown table", vec![10, 130, 3, 1, 9, b'a'], 0),
        ("a length that is none", vec![10, 130, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255], 1),
        ("a message of a gigabyte", vec![10, 128, 255, 255, 255, 255, 127], 1),
        ("entry without a table", vec![10, 128, 5, 0, 0, 0, 1, 1], 0),
        ("an entry without a number", [table, &[10, 128, 2, 0, 0]].concat(), 0),
        ("a key longer than the message", [table, &[10, 128, 6, 0, 0, 0, 1, 20, b'a']].concat(), 0),
        ("no value", [table, &[10, 128, 6, 0, 0, 0, 1, 1, b'a']].concat(), 0),
        ("too many resyncs", [0, 0].repeat(300), 0),
    ];
    for (what, bytes, code) in cases {
        let mut tables = Memory::new(&section.tables);
        let (session, out) = told(&section, &mut tables, &bytes);
        assert!(matches!(session.over(), Some(Over::Breach(_))), "{what}: {:?}", session.over());
        assert_eq!(out, [1, code], "{what}");
        assert_eq!(tables.learned, 0, "{what}");
    }
}

#[test]
fn unknown_messages_are_skipped() {
    let section = section("A", &["A", "B"], vec![counters("t", 0)]);
    let mut tables = Memory::new(&section.tables);
    let mut bytes = vec![7, 0, 0, 9, 10, 144, 2, 1, 1, 10, 131, 1, 9, 10, 132, 5, 99, 0, 0, 0, 1];
    // An unknown table, one with other keys, and a known one.
    bytes.extend([
        10, 130, 10, 1, 4, b'n', b'o', b'n', b'e', 2, 4, 4, 0, 10, 128, 9, 0, 0, 0, 1, 0, 0, 0, 1, 1,
    ]);
    bytes.extend([10, 130, 7, 2, 1, b't', 2, 4, 4, 0, 10, 128, 9, 0, 0, 0, 1, 0, 0, 0, 1, 1]);
    bytes.extend([
        10, 130, 7, 3, 1, b't', 6, 32, 4, 0, 10, 128, 7, 0, 0, 0, 9, 1, b'k', 5, 10, 129, 3, 1, b'l', 6,
    ]);
    let (session, out) = told(&section, &mut tables, &bytes);
    assert_eq!(session.over(), None);
    assert_eq!((tables.counted(0, b"k"), tables.counted(0, b"l"), tables.learned), (Some(5), Some(6), 2));
    assert_eq!(out, [10, 132, 5, 3, 0, 0, 0, 10]);
    assert_eq!(session.learned(0), Some((3, 10, 10)));
}

#[test]
fn error_reports_end_the_session() {
    let section = section("A", &["A", "B"], vec![counters("t", 0)]);
    let (session, out) = told(&section, &mut Memory::new(&section.tables), &[1, 0]);
    assert_eq!((session.over(), out), (Some(Over::Accused), vec![]));
}

#[test]
fn invalid_acknowledgements_are_ignored() {
    let mut pair = Pair::new(vec![counters("t", 0)]);
    (0..10).for_each(|number| pair.tables[0].count(0, format!("k{number}").as_bytes(), number, 0));
    let mut out = Vec::new();
    pair.settle();
    pair.ends[0].resume(&[4], None);
    pair.ends[0].output(&mut out, LIMIT, true, 0, &mut pair.tables[0]);
    for (update, expected) in [(11, 4), (0x0200_0003, 4), (3, 4), (u32::MAX, 4), (6, 6), (5, 6), (10, 10)] {
        out.clear();
        peers::message::ack(1, update, &mut out);
        pair.ends[0].receive(&out, 0, &mut pair.tables[0]);
        assert_eq!(pair.ends[0].taught(0).0, expected, "{update}");
    }
}

#[test]
fn version_2_0_peers_get_entries_without_times() {
    let section = section("A", &["A", "B"], vec![counters("t", 60_000)]);
    for (version, kind) in [("2.0", 128), ("2.1", 133)] {
        let mut tables = Memory::new(&section.tables);
        let row = peers::PeerEntry { key: b"k", expire: None, values: &[EntryValue::Number(1)] };
        peers::Tables::learn(&mut tables, 0, &row, peers::EntryOrigin::Local, 0);
        let mut session = PeerSession::server(&section, 0);
        session.receive(format!("HAProxyS {version}\nA\nB 1 1\n\0\0").as_bytes(), 0, &mut tables);
        session.welcome(HandshakeStatus::Success);
        session.resume_input(0, &mut tables);
        let mut out = Vec::new();
        session.output(&mut out, LIMIT, true, 0, &mut tables);
        let entry = out.windows(2).rev().find(|two| two[0] == 10 && two[1] >= 128).unwrap();
        assert_eq!(entry[1], kind, "{version}");
    }
}

#[test]
fn a_greeting_that_is_refused_ends_the_session_with_its_status() {
    let section = section("A", &["A", "B"], vec![]);
    for (bytes, status) in [
        (&b"GET / HTTP/1.1\n"[..], HandshakeStatus::Protocol),
        (b"HAProxyS 9.1\n", HandshakeStatus::Version),
        (b"HAProxyS 2.1\nX\n", HandshakeStatus::LocalName),
        (b"HAProxyS 2.1\nA\nX 1 1\n", HandshakeStatus::RemoteName),
    ] {
        let mut session = PeerSession::server(&section, 0);
        let mut out = Vec::new();
        let mut tables = Memory::new(&[]);
        session.receive(bytes, 0, &mut tables);
        session.output(&mut out, LIMIT, true, 0, &mut tables);
        assert_eq!(out, format!("{}\n", status.code()).as_bytes());
        assert_eq!(session.over(), Some(Over::Refused(status)));
        // The other side receives the refusal.
        let mut client = PeerSession::client(&section, 1, 1, 0);
        client.receive(&out, 0, &mut tables);
        assert_eq!(client.over(), Some(Over::Refused(status)));
    }
    let mut client = PeerSession::client(&section, 1, 1, 0);
    client.receive(b"HTTP/1.1 400 Bad request\r\n", 0, &mut Memory::new(&[]));
    assert!(matches!(client.over(), Some(Over::Breach(Breach::Protocol(_)))));
}

#[test]
fn a_peer_that_sends_and_never_reads_costs_nothing() {
    let section = section("A", &["A", "B"], vec![counters("t", 0)]);
    let mut tables = Memory::new(&section.tables);
    let (mut session, _) = told(&section, &mut tables, &[10, 130, 7, 3, 1, b't', 6, 32, 4, 0]);
    for _ in 0..50_000 {
        session.receive(
            &[10, 128, 7, 0, 0, 0, 9, 1, b'k', 5, 0, 4, 10, 130, 7, 3, 1, b't', 6, 32, 4, 0],
            0,
            &mut tables,
        );
    }
    let mut out = Vec::new();
    session.output(&mut out, usize::MAX, true, 0, &mut tables);
    assert_eq!(out, [10, 132, 5, 3, 0, 0, 0, 9]);
    assert_eq!(tables.tables[0].entries.len(), 1);
}
