use proptest::prelude::*;

use super::*;
use crate::definition::DataKind;
use crate::definition::tests::any_definition;

fn column(kind: DataKind, count: u32) -> DataColumn {
    DataColumn { kind, count, period: 0 }
}

fn remote(definition: &Definition, local: &Definition) -> Option<Remote> {
    Remote::new(Announced { id: 1, key: definition.key as u64, definition: definition.clone() }, local)
}

fn number(value: u64) -> EntryValue {
    EntryValue::Number(value)
}

/// Generates values for a table from a seed.
fn values(definition: &Definition, seed: u64) -> Vec<EntryValue> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut values = Vec::new();
    for column in &definition.columns {
        for _ in 0..column.count {
            values.push(match column.kind.shape() {
                Shape::Number => number(random.u64(..) >> random.u32(0..64)),
                Shape::Rate => {
                    let mut part = || random.u32(..) >> random.u32(0..32);
                    EntryValue::Rate(Rate { age: part(), current: part(), previous: part() })
                }
                Shape::Name => EntryValue::Name(
                    random.bool().then(|| format!("server{}", random.u8(..)).into_bytes().into()),
                ),
            });
        }
    }
    values
}

#[test]
fn entries_are_encoded_like_haproxy() {
    let columns = vec![
        column(DataKind::ServerId, 1),
        column(DataKind::Gpc0, 1),
        column(DataKind::Gpc0Rate, 1),
        column(DataKind::ServerKey, 1),
    ];
    let definition = Definition::new(b"t", KeyKind::Ipv4, 4, 600_000, columns);
    let rate = Rate { age: 300, current: 2, previous: 0 };
    let values = [number(1), number(1000), EntryValue::Rate(rate), EntryValue::Name(Some(Arc::from(*b"s2")))];
    let row = PeerEntry { key: &[127, 0, 0, 1], expire: None, values: &values };
    let mut names = Sent::default();
    let mut out = Vec::new();
    write(&definition, Some(2), false, &row, &mut names, &mut out);
    assert_eq!(out, [0, 0, 0, 2, 127, 0, 0, 1, 1, 0xf8, 0x2f, 0xfc, 3, 2, 0, 4, 1, 2, b's', b'2']);
    out.clear();
    write(&definition, None, true, &row, &mut names, &mut out);
    assert_eq!(out, [0, 9, 0x27, 0xc0, 127, 0, 0, 1, 1, 0xf8, 0x2f, 0xfc, 3, 2, 0, 1, 1]);

    let strings = Definition::new(b"t", KeyKind::String, 20, 0, vec![column(DataKind::Gpt, 3)]);
    let row = PeerEntry { key: b"/h", expire: None, values: &[number(0), number(0), number(300)] };
    out.clear();
    write(&strings, None, true, &row, &mut names, &mut out);
    assert_eq!(out, [0, 0, 0, 0, 2, b'/', b'h', 0, 0, 0xfc, 3]);

    let binary = Definition::new(b"t", KeyKind::Binary, 4, 0, Vec::new());
    out.clear();
    write(&binary, None, false, &PeerEntry { key: b"ab", expire: None, values: &[] }, &mut names, &mut out);
    assert_eq!(out, [b'a', b'b', 0, 0]);
}

#[test]
fn values_are_stored_at_their_local_indexes() {
    let there = Definition::new(
        b"t",
        KeyKind::Integer,
        4,
        0,
        vec![column(DataKind::Gpt, 4), column(DataKind::Gpc0, 1), column(DataKind::ConnCnt, 1)],
    );
    let here = Definition::new(
        b"t",
        KeyKind::Integer,
        4,
        0,
        vec![column(DataKind::Gpt, 2), column(DataKind::ConnCnt, 1), column(DataKind::ServerId, 1)],
    );
    let mut out = Vec::new();
    let all: Vec<EntryValue> = [10, 11, 12, 13, 14, 15].map(number).into();
    let row = PeerEntry { key: &[0, 0, 0, 7], expire: None, values: &all };
    write(&there, None, false, &row, &mut Sent::default(), &mut out);
    let mut values = vec![number(99); 4];
    let remote = remote(&there, &here).unwrap();
    let read =
        remote.read(&mut MessageReader::new(&out), false, &mut DictionaryEntry::default(), &mut values);
    assert_eq!(read, Some((&[0, 0, 0, 7][..], None)));
    assert_eq!(values, [EntryValue::Absent, number(11), number(12), number(13)]);
}

#[test]
fn tables_with_other_keys_are_not_learned() {
    let table = |kind, length| Definition::new(b"t", kind, length, 0, Vec::new());
    let here = table(KeyKind::String, 20);
    assert!(remote(&table(KeyKind::String, 20), &here).is_some());
    assert!(remote(&table(KeyKind::String, 30), &here).is_none());
    assert!(remote(&table(KeyKind::Binary, 20), &here).is_none());
    let strange = Announced { id: 1, key: 9, definition: table(KeyKind::Binary, 8) };
    assert!(Remote::new(strange, &table(KeyKind::Binary, 8)).is_none());
}

#[test]
fn entries_without_expiry_get_the_local_lifetime() {
    let table = |expire| Definition::new(b"t", KeyKind::Integer, 4, expire, Vec::new());
    for (there, told, expected) in [(0, 0, None), (0, 5, Some(5)), (1000, 0, Some(0)), (1000, 7, Some(7))] {
        let remote = remote(&table(there), &table(60_000)).unwrap();
        let bytes = [0, 0, 0, told, 0, 0, 0, 1];
        let read =
            remote.read(&mut MessageReader::new(&bytes), true, &mut DictionaryEntry::default(), &mut []);
        assert_eq!(read.unwrap().1, expected, "{there} {told}");
    }
}

proptest! {
    #[test]
    fn entries_round_trip_and_truncated_ones_are_rejected(
        definition in any_definition(),
        key in proptest::collection::vec(any::<u8>(), 0..300),
        seed: u64,
        timed: bool,
        expire: u32,
    ) {
        let values = values(&definition, seed);
        let mut key = key;
        key.truncate(definition.key_length);
        if definition.key != KeyKind::String {
            key.resize(definition.key_length, 0);
        }
        let mut out = Vec::new();
        let row = PeerEntry { key: &key, expire: Some(expire), values: &values };
        write(&definition, Some(5), timed, &row, &mut Sent::default(), &mut out);
        let remote = remote(&definition, &definition).unwrap();
        let mut read = vec![EntryValue::Absent; definition.values()];
        let mut body = MessageReader::new(&out);
        prop_assert_eq!(body.word(), Some(5));
        let (got, lives) = remote.read(&mut body, timed, &mut DictionaryEntry::default(), &mut read).unwrap();
        prop_assert!(body.is_empty());
        prop_assert_eq!((got, read), (&key[..], values));
        prop_assert_eq!(lives, timed.then_some(expire).filter(|expire| *expire > 0 || definition.expire > 0));
        for cut in 4..out.len() {
            let mut read = vec![EntryValue::Absent; definition.values()];
            let mut body = MessageReader::new(&out[4..cut]);
            prop_assert_eq!(remote.read(&mut body, timed, &mut DictionaryEntry::default(), &mut read), None);
        }
    }
}
