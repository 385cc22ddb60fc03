use proptest::prelude::*;

use super::*;

/// Decodes hexadecimal digits.
fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn columns(list: &[(DataKind, u32, u32)]) -> Vec<DataColumn> {
    list.iter()
        .map(|(kind, count, period)| DataColumn { kind: *kind, count: *count, period: *period })
        .collect()
}

/// Generates any table.
pub(crate) fn any_definition() -> impl Strategy<Value = Definition> {
    let kinds = [KeyKind::Integer, KeyKind::Ipv4, KeyKind::Ipv6, KeyKind::String, KeyKind::Binary];
    let column = (0..KINDS.len(), 1..=LONGEST_ARRAY as u32, any::<u32>());
    let columns = proptest::collection::vec(column, 0..12);
    let name = proptest::collection::vec(any::<u8>(), 1..40);
    (name, 0..5_usize, 1..300_usize, any::<u32>(), columns).prop_map(
        move |(name, kind, length, expire, columns)| {
            let kind = kinds[kind];
            let length = match kind {
                KeyKind::Integer | KeyKind::Ipv4 => 4,
                KeyKind::Ipv6 => 16,
                KeyKind::String | KeyKind::Binary => length,
            };
            let column = |(place, count, period): (usize, u32, u32)| {
                let kind: DataKind = KINDS[place].0;
                let count = if kind.is_array() { count } else { 1 };
                DataColumn { kind, count, period: if kind.shape() == Shape::Rate { period } else { 0 } }
            };
            Definition::new(&name, kind, length, expire, columns.into_iter().map(column).collect())
        },
    )
}

#[test]
fn types_are_in_the_order_of_their_bits() {
    for (place, kind) in DataKind::all().enumerate() {
        assert_eq!(kind as usize, place, "{}", kind.name());
    }
    let table: Vec<_> = DataKind::all().map(|kind| (kind.name(), kind as u64)).collect();
    for row in
        [("server_id", 0), ("gpc0", 2), ("bytes_out_rate", 16), ("server_key", 19), ("glitch_rate", 26)]
    {
        assert!(table.contains(&row), "{row:?}");
    }
}

#[test]
fn definitions_are_written_as_haproxy_writes_them() {
    let strings = Definition::new(
        b"tstr",
        KeyKind::String,
        20,
        0,
        columns(&[(DataKind::GpcRate, 5, 9000), (DataKind::Gpt, 3, 0), (DataKind::Gpc, 4, 0)]),
    );
    let numbers = Definition::new(b"/pt", KeyKind::Integer, 4, 3_600_000, columns(&[(DataKind::Gpc0, 1, 0)]));
    let cases = [
        (3, strings, "03 04 74737472 06 15 f0f1fe6e 00 16 03 17 04 18 05 f8a303"),
        (1, numbers, "01 03 2f7074 02 04 04 f0d9dc0c"),
    ];
    for (id, definition, wire) in cases {
        let wire = hex(&wire.replace(' ', ""));
        let mut out = Vec::new();
        definition.write(id, b"", &mut out);
        let announced = Definition::read(&wire).unwrap();
        assert_eq!((announced.id, &announced.definition), (id, &definition));
        assert_eq!(out, wire, "{definition:?}");
    }
}

#[test]
fn unknown_types_and_what_follows_are_skipped() {
    let mut out = Vec::new();
    for number in [7, 1, u64::from(b'a'), 2, 4, 1 << 2 | 1 << 40, 0, 40, 12, 13] {
        varint::write(&mut out, number);
    }
    let announced = Definition::read(&out).unwrap();
    assert_eq!(*announced.definition.columns, [DataColumn { kind: DataKind::Gpc0, count: 1, period: 0 }]);
}

#[test]
fn inconsistent_definitions_are_rejected() {
    let gpt = 1 << DataKind::Gpt as u64;
    let cases: [(&str, &[u64]); 8] = [
        ("no name", &[1, 0, 2, 4, 0, 0]),
        ("a name that is cut", &[1, 9, 97]),
        ("no key", &[1, 1, 97]),
        ("no kinds", &[1, 1, 97, 2, 4]),
        ("an array without a count", &[1, 1, 97, 2, 4, gpt, 0]),
        ("an array of none", &[1, 1, 97, 2, 4, gpt, 0, 22, 0]),
        ("an array of more than there are", &[1, 1, 97, 2, 4, gpt, 0, 22, LONGEST_ARRAY + 1]),
        ("the count of another array", &[1, 1, 97, 2, 4, gpt, 0, 23, 1]),
    ];
    for (what, numbers) in cases {
        let mut out = Vec::new();
        numbers.iter().for_each(|number| varint::write(&mut out, *number));
        assert_eq!(Definition::read(&out), None, "{what}");
    }
}

proptest! {
    #[test]
    fn every_definition_round_trips(id: u64, definition in any_definition(), rest: [u8; 3]) {
        let mut out = Vec::new();
        definition.write(id, b"", &mut out);
        let length = out.len();
        out.extend_from_slice(&rest);
        let announced = Definition::read(&out).unwrap();
        prop_assert_eq!((announced.id, announced.key), (id, definition.key as u64));
        prop_assert_eq!(announced.definition, definition);
        for cut in 0..length {
            let _ = Definition::read(&out[..cut]);
        }
    }
}
