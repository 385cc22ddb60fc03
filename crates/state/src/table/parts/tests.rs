use super::super::{Column, DataType, KeyType, ServerKey, TableSettings};
use super::*;

fn table(members: &[&str], columns: Vec<Column>) -> std::sync::Arc<Table> {
    Table::new(TableSettings {
        name: "t".into(),
        kind: KeyType::Str,
        key_length: 16,
        size: 100,
        expire_ms: 10_000,
        nopurge: true,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns,
        peers: Some("p".into()),
        aggregate: Some(Aggregate {
            every_ms: 20,
            members: members.iter().map(|name| (*name).into()).collect(),
        }),
    })
}

fn columns() -> Vec<Column> {
    vec![
        Column::new(DataType::Gpt0, 1, 0),
        Column::new(DataType::HttpReqCnt, 1, 0),
        Column::new(DataType::HttpReqRate, 1, 1_000),
        Column::new(DataType::BytesInCnt, 1, 0),
        Column::new(DataType::ServerKey, 1, 0),
        Column::new(DataType::Gpc, 2, 0),
    ]
}

/// A part in the order of the columns: a tag, requests, their rate, bytes, a server, two counters.
fn part(tag: u64, requests: u64, age: u32) -> [TableValue<'static>; 7] {
    [
        TableValue::Number(tag),
        TableValue::Number(requests),
        TableValue::Rate(age, requests as u32, 0),
        TableValue::Number(requests << 32),
        TableValue::Text(Some("s")),
        TableValue::Number(requests),
        TableValue::Number(2 * requests),
    ]
}

fn learn(table: &Table, slot: usize, values: &[TableValue<'static>; 7], now: u64) {
    assert!(table.learn_part(slot, (b"k", None), (true, true), now, |at| values[at]));
}

fn values(table: &Table, now: u64) -> [u64; 7] {
    let entry = table.find(b"k", now).expect("it was learned");
    let get = |data, element| entry.get(data, element, now).expect("it is stored");
    [
        get(DataType::Gpt0, 0),
        get(DataType::HttpReqCnt, 0),
        get(DataType::HttpReqRate, 0),
        get(DataType::BytesInCnt, 0),
        get(DataType::Gpc, 0),
        get(DataType::Gpc, 1),
        entry.get_own(DataType::HttpReqCnt, 0, now).expect("it is stored"),
    ]
}

#[test]
fn parts_are_replaced_and_added_up() {
    let table = table(&["b", "c"], columns());
    let own = table.get(b"k", 1_000).expect("there is room");
    own.add(DataType::HttpReqCnt, 0, 3, 1_000);
    own.add(DataType::HttpReqRate, 0, 3, 1_000);
    drop(own);
    for requests in [1, 10] {
        learn(&table, 0, &part(0, requests, 500), 1_000);
    }
    learn(&table, 1, &part(0, 100, 0), 1_000);
    assert_eq!(values(&table, 1_000), [0, 113, 113, 110 << 32, 110, 220, 3]);
    // The periods of the rates have different ages.
    assert_eq!(values(&table, 1_750)[2], 3 + 7 + 100);
    let entry = table.find(b"k", 1_000).expect("it is there");
    assert_eq!(entry.server_key().map(|name| &**name), Some("s"));
    let column = *table.column(DataType::HttpReqCnt).expect("it is stored");
    let seen = [0, 1, 2].map(|slot| entry.part(slot, &column, 0, 1_000));
    assert_eq!(seen, [Some(10), Some(100), None]);
    assert_eq!(entry.part_values(1, 1_000).collect::<Vec<_>>(), part(0, 100, 0));
}

#[test]
fn sums_are_not_truncated_to_the_size_of_a_part() {
    let table = table(&["b", "c"], columns());
    let most = u64::from(u32::MAX);
    learn(&table, 0, &part(0, most, 0), 1_000);
    learn(&table, 1, &part(0, most, 0), 1_000);
    assert_eq!(values(&table, 1_000)[1..3], [2 * most, 2 * most]);
}

#[test]
fn values_that_do_not_fit_do_not_wrap() {
    let table = table(&["b"], columns());
    let most = u64::from(u32::MAX);
    learn(&table, 0, &part(most + 1, 1, 0), 1_000);
    assert_eq!(values(&table, 1_000)[0], most, "a tag");
    // Counts that a peer sends for an earlier process are added to the own ones.
    table.get(b"k", 1_000).expect("it is there").add(DataType::HttpReqCnt, 0, 3, 1_000);
    for huge in [most, u64::MAX] {
        let received = |_| TableValue::Number(huge);
        assert!(table.learn_own_part((b"k", None), 1_000, received, |_| TableValue::Absent));
    }
    let entry = table.find(b"k", 1_000).expect("it is there");
    assert_eq!(entry.get_own(DataType::HttpReqCnt, 0, 1_000), Some(most));
    assert_eq!(entry.get_own(DataType::BytesInCnt, 0, 1_000), Some(u64::MAX));
}

#[test]
fn tags_have_the_value_that_a_member_has_changed_last() {
    let table = table(&["b", "c"], columns());
    let tag = |now| values(&table, now)[0];
    learn(&table, 0, &part(5, 1, 0), 1_000);
    assert_eq!(tag(1_000), 5);
    learn(&table, 1, &part(7, 1, 0), 1_000);
    assert_eq!(tag(1_000), 7);
    // This member has only counted, and does not know the change by the other.
    learn(&table, 0, &part(5, 2, 0), 1_000);
    assert_eq!(tag(1_000), 7);
    learn(&table, 0, &part(0, 3, 0), 1_000);
    assert_eq!(tag(1_000), 0);
    // Entries of a resync may be older than the own value.
    table.get(b"k", 1_000).expect("it is there").set(DataType::Gpt0, 0, 9, 1_000);
    drop_member(&table, 1, 1_000);
    let values = part(4, 1, 0);
    assert!(table.learn_part(1, (b"k", Some(100)), (true, false), 12_000, |at| values[at]));
    let entry = table.find(b"k", 12_000).expect("it is there");
    assert_eq!(entry.get(DataType::Gpt0, 0, 12_000), Some(4), "the own entry has expired");
}

fn drop_member(table: &Table, slot: usize, now: u64) {
    table.note_presence(slot, false, now);
    table.drop_gone(now + 10_001);
}

#[test]
fn parts_of_a_member_that_is_gone_are_dropped_after_the_lifetime() {
    let table = table(&["b", "c"], columns());
    learn(&table, 0, &part(0, 10, 0), 1_000);
    learn(&table, 1, &part(0, 100, 0), 1_000);
    table.note_presence(0, false, 1_000);
    assert!(!table.note_presence(0, true, 2_000), "it was not gone for long");
    table.note_presence(0, false, 3_000);
    let held = table.get(b"k", 9_000).expect("it is there");
    table.sweep(12_000, 100);
    assert_eq!(values(&table, 12_000)[1], 110);
    table.sweep(13_002, 100);
    assert_eq!(values(&table, 13_002)[1], 100);
    // A third member may still know the part. The member itself is right.
    let third = part(0, 12, 0);
    assert!(table.learn_part(0, (b"k", None), (false, false), 13_002, |at| third[at]));
    assert!(table.learn_part(1, (b"k", None), (false, false), 13_002, |at| third[at]));
    assert_eq!(values(&table, 13_002)[1], 112);
    assert!(table.note_presence(0, true, 14_000), "everything must be sent again");
    assert!(!table.note_presence(0, true, 14_000), "only once");
    learn(&table, 0, &part(0, 20, 0), 14_000);
    assert_eq!(values(&table, 14_000)[1], 120);
    drop(held);
}

#[test]
fn a_member_that_returns_while_its_parts_are_dropped_is_present() {
    let table = table(&["b"], columns());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                table.drop_gone(20_000);
            }
        });
        let (mut lost, mut wanted) = (0, 0);
        for _ in 0..200_000 {
            table.note_presence(0, false, 1_000);
            let is_wanted = table.note_presence(0, true, 2_000);
            // Parts that are dropped from here on would not be requested again.
            let values = part(0, 1, 0);
            table.learn_part(0, (b"k", None), (true, true), 2_000, |at| values[at]);
            let entry = table.find(b"k", 2_000).expect("it was learned");
            let is_dropped = entry.get(DataType::HttpReqCnt, 0, 2_000) != Some(1);
            let member = table.member(0).expect("it is a member");
            lost += u32::from(!member.is_present || member.is_dropped || is_dropped);
            wanted += u32::from(is_wanted);
        }
        is_done.store(true, Relaxed);
        assert_eq!(lost, 0, "of {wanted}");
    });
}

#[test]
fn own_part_of_an_earlier_process_is_added_once() {
    let table = table(&["b"], columns());
    table.get(b"k", 1_000).expect("there is room").add(DataType::HttpReqCnt, 0, 3, 1_000);
    let (first, second) = (part(6, 10, 0), part(6, 12, 0));
    assert!(table.learn_own_part((b"k", None), 1_000, |at| first[at], |_| TableValue::Absent));
    assert!(table.learn_own_part((b"k", None), 1_000, |at| second[at], |at| first[at]));
    assert_eq!(values(&table, 1_000)[..2], [6, 15]);
    // Others are sent the sum, because they only have the part of the earlier process.
    let mut changes = Vec::new();
    table.changes(0, 1_000, |_, entry| {
        changes.push(matches!(entry.values(1_000).nth(1), Some(TableValue::Number(15))));
        true
    });
    assert_eq!(changes, [true]);
}

#[test]
fn only_the_own_part_is_cleared_and_others_are_informed() {
    let table = table(&["b"], columns());
    let own = table.get(b"k", 1_000).expect("there is room");
    own.add(DataType::HttpReqCnt, 0, 3, 1_000);
    own.add(DataType::HttpReqRate, 0, 3, 1_000);
    own.touch(1_000);
    drop(own);
    learn(&table, 0, &part(0, 10, 500), 1_000);
    let before = table.last_change();
    let clear = || table.remove(table.find(b"k", 1_000).expect("it is there"));
    assert!(clear());
    assert_eq!(values(&table, 1_000)[1..3], [10, 10], "the other member's part");
    let mut changes = Vec::new();
    table.changes(before, 1_000, |_, entry| {
        changes.push(matches!(entry.values(1_000).nth(1), Some(TableValue::Number(0))));
        true
    });
    assert_eq!(changes, [true]);
    assert!(clear() && table.used() == 1, "the other member still has a part");
    drop_member(&table, 0, 1_000);
    assert!(clear() && table.used() == 0);
}

#[test]
fn memory_is_bounded_by_the_number_of_keys() {
    let table = table(&["b", "c"], columns());
    let values = part(0, 1, 0);
    let fits = (0..1_000u32)
        .map(|key| format!("k{key}"))
        .filter(|key| {
            table.learn_part(key.len() % 2, (key.as_bytes(), None), (true, true), 1_000, |at| values[at])
        })
        .count();
    assert_eq!((fits, table.used()), (100, 100));
    // Another member's part of the same key needs no other entry.
    assert!(table.learn_part(0, (b"k0", None), (true, true), 1_000, |at| values[at]));
    assert!(table.learn_part(1, (b"k0", None), (true, true), 1_000, |at| values[at]));
    assert_eq!(table.used(), 100);
}

#[test]
fn walk_visits_the_entries_of_one_member() {
    let table = table(&["b", "c"], columns());
    let values = part(0, 1, 0);
    for key in 0..50u32 {
        let slot = key as usize % 2;
        let key = format!("k{key}");
        assert!(table.learn_part(slot, (key.as_bytes(), None), (true, true), 1_000, |at| values[at]));
    }
    let mut seen = 0;
    let mut at = Some(TableCursor::default());
    while let Some(from) = at {
        at = table.walk_parts(1, from, 1_000, |_| {
            seen += 1;
            seen % 7 > 0
        });
    }
    assert_eq!(seen, 25);
}

/// A sum in the order of the columns of [`with_owners`].
fn sum(requests: u64) -> [TableValue<'static>; 2] {
    [TableValue::Number(0), TableValue::Number(requests)]
}

/// Returns a table of a group with owners. The other members have the numbers 0 to 8, and this process has 9.
fn with_owners() -> std::sync::Arc<Table> {
    let names: Vec<String> = (0..9).map(|member| format!("n{member}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    table(&names, vec![Column::new(DataType::Gpt0, 1, 0), Column::new(DataType::HttpReqCnt, 1, 0)])
}

fn requests(table: &Table) -> u64 {
    let entry = table.find(b"k", 1_000).expect("it was learned");
    entry.get(DataType::HttpReqCnt, 0, 1_000).expect("it is stored")
}

#[test]
fn the_larger_sum_of_two_owners_counts() {
    let table = with_owners();
    assert_eq!(table.own_number(), 9);
    let learn = |member, owners: [usize; 2], requests| {
        let values = sum(requests);
        assert!(table.learn_sum((member, owners.map(Some)), (b"k", None), 1_000, |at| values[at]));
    };
    learn(1, [1, 2], 10);
    learn(2, [1, 2], 8);
    assert_eq!(requests(&table), 10);
    learn(1, [1, 2], 5);
    assert_eq!(requests(&table), 8);
    // Only an owner may replace the sum of another member.
    learn(3, [1, 2], 100);
    assert_eq!(requests(&table), 8);
    // A new owner replaces the former one.
    learn(3, [1, 3], 20);
    assert_eq!(requests(&table), 20);
    learn(3, [1, 3], 3);
    assert_eq!(requests(&table), 5);
    let values = sum(7);
    assert!(table.learn_direct(true, (b"k", None), 1_000, |at| values[at]));
    let own = table.get(b"k", 1_000).expect("it is there");
    own.add(DataType::HttpReqCnt, 0, 1, 1_000);
    drop(own);
    assert_eq!(requests(&table), 5 + 7 + 1);
    table.drop_member(1);
    assert_eq!(requests(&table), 3 + 7 + 1);
}

#[test]
fn tags_in_sums_replace_the_own_ones_only_if_they_are_later() {
    let table = with_owners();
    let own = |tag| {
        assert!(table.get(b"k", 1_000).expect("there is room").set(DataType::Gpt0, 0, tag, 1_000));
    };
    let learn = |member, tag| {
        let values = [TableValue::Number(tag), TableValue::Number(1)];
        let owners = [Some(1), Some(2)];
        assert!(table.learn_sum((member, owners), (b"k", None), 1_000, |at| values[at]));
        table.find(b"k", 1_000).and_then(|entry| entry.get(DataType::Gpt0, 0, 1_000))
    };
    own(1);
    assert_eq!(learn(1, UNCHANGED), Some(1));
    assert_eq!(learn(2, 2), Some(2), "the first sum of an owner");
    assert_eq!(learn(1, 2), Some(2));
    own(3);
    assert_eq!(learn(1, 2), Some(3), "sent before the owner knew the own tag");
    assert_eq!(learn(1, UNCHANGED), Some(3));
    assert_eq!(learn(1, 2), Some(2), "changed to the former value");
    assert_eq!(learn(1, 0), Some(0));
}

#[test]
fn sums_of_a_member_that_is_gone_are_dropped() {
    let table = with_owners();
    let values = sum(10);
    for (member, requests) in [(1, 10), (9, 4)] {
        let values = sum(requests);
        table.learn_sum((member, [Some(1), Some(9)]), (b"k", None), 1_000, |at| values[at]);
    }
    table.note_presence(1, false, 2_000);
    let own = table.get(b"k", 9_000).expect("it is there");
    own.touch(9_000);
    drop(own);
    let shown = |now| {
        table.drop_gone(now);
        let entry = table.find(b"k", now).expect("it was used");
        entry.get(DataType::HttpReqCnt, 0, now).expect("it is stored")
    };
    assert_eq!((shown(11_000), shown(12_100)), (10, 4));
    // It sends its sums again when it is back.
    assert!(table.note_presence(1, true, 12_200));
    table.learn_sum((1, [Some(1), Some(9)]), (b"k", None), 12_200, |at| values[at]);
    assert_eq!(shown(12_300), 10);
}

#[test]
fn a_large_group_needs_no_more_memory_for_an_entry() {
    let of = |count: usize| {
        let names: Vec<String> = (0..count).map(|member| format!("n{member}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        table(&names, columns()).entry_bytes()
    };
    assert!(of(3) < of(7));
    assert_eq!((of(8), of(8)), (of(3), of(1_000)));
}
