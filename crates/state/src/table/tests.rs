use super::*;

fn settings(size: u32) -> TableSettings {
    TableSettings {
        name: "t".into(),
        kind: KeyType::Int,
        key_length: 4,
        size,
        expire_ms: 0,
        nopurge: false,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns: vec![
            Column::new(DataType::Gpc0, 1, 0),
            Column::new(DataType::ConnRate, 1, 1000),
            Column::new(DataType::BytesInCnt, 1, 0),
            Column::new(DataType::Gpt, 3, 0),
        ],
        peers: None,
        aggregate: None,
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Returns the keys of all entries in walk order, checking `most` positions at a time.
fn met(table: &Table, now: u64, most: usize) -> Vec<u32> {
    let (mut cursor, mut keys) = (TableCursor::default(), Vec::new());
    loop {
        match table.next(cursor, now, most) {
            Ok((entry, next)) => {
                let mut bytes = Vec::new();
                entry.key(&mut bytes);
                keys.push(u32::from_be_bytes(bytes.try_into().unwrap()));
                cursor = next;
            }
            Err(Some(next)) => cursor = next,
            Err(None) => return keys,
        }
    }
}

fn keys(table: &Table, now: u64) -> Vec<u32> {
    let mut keys = met(table, now, usize::MAX);
    keys.sort_unstable();
    keys
}

#[test]
fn walks_visit_each_entry_once_in_insertion_order() {
    const COUNT: u32 = 100_000;
    let table = Table::new(settings(COUNT));
    // The keys are not neighbours, so that some shards get ahead of others.
    for number in 0..COUNT {
        drop(table.get(&key(number * NEIGHBOURS), 1));
    }
    let met_all = met(&table, 1, usize::MAX);
    assert_eq!(met_all, met(&table, 1, 1), "in whichever steps");
    // Runs of 16 in each of 128 shards, some of which are ahead of others.
    for (place, number) in met_all.iter().enumerate() {
        let number = number / NEIGHBOURS;
        assert!(number.abs_diff(place as u32) < 16_000, "{number} was met as number {place}");
    }
    assert_eq!(keys(&table, 1), (0..COUNT).map(|number| number * NEIGHBOURS).collect::<Vec<_>>());
}

#[test]
fn neighbouring_keys_are_adjacent_and_others_spread_over_shards() {
    let table = Table::new(settings(1 << 20));
    let slots: Vec<EntrySlot> =
        (0..NEIGHBOURS * 8192).map(|number| table.get(&key(number), 1).unwrap().view.slot).collect();
    let groups = slots.chunks(NEIGHBOURS as usize);
    for group in groups.clone() {
        for (step, slot) in group.iter().enumerate() {
            assert_eq!(*slot, EntrySlot { at: group[0].at + step as u32, ..group[0] });
        }
    }
    let mut shards: Vec<u32> = groups.map(|group| group[0].shard).collect();
    shards.sort_unstable();
    shards.dedup();
    assert_eq!(shards.len(), MOST_SHARDS as usize);
}

#[test]
fn keys_differ_if_any_bit_differs() {
    let text = TableSettings { kind: KeyType::Str, key_length: 12, ..settings(1000) };
    let table = Table::new(text);
    let all =
        ["", "a", "b", "ab", "aba", "abab", "ababa", "ababb", "ababababab", "abababababab", "bbabababababab"];
    for (number, key) in all.iter().enumerate() {
        let entry = table.get(key.as_bytes(), 1).unwrap();
        assert_eq!(entry.get(DataType::Gpc0, 0, 1), Some(0), "{key} is new");
        entry.add(DataType::Gpc0, 0, number as u64 + 1, 1);
    }
    for (number, key) in all.iter().enumerate() {
        let entry = table.find(key.as_bytes(), 1).unwrap();
        assert_eq!(entry.get(DataType::Gpc0, 0, 1), Some(number as u64 + 1), "{key}");
    }
}

#[test]
fn entries_keep_values_and_reject_types_not_stored() {
    let table = Table::new(settings(10));
    let entry = table.get(&key(7), 1).unwrap();
    assert_eq!(entry.add(DataType::Gpc0, 0, 2, 1), Some(2));
    assert_eq!(entry.add(DataType::BytesInCnt, 0, 1 << 40, 1), Some(1 << 40));
    assert_eq!(entry.add(DataType::ConnRate, 0, 3, 1), Some(3));
    assert!(entry.set(DataType::Gpt, 2, 9, 1));
    assert!(!entry.set(DataType::Gpt, 3, 9, 1) && entry.add(DataType::Gpc1, 0, 1, 1).is_none());
    drop(entry);
    let entry = table.find(&key(7), 2).unwrap();
    let got = [
        (DataType::Gpc0, 0),
        (DataType::BytesInCnt, 0),
        (DataType::ConnRate, 0),
        (DataType::Gpt, 2),
        (DataType::Gpt, 0),
    ]
    .map(|(data, element)| entry.get(data, element, 2));
    assert_eq!(got, [Some(2), Some(1 << 40), Some(3), Some(9), Some(0)]);
    assert!(table.find(&key(8), 2).is_none());
    assert_eq!((table.used(), entry.holders()), (1, 1));
}

#[test]
fn a_full_table_evicts_its_oldest_entries_except_held_ones() {
    let table = Table::new(settings(3));
    let held = table.get(&key(0), 0).unwrap();
    for number in 1..6 {
        assert!(table.get(&key(number), number.into()).is_some());
    }
    assert_eq!(keys(&table, 9), [0, 4, 5]);
    drop(table.get(&key(4), 10));
    drop(table.get(&key(6), 11));
    assert_eq!(keys(&table, 11), [0, 4, 6], "what was looked for last stays");
    drop(held);
    assert_eq!(table.used(), 3);
}

#[test]
fn tables_with_nopurge_reject_new_keys_when_full() {
    let table = Table::new(TableSettings { nopurge: true, ..settings(2) });
    assert!(table.get(&key(1), 0).is_some() && table.get(&key(2), 0).is_some());
    assert!(table.get(&key(3), 0).is_none() && table.get(&key(1), 0).is_some());
}

#[test]
fn a_table_with_only_held_entries_rejects_new_keys() {
    let table = Table::new(settings(2));
    let held = [table.get(&key(1), 0), table.get(&key(2), 0)];
    assert!(table.get(&key(3), 0).is_none());
    drop(held);
    assert!(table.get(&key(3), 0).is_some());
    assert_eq!(table.used(), 2);
}

#[test]
fn entries_expire_after_their_last_touch_unless_they_are_held() {
    let table = Table::new(TableSettings { expire_ms: 100, ..settings(5000) });
    for number in 0..1000 {
        drop(table.get(&key(number), 0));
    }
    let held = table.get(&key(1), 0).unwrap();
    table.find(&key(2), 50).unwrap().touch(50);
    assert_eq!(table.find(&key(2), 120).unwrap().expires_in(120), 30);
    assert!(table.find(&key(3), 100).is_none() && table.find(&key(4), 99).is_some());
    let mut gone = 0;
    while table.sweep(120, 10) > 0 {
        gone += 1;
        assert!(gone < 1000);
    }
    assert_eq!(keys(&table, 120), [1, 2]);
    drop(held);
    assert_eq!((keys(&table, 151), table.used()), (vec![], 2));
    table.sweep(151, 10);
    assert_eq!(table.used(), 0);
}

#[test]
fn large_tables_find_all_keys_and_keep_their_size() {
    let table = Table::new(TableSettings { columns: Vec::new(), ..settings(20_000) });
    for number in 0..50_000 {
        assert!(table.get(&key(number), 0).is_some());
        assert!(table.used() <= 20_000);
    }
    let left = keys(&table, 0);
    assert_eq!(left.len(), 20_000);
    assert!(left.iter().all(|number| table.find(&key(*number), 0).is_some()));
}

#[test]
fn entries_are_found_by_pointer_until_removed() {
    let table = Table::new(settings(100));
    let entry = table.get(&key(1), 0).unwrap();
    let pointer = entry.pointer();
    let second = table.find(&key(1), 0).unwrap();
    assert!(!table.remove(second), "another holds it");
    drop(entry);
    let found = table.by_pointer(pointer, 0).unwrap();
    assert!(table.remove(found) && table.by_pointer(pointer, 0).is_none());
    assert!(table.by_pointer(pointer + 1, 0).is_none() && table.by_pointer(0, 0).is_none());
    assert!(table.by_pointer(u64::MAX, 0).is_none());
}

#[test]
fn text_keys_are_truncated_and_binary_keys_padded() {
    let text = Table::new(TableSettings { kind: KeyType::Str, key_length: 5, ..settings(9) });
    drop(text.get(b"abcdefg", 0));
    assert!(text.find(b"abcde", 0).is_some() && text.find(b"abcd", 0).is_none());
    drop(text.get(b"", 0));
    let mut bytes = Vec::new();
    text.find(b"abcde!", 0).unwrap().key(&mut bytes);
    assert_eq!((&*bytes, text.used()), (&b"abcde"[..], 2));
    let binary = Table::new(TableSettings { kind: KeyType::Bin, key_length: 6, ..settings(9) });
    drop(binary.get(b"ab", 0));
    bytes.clear();
    binary.find(b"ab\0", 0).unwrap().key(&mut bytes);
    assert_eq!(bytes, b"ab\0\0\0\0");
}

#[test]
fn concurrent_counting_loses_nothing() {
    let table = Table::new(settings(100));
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let table = &table;
            scope.spawn(move || {
                for turn in 0..2_000u32 {
                    let tracked = Tracked::get(table, &key(1), 5).unwrap();
                    tracked.view().add(DataType::Gpc0, 0, 1, 5);
                    drop(table.get(&key(10 + thread * 2_000 + turn), 5));
                }
            });
        }
    });
    let entry = table.find(&key(1), 5).unwrap();
    assert_eq!((entry.get(DataType::Gpc0, 0, 5), entry.holders(), table.used()), (Some(8_000), 1, 100));
}

/// Returns the keys that changed after a number, with their numbers.
fn changed(table: &Table, after: u64) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    table.changes(after, 10, |number, entry| {
        let mut key = Vec::new();
        entry.key(&mut key);
        found.push((number, u32::from_be_bytes(key.try_into().unwrap())));
        true
    });
    found
}

#[test]
fn peers_get_an_entry_only_after_it_is_touched() {
    let table = Table::new(TableSettings { peers: Some("p".into()), ..settings(5000) });
    let entry = table.get(&key(1), 0).unwrap();
    entry.set(DataType::Gpc0, 0, 7, 0);
    assert_eq!((changed(&table, 0), table.last_change()), (vec![], 0));
    entry.touch(0);
    assert_eq!(changed(&table, 0), [(1, 1)]);
}

#[test]
fn changes_are_numbered_in_order_and_entries_keep_the_last() {
    let table = Table::new(TableSettings { peers: Some("p".into()), ..settings(5000) });
    let add = |number, now| table.get(&key(number), now).unwrap().touch(now);
    for number in [1, 2, 3] {
        add(number, 0);
    }
    assert_eq!(changed(&table, 0), [(1, 1), (2, 2), (3, 3)]);
    let first = table.find(&key(1), 5).unwrap();
    first.add(DataType::Gpc0, 0, 1, 5);
    first.touch(5);
    first.touch(6);
    drop(first);
    assert_eq!(changed(&table, 0), [(2, 2), (3, 3), (4, 1)]);
    assert_eq!((changed(&table, 3), changed(&table, 4), table.last_change()), (vec![(4, 1)], vec![], 4));
    assert!(table.remove(table.find(&key(2), 6).unwrap()));
    add(4, 6);
    assert_eq!(changed(&table, 0), [(3, 3), (4, 1), (5, 4)]);
    // Only numbers without entries are dropped.
    for turn in 0..5_000 {
        table.find(&key(3), turn).unwrap().touch(turn);
        table.last_change();
    }
    assert_eq!(changed(&table, 4), [(5, 4), (5005, 3)]);
    let told = Arc::new(AtomicU32::new(0));
    let counted = told.clone();
    table.wakes(Box::new(move || {
        counted.fetch_add(1, Relaxed);
    }));
    for (number, times) in [(3, 1), (3, 1), (4, 1)] {
        table.find(&key(number), 5_000).unwrap().touch(5_000);
        assert_eq!(told.load(Relaxed), times, "once until peers ask");
    }
    table.last_change();
    table.find(&key(3), 5_000).unwrap().touch(5_000);
    assert_eq!(told.load(Relaxed), 2);
    let untold = Table::new(settings(10));
    untold.get(&key(1), 0).unwrap().touch(0);
    assert_eq!((changed(&untold, 0), untold.last_change()), (vec![], 0));
}

/// Peers write their own target tables. If they received such values again, these would overwrite newer ones.
#[test]
fn values_in_target_tables_are_not_announced() {
    let columns = vec![Column::new(DataType::Gpt0, 1, 0)];
    let shared = TableSettings { columns, peers: Some("p".into()), ..settings(10) };
    let (source, target) = (Table::new(shared.clone()), Table::new(shared));
    source.write_to.set(target.clone()).unwrap();
    source.learn(&key(1), None, false, 100, |_| TableValue::Number(7));
    assert_eq!(target.find(&key(1), 100).and_then(|entry| entry.get(DataType::Gpt0, 0, 100)), Some(7));
    target.changes(0, 200, |_, _| panic!("nothing to announce"));
}

#[test]
fn negative_integer_keys_wrap_around() {
    for (word, wanted) in [("5", 5), ("-5", 4_294_967_291), ("5x", 5), ("", 0), ("-", 0)] {
        assert_eq!(KeyType::Int.key_of(word), Ok(u32::to_be_bytes(wanted).to_vec()), "{word}");
    }
}

#[test]
fn learned_values_are_not_passed_on() {
    let columns = vec![
        Column::new(DataType::Gpc0, 1, 0),
        Column::new(DataType::ConnRate, 1, 1000),
        Column::new(DataType::ConnCur, 1, 0),
        Column::new(DataType::Gpt, 3, 0),
        Column::new(DataType::ServerKey, 1, 0),
    ];
    let shared = TableSettings { expire_ms: 1000, columns, peers: Some("p".into()), ..settings(10) };
    let (from, to, target) = (
        Table::new(shared.clone()),
        Table::new(shared.clone()),
        Table::new(TableSettings { peers: None, ..shared }),
    );
    to.write_to.set(target.clone()).unwrap();
    let entry = from.get(&key(1), 100).unwrap();
    entry.add(DataType::Gpc0, 0, 3, 100);
    entry.add(DataType::ConnRate, 0, 4, 100);
    entry.add(DataType::ConnCur, 0, 5, 100);
    entry.set(DataType::Gpt, 2, 6, 100);
    entry.set_server_key("s");
    entry.touch(100);
    drop(entry);
    let mut told = 0;
    from.changes(0, 300, |_, entry| {
        told += 1;
        let values: Vec<_> = entry.values(300).collect();
        to.learn(&key(1), Some(entry.expires_in(300)), false, 5_000, |at| values[at]);
        true
    });
    assert_eq!(told, 1);
    let learned = to.find(&key(1), 5_000).unwrap();
    let get = |data, element| learned.get(data, element, 5_000);
    assert_eq!(
        (get(DataType::Gpc0, 0), get(DataType::ConnRate, 0), get(DataType::Gpt, 2)),
        (Some(3), Some(4), Some(6))
    );
    assert_eq!((get(DataType::ConnCur, 0), learned.server_key().map(|text| &**text)), (Some(0), Some("s")));
    assert_eq!((learned.expires_in(5_000), changed(&to, 0)), (800, vec![]));
    let written = target.find(&key(1), 5_000).unwrap();
    let get = |data, element| written.get(data, element, 5_000);
    assert_eq!((get(DataType::Gpc0, 0), get(DataType::Gpt, 2)), (Some(0), Some(6)));
    let mut walked = 0;
    assert!(
        to.walk(TableCursor::default(), 5_000, |_| {
            walked += 1;
            true
        })
        .is_none()
    );
    assert_eq!(walked, 1);
}

#[test]
fn a_resync_does_not_reduce_newer_entries() {
    let columns = vec![
        Column::new(DataType::Gpc0, 1, 0),
        Column::new(DataType::HttpReqCnt, 1, 0),
        Column::new(DataType::ConnRate, 1, 1000),
        Column::new(DataType::Gpt, 2, 0),
        Column::new(DataType::ServerKey, 1, 0),
    ];
    let table =
        Table::new(TableSettings { expire_ms: 1000, columns, peers: Some("p".into()), ..settings(10) });
    // The peer's copy is 300 ms old.
    let told = [
        TableValue::Number(3),
        TableValue::Rate(10, 9, 0),
        TableValue::Number(50),
        TableValue::Text(Some("old")),
        TableValue::Number(1),
        TableValue::Number(2),
    ];
    for (resync, wanted) in [
        (true, (Some(7), Some(50), Some(9), [Some(5), Some(2)], Some("new"), 900)),
        (false, (Some(3), Some(50), Some(9), [Some(1), Some(2)], Some("old"), 700)),
    ] {
        let entry = table.get(&key(1), 5_000).unwrap();
        entry.set(DataType::Gpc0, 0, 7, 5_000);
        entry.set(DataType::HttpReqCnt, 0, 1, 5_000);
        entry.set(DataType::ConnRate, 0, 0, 5_000);
        entry.set(DataType::Gpt, 0, 5, 5_000);
        entry.set(DataType::Gpt, 1, 0, 5_000);
        entry.set_server_key("new");
        entry.touch(5_000);
        drop(entry);
        table.learn(&key(1), Some(700), resync, 5_100, |at| told[at]);
        let now = table.find(&key(1), 5_100).unwrap();
        let get = |data, element| now.get(data, element, 5_100);
        let tags = [get(DataType::Gpt, 0), get(DataType::Gpt, 1)];
        let text = now.server_key().map(|text| &**text);
        let found = (
            get(DataType::Gpc0, 0),
            get(DataType::HttpReqCnt, 0),
            get(DataType::ConnRate, 0),
            tags,
            text,
            now.expires_in(5_100),
        );
        assert_eq!(found, wanted, "resync: {resync}");
    }
    // If the peer's copy is newer, it wins.
    table.learn(&key(1), Some(950), true, 5_200, |at| told[at]);
    assert_eq!(table.find(&key(1), 5_200).unwrap().get(DataType::Gpc0, 0, 5_200), Some(3));
}

#[test]
fn a_predecessors_counts_are_added_once() {
    let columns = vec![
        Column::new(DataType::ServerId, 1, 0),
        Column::new(DataType::ConnCur, 1, 0),
        Column::new(DataType::HttpReqCnt, 1, 0),
        Column::new(DataType::ConnRate, 1, 1000),
        Column::new(DataType::ServerKey, 1, 0),
        Column::new(DataType::Gpt, 2, 0),
    ];
    let table =
        Table::new(TableSettings { expire_ms: 1000, columns, peers: Some("p".into()), ..settings(10) });
    let entry = table.get(&key(1), 5_000).unwrap();
    let places: Vec<DataType> = table.columns().map(|column| column.data).collect();
    for (data, amount) in
        [(DataType::HttpReqCnt, 5), (DataType::ConnRate, 5), (DataType::ConnCur, 2), (DataType::Gpt, 8)]
    {
        entry.add(data, 0, amount, 5_000);
    }
    entry.set_server_key("here");
    drop(entry);
    let told = |requests, events, tags: [u64; 2]| -> Vec<TableValue<'static>> {
        let value = |data: &DataType| match data {
            DataType::ConnRate => vec![TableValue::Rate(10, events, 0)],
            DataType::ServerKey => vec![TableValue::Text(Some("there"))],
            DataType::Gpt => tags.map(TableValue::Number).to_vec(),
            DataType::HttpReqCnt => vec![TableValue::Number(requests)],
            _ => vec![TableValue::Number(7)],
        };
        places.iter().flat_map(value).collect()
    };
    let (first, second) = (told(100, 9, [1, 2]), told(103, 10, [3, 2]));
    let nothing = |_| TableValue::Absent;
    assert!(table.learn_from_predecessor(&key(1), Some(700), 5_000, |at| first[at], nothing));
    let seen = |number| {
        let entry = table.find(&key(number), 5_000).unwrap();
        let data =
            [DataType::ServerId, DataType::ConnCur, DataType::HttpReqCnt, DataType::ConnRate, DataType::Gpt];
        let tag = entry.get(DataType::Gpt, 1, 5_000);
        let text = entry.server_key().map(|text| text.to_string()).unwrap_or_default();
        (data.map(|data| entry.get(data, 0, 5_000).unwrap()), tag, text, entry.expires_in(5_000))
    };
    assert_eq!(seen(1), ([7, 2, 105, 14, 8], Some(2), "here".into(), 1000));
    // Later changes are sent to other peers, but not those that the predecessor has already sent.
    let before = table.last_change();
    assert!(table.learn_from_predecessor(&key(2), Some(700), 5_000, |at| first[at], nothing));
    assert_eq!((seen(2), table.last_change()), (([7, 0, 100, 9, 1], Some(2), "there".into(), 700), before));
    assert!(table.learn_from_predecessor(&key(1), Some(700), 5_000, |at| second[at], |at| first[at]));
    assert_eq!(seen(1), ([7, 2, 108, 15, 3], Some(2), "here".into(), 1000));
    assert_eq!(table.last_change(), before + 1);
}

#[test]
fn learned_entries_expire_at_most_a_64th_late() {
    let table = Table::new(TableSettings { expire_ms: 6_400, ..settings(10) });
    let learn = |number, left| table.learn(&key(number), Some(left), false, 10_000, |_| TableValue::Absent);
    learn(1, 6_000);
    // An entry may be up to 100 ms out of order; otherwise it must be before the others.
    learn(2, 5_950);
    learn(3, 1_000);
    for (now, used, what) in [
        (11_050, 3, "the third is the oldest by far, and goes for the next"),
        (15_960, 4, "the second is too old, but behind the first, which is not"),
        (16_010, 3, "both go for the next"),
    ] {
        drop(table.get(&key(now as u32), now));
        assert_eq!(table.used(), used, "{what}");
    }
    assert_eq!(keys(&table, 16_010), [11_050, 15_960, 16_010]);
}

#[test]
fn an_entry_of_an_address_with_four_data_types_takes_less_than_120_bytes() {
    let rate = |data| Column::new(data, 1, 10_000);
    let columns = vec![
        Column::new(DataType::Gpc0, 1, 0),
        Column::new(DataType::ConnCur, 1, 0),
        rate(DataType::HttpReqRate),
        rate(DataType::ConnRate),
    ];
    let table = Table::new(TableSettings { kind: KeyType::Ip4, columns, ..settings(1 << 20) });
    assert!(table.entry_bytes() < 120, "{}", table.entry_bytes());
}
