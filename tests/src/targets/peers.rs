//! Fuzz target: a session of the peers protocol with arbitrary input from the peer.

use std::sync::Arc;

use ::peers::{
    DataColumn, DataKind, Definition, EntryOrigin, EntryValue, HandshakeStatus, KeyKind, PeerEntry,
    PeerSession, PeersSection, SessionEvent, Shape, Tables, message,
};

/// A learned entry: the table, the key, its lifetime, the values.
type Entry = (usize, Vec<u8>, Option<u32>, Vec<EntryValue>);

/// Tables that record learned entries, and have an entry to teach.
#[derive(Debug, Default)]
struct Learned(Vec<Entry>);

impl Tables for Learned {
    fn latest(&self, table: usize, _: Option<usize>) -> u64 {
        u64::from(table == 0)
    }

    fn changed(
        &mut self,
        table: usize,
        after: u64,
        _: Option<usize>,
        _: u64,
        take: &mut dyn FnMut(u64, &PeerEntry<'_>) -> bool,
    ) {
        if table == 0 && after == 0 {
            take(1, &PeerEntry { key: b"own", expire: None, values: &[EntryValue::Number(300)] });
        }
    }

    fn walk(
        &mut self,
        table: usize,
        _: u64,
        _: Option<usize>,
        _: u64,
        take: &mut dyn FnMut(&PeerEntry<'_>) -> bool,
    ) -> Option<u64> {
        if table == 0 {
            take(&PeerEntry { key: b"own", expire: None, values: &[EntryValue::Number(300)] });
        }
        None
    }

    fn learn(&mut self, table: usize, row: &PeerEntry<'_>, _: EntryOrigin, _: u64) {
        self.0.push((table, row.key.to_vec(), row.expire, row.values.to_vec()));
    }
}

fn section() -> Arc<PeersSection> {
    let column = |kind: DataKind| DataColumn {
        kind,
        count: if kind.is_array() { 2 } else { 1 },
        period: if kind.shape() == Shape::Rate { 1000 } else { 0 },
    };
    let tables: Box<[Definition]> = [
        Definition::new(b"t", KeyKind::String, 20, 0, vec![column(DataKind::Gpc0)]),
        Definition::new(b"all", KeyKind::Ipv4, 4, 1000, DataKind::all().map(column).collect()),
    ]
    .into();
    let ids = tables.iter().map(|table| table.name.clone()).collect();
    let peers = [&b"A"[..], b"B"].map(Into::into).into();
    Arc::new(PeersSection {
        local: (*b"A").into(),
        peers,
        tables,
        ids,
        at_once: 50,
        features: peers::features::RETURNS_PARTS,
    })
}

/// Checks that learned entries and events do not depend on how the input is split, and that memory and output are bounded. The
/// first byte selects the side and whether greetings were exchanged, the second the piece length of the rest, which is the peer's
/// input.
pub fn peers_session(bytes: &[u8]) {
    let [choice, cut, rest @ ..] = bytes else { return };
    let greeting: &[u8] = match choice & 3 {
        0 => b"HAProxyS 2.1\nA\nB 1 1\n",
        1 => b"200\n",
        _ => b"",
    };
    let sent = [greeting, rest].concat();
    let whole = run(choice & 1 == 1, sent.len(), &sent);
    assert_eq!(whole, run(choice & 1 == 1, usize::from(*cut), &sent));
}

fn run(client: bool, cut: usize, bytes: &[u8]) -> (Vec<SessionEvent>, Vec<Entry>, Vec<u8>) {
    let section = section();
    let mut tables = Learned::default();
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
        assert!(session.kept() <= message::LONGEST + 16 + piece.len(), "{} bytes are kept", session.kept());
    }
    let mut out = Vec::new();
    for _ in 0..4 {
        session.output(&mut out, 4096, true, 0, &mut tables);
    }
    assert!(out.len() < 16_384, "{} bytes are said", out.len());
    (events, tables.0, out)
}
