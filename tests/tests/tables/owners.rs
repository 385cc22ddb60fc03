//! Aggregate tables of more than eight processes, in which each key has owners.

use weir_tests::{Weir, ask};

use crate::fleet::Fleet;

/// The number of members.
const MEMBERS: usize = 10;

#[test]
fn ten_processes_agree_while_members_are_killed() {
    let table = "expire 1h aggregate every 10ms store http_req_cnt,http_req_rate(1h),gpt0";
    let fleet = Fleet::without_relays(MEMBERS, table);
    let mut running: Vec<Option<Weir>> = (0..MEMBERS).map(|place| Some(fleet.start(place))).collect();
    fleet.all_connected();
    let all: Vec<usize> = (0..MEMBERS).collect();
    let keys: Vec<String> = (0..8).map(|key| format!("/k{key}")).collect();
    for sent in 0..400 {
        let (sum, own) = fleet.count(sent % MEMBERS, &keys[sent % keys.len()]);
        // Changes in transit are missing, and nothing is counted twice.
        assert!(own <= sum && sum <= sent as u64 / 8 + 1, "{own} of {sum} after {sent}");
    }
    for key in &keys {
        fleet.all_show(&all, key, "http_req_cnt", 50);
        fleet.all_show(&all[..1], key, "http_req_rate(3600000)", 50);
    }
    // A key that only one member has counted is known everywhere.
    fleet.count(3, "/single");
    fleet.all_show(&all, "/single", "http_req_cnt", 1);
    let shown = ask(&fleet.socket(0), "show peers");
    assert!(shown.matches(" mode=owners owner_share=").count() == MEMBERS - 1, "{shown}");
    // Two members are killed at once. Their parts remain, and new requests count.
    let (killed, rest) = ([2, 7], [0, 1, 3, 4, 5, 6, 8, 9]);
    for place in killed {
        running[place] = None;
    }
    for sent in 0..80 {
        fleet.count(rest[sent % rest.len()], &keys[sent % keys.len()]);
    }
    for key in &keys {
        fleet.all_show(&rest, key, "http_req_cnt", 60);
    }
    // They get their own parts back.
    for place in killed {
        running[place] = Some(fleet.start(place));
    }
    fleet.all_connected();
    for key in &keys {
        fleet.all_show(&all, key, "http_req_cnt", 60);
    }
    // One of them has counted ten requests of each key.
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(fleet.count(killed[at % 2], key), (61, 11), "{key}");
    }
}
