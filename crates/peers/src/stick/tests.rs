use super::*;
use state::table::{Aggregate, Column, ServerKey, TableSettings};

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
