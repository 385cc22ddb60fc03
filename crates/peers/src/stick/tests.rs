use super::*;
use state::table::{Aggregate, Column, ServerKey, TableSettings};

/// The members of a group, of which the first is the process under test.
const MEMBERS: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// The lifetime of an entry of [`aggregate`], in milliseconds.
const EXPIRE: u64 = 10_000;

/// Returns a table that adds up a counter and stores a tag, and its adapter. With nine members, keys have owners.
fn aggregate(members: usize) -> (Arc<Table>, Stick) {
    let (table, mut stick) = unsynchronized(members);
    stick.is_synchronized(1);
    (table, stick)
}

/// Like [`aggregate`], before the entries of the other members have arrived.
fn unsynchronized(members: usize) -> (Arc<Table>, Stick) {
    let table = Table::new(TableSettings {
        name: "t".into(),
        kind: KeyType::Int,
        key_length: 4,
        size: 10,
        expire_ms: EXPIRE as u32,
        nopurge: false,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns: vec![Column::new(DataType::Gpt0, 1, 0), Column::new(DataType::Gpc0, 1, 0)],
        peers: Some("p".into()),
        aggregate: Some(Aggregate {
            every_ms: 20,
            members: MEMBERS[1..members].iter().map(|name| (*name).into()).collect(),
        }),
    });
    let (stick, _) = Stick::new([(&table, "t")], &MEMBERS[..members], 0, 1);
    (table, stick)
}

/// A key that the process owns in a group of the first three members.
const KEY: [u8; 4] = [0, 0, 0, 2];

/// Passes an entry with this count from a peer to a definition.
fn receive(stick: &mut Stick, definition: usize, (peer, resync): (usize, bool), count: u64, now: u64) {
    let values = [EntryValue::Number(0), EntryValue::Number(count)];
    let row = PeerEntry { key: &KEY, expire: None, values: &values };
    stick.learn(definition, &row, EntryOrigin::Remote { peer, resync }, now);
}

fn shown(table: &Table, now: u64) -> Option<u64> {
    table.find(&KEY, now).and_then(|entry| entry.get(DataType::Gpc0, 0, now))
}

/// A session with a member is established.
fn meet(stick: &mut Stick, peer: usize, features: u64, now: u64) {
    stick.note_presence(peer, true, now);
    stick.note_program(peer, features, now);
    stick.tick(now);
}

/// Returns the counts that are sent to a peer, as this process's changes or as the counts of an earlier process.
fn sent(stick: &mut Stick, definition: usize, peer: usize, is_return: bool, now: u64) -> Vec<EntryValue> {
    let mut counts = Vec::new();
    if is_return {
        let mut next = stick.is_part_of(definition, peer).then_some(0);
        while let Some(cursor) = next {
            next = stick.walk(definition, cursor, Some(peer), now, &mut |row| {
                counts.push(row.values[1].clone());
                true
            });
        }
    } else if stick.latest(definition, Some(peer)) > 0 {
        stick.changed(definition, 0, Some(peer), now, &mut |_, row| {
            counts.push(row.values[1].clone());
            true
        });
    }
    counts
}

#[test]
fn parts_count_once_after_a_member_has_changed_its_mode() {
    for (from, to) in [(0, features::OWNERS), (features::OWNERS, 0)] {
        let (table, mut stick) = aggregate(9);
        let (part, own) = (1, 5);
        meet(&mut stick, 1, from, 1_000);
        receive(&mut stick, part, (1, false), own, 1_000);
        stick.tick(1_100);
        assert_eq!(shown(&table, 1_100), Some(own));
        // The process is replaced by one that uses the other mode.
        stick.note_presence(1, false, 1_200);
        meet(&mut stick, 1, to, 1_300);
        stick.tick(1_400);
        assert_eq!(shown(&table, 1_400), Some(own), "from {from} to {to}");
        assert_eq!(sent(&mut stick, part, 1, true, 1_400), [EntryValue::Number(own)], "from {from} to {to}");
        receive(&mut stick, part, (1, false), own + 1, 1_500);
        stick.tick(1_600);
        assert_eq!(shown(&table, 1_600), Some(own + 1), "from {from} to {to}");
    }
}

#[test]
fn dropped_parts_no_longer_count_if_no_other_member_has_the_key() {
    for (features, is_used) in [(0, true), (features::OWNERS, true), (0, false), (features::OWNERS, false)] {
        let (table, mut stick) = aggregate(9);
        meet(&mut stick, 1, features, 1_000);
        meet(&mut stick, 2, features::OWNERS, 1_000);
        receive(&mut stick, 1, (1, false), 5, 1_000);
        stick.tick(1_100);
        assert_eq!(shown(&table, 1_100), Some(5));
        stick.note_presence(1, false, 2_000);
        stick.tick(4_500);
        if is_used {
            table.get(&KEY, 9_000).expect("it is there").touch(9_000);
        }
        // Parts are dropped by the thread that sweeps the table, then by the adapter.
        let now = 2_000 + EXPIRE + 2;
        table.sweep(now, 10);
        stick.tick(now);
        stick.tick(now + 100);
        // An entry that has expired is not created again.
        assert_eq!(shown(&table, now + 100), is_used.then_some(0));
        assert_eq!(table.used(), u32::from(is_used));
        let sums = sent(&mut stick, 2, 2, false, now + 100);
        let is_owner = features != 0 && is_used;
        assert_eq!(sums, if is_owner { vec![EntryValue::Number(0)] } else { vec![] });
    }
}

#[test]
fn counts_of_the_predecessor_are_included_in_later_returns() {
    let (table, mut stick) = unsynchronized(3);
    let count = |stick: &mut Stick, origin, count| {
        let values = [EntryValue::Number(0), EntryValue::Number(count)];
        stick.learn(0, &PeerEntry { key: &KEY, expire: None, values: &values }, origin, 1_000);
    };
    count(&mut stick, EntryOrigin::Predecessor, 10);
    // The first peer has missed the last changes.
    count(&mut stick, EntryOrigin::Remote { peer: 1, resync: true }, 7);
    count(&mut stick, EntryOrigin::Remote { peer: 2, resync: true }, 10);
    assert_eq!(shown(&table, 1_000), Some(10));
    // The second was sent changes that the predecessor has not.
    count(&mut stick, EntryOrigin::Remote { peer: 2, resync: true }, 12);
    count(&mut stick, EntryOrigin::Remote { peer: 1, resync: true }, 12);
    assert_eq!(shown(&table, 1_000), Some(12));
}

#[test]
fn values_of_evicted_entries_are_forgotten() {
    let table = Table::new(TableSettings {
        name: "t".into(),
        kind: KeyType::Int,
        key_length: 4,
        size: 10,
        expire_ms: 10_000,
        nopurge: false,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns: vec![Column::new(DataType::Gpc0, 1, 0)],
        peers: Some("p".into()),
        aggregate: Some(Aggregate { every_ms: 20, members: ["b".into()].into() }),
    });
    let (mut stick, _) = Stick::new([(&table, "t")], &["a", "b"], 0, 1);
    for origin in [EntryOrigin::Predecessor, EntryOrigin::Remote { peer: 1, resync: true }] {
        for key in 0..1_000_u32 {
            let (key, values) = (key.to_be_bytes(), [EntryValue::Number(1)]);
            stick.learn(0, &PeerEntry { key: &key, expire: None, values: &values }, origin, 1);
        }
    }
    assert_eq!(table.used(), 10);
    for known in [&stick.before[0], &stick.recalled[0]] {
        assert!((10..=20).contains(&known.len()), "{}", known.len());
    }
}
