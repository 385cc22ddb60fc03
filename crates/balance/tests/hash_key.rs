//! The points of a server on the ring by `hash-key`.
//!
//! `tests/tests/servers/balancing.rs` compares the points with those of a HAProxy that supports the keyword. The numbers in this
//! file were recorded there, for machines with an older HAProxy.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

use balance::HashKey;
use balance::ring::base_of;
use state::Server;
use state::server::{ServerAddress, ServerSeed};

fn base(id: u32, address: &str, key: HashKey, guid: Option<&str>) -> u32 {
    let address = address.parse().map_or(ServerAddress::Unresolved, ServerAddress::Ip);
    let server = Server::new(ServerSeed {
        id,
        name: "s".into(),
        proxy: "be".into(),
        backup: false,
        maxconn: 0,
        minconn: 0,
        maxqueue: 0,
        address,
        weight: 1,
        disabled: false,
        checked: false,
    });
    base_of(&server, key, guid)
}

#[test]
fn hash_key_determines_the_points() {
    let cases = [
        (7, "10.1.2.3:80", HashKey::Id, None, 7 * 4096),
        (1 << 20, "10.1.2.3:80", HashKey::Id, None, 0),
        (7, "10.1.2.3:80", HashKey::Id32, None, 2_056_672_031),
        (7, "10.1.2.3:80", HashKey::Addr, None, 3_350_023_956),
        (8, "10.1.2.3:81", HashKey::Addr, None, 3_350_023_956),
        (7, "10.1.2.3:80", HashKey::AddrPort, None, 2_159_855_352),
        (7, "[2001:db8::7]:80", HashKey::Addr, None, 4_198_711_036),
        (7, "[2001:db8::7]:80", HashKey::AddrPort, None, 3_172_103_972),
        (7, "10.1.2.3:80", HashKey::Guid, Some("web-7"), 2_268_366_404),
    ];
    for (id, address, key, guid, wanted) in cases {
        assert_eq!(base(id, address, key, guid), wanted, "{id} {address} {key:?} {guid:?}");
    }
}

#[test]
fn without_an_address_or_a_guid_the_id_is_used() {
    for key in [HashKey::Addr, HashKey::AddrPort, HashKey::Guid] {
        assert_eq!(base(7, "unresolved", key, None), 7 * 4096);
    }
}
