use super::*;
use state::table::{Aggregate, Column, DataType, KeyType, ServerKey, TableSettings};
use std::sync::Arc;

const PERIOD: u32 = 10_000;

fn table() -> Arc<Table> {
    Table::new(TableSettings {
        name: "t".into(),
        kind: KeyType::Int,
        key_length: 4,
        size: 10,
        expire_ms: 600_000,
        nopurge: false,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns: vec![
            Column::new(DataType::Gpt0, 1, 0),
            Column::new(DataType::HttpReqCnt, 1, 0),
            Column::new(DataType::HttpReqRate, 1, PERIOD),
        ],
        peers: Some("p".into()),
        aggregate: Some(Aggregate {
            every_ms: 20,
            members: (0..20).map(|member| format!("n{member}").into()).collect(),
        }),
    })
}

fn part(tag: u64, count: u64, rate: Rate) -> [EntryValue; 3] {
    [EntryValue::Number(tag), EntryValue::Number(count), EntryValue::Rate(rate)]
}

/// The events that a rate shows.
fn value(rate: &Rate, since: u32) -> f64 {
    let age = rate.age + since;
    let (age, current, previous) = match age / PERIOD {
        0 => (age, rate.current, rate.previous),
        1 => (age - PERIOD, 0, rate.current),
        _ => (0, 0, 0),
    };
    f64::from(current) + f64::from(previous) * f64::from(PERIOD - age) / f64::from(PERIOD)
}

fn put(sums: &mut Sums, table: &Table, member: usize, values: &[EntryValue], now: u64) {
    assert!(table.keep(&[0, 0, 0, 1], None, now));
    sums.put(table, (member, 1), (b"t", &[0, 0, 0, 1]), values, now);
}

/// Returns the sum for a member.
fn sum(sums: &mut Sums, table: &Table, member: usize, now: u64) -> Option<Vec<EntryValue>> {
    let (mut found, last) = (None, sums.last());
    sums.changed(table, (0, last), member, (|_| true, now), |_, _, _, values| {
        found = Some(values.to_vec());
        true
    });
    found
}

#[test]
fn a_receiver_gets_the_sum_without_its_own_part() {
    let (table, mut sums) = (table(), Sums::default());
    let mut random = fastrand::Rng::with_seed(3);
    let rates: Vec<Rate> = (0..20)
        .map(|_| Rate {
            age: random.u32(0..PERIOD),
            current: random.u32(0..1000),
            previous: random.u32(0..1000),
        })
        .collect();
    put(&mut sums, &table, 0, &part(0, 0, rates[0]), 1_000);
    assert_eq!(sum(&mut sums, &table, 0, 1_000), None, "only this member has the key");
    for (member, rate) in rates.iter().enumerate() {
        put(&mut sums, &table, member, &part(0, member as u64, *rate), 1_000);
    }
    for now in [1_000, 3_500, 7_000] {
        for member in [0, 7, 19] {
            let values = sum(&mut sums, &table, member, now).expect("others have the key");
            assert_eq!(values[1], EntryValue::Number(190 - member as u64));
            let EntryValue::Rate(rate) = values[2] else { panic!("a rate") };
            let others = rates.iter().enumerate().filter(|(other, _)| *other != member);
            let wanted: f64 = others.map(|(_, rate)| value(rate, now as u32 - 1_000)).sum();
            assert!((value(&rate, 0) - wanted).abs() < 2.0, "{} {wanted}", value(&rate, 0));
        }
    }
    assert_eq!(sum(&mut sums, &table, 19, 30_000).map(|values| values[2].clone()), {
        Some(EntryValue::Rate(Rate { age: u32::MAX, current: 0, previous: 0 }))
    });
}

#[test]
fn a_tag_is_that_of_the_last_other_member_that_changed_it() {
    let (table, mut sums) = (table(), Sums::default());
    let none = Rate::default();
    for (member, tag) in [(0, 5), (1, 6), (0, 5), (2, 0)] {
        put(&mut sums, &table, member, &part(tag, 1, none), 1_000);
    }
    let tag = |sums: &mut Sums, member| sum(sums, &table, member, 1_000).map(|values| values[0].clone());
    assert_eq!(tag(&mut sums, 2), Some(EntryValue::Number(6)));
    assert_eq!(tag(&mut sums, 1), Some(EntryValue::Number(UNCHANGED)), "it has changed the tag last");
    assert_eq!(tag(&mut sums, 0), Some(EntryValue::Number(6)));
    // A member repeats the change.
    put(&mut sums, &table, 2, &part(6, 1, none), 1_000);
    assert_eq!(tag(&mut sums, 1), Some(EntryValue::Number(UNCHANGED)));
    put(&mut sums, &table, 0, &part(7, 1, none), 1_000);
    assert_eq!(tag(&mut sums, 2), Some(EntryValue::Number(7)));
    put(&mut sums, &table, 2, &part(0, 1, none), 1_000);
    assert_eq!(tag(&mut sums, 0), Some(EntryValue::Number(0)));
}

#[test]
fn records_are_dropped_with_their_entries() {
    let (table, mut sums) = (table(), Sums::default());
    for key in 0..1_000_u32 {
        let key = key.to_be_bytes();
        assert!(table.keep(&key, None, 1_000));
        sums.put(&table, (1, 1), (b"t", &key), &part(0, 1, Rate::default()), 1_000);
    }
    assert!(sums.len() <= 20, "{} records of a table with 10 entries", sums.len());
    assert!(sums.log.len() <= 2 * sums.len() + FORGOTTEN + 1, "{}", sums.log.len());
    sums.drop_gone(&table, &[1, 2]);
    let mut parts = 0;
    sums.walk_parts(&[], 1, 0, 1_000, |_, _| {
        parts += 1;
        true
    });
    assert_eq!(parts, 0);
}
