//! Data transfer between two sessions in memory.

mod common;

use common::{Authority, acceptor, carry, connector, pair};
use tls::{EntryOptions, Parameters, TLS12, TLS13};

fn options(version: u16, suite: u16) -> EntryOptions {
    let mut parameters = Parameters { min: version, max: version, ..Parameters::default() };
    let suites = if version == TLS13 { &mut parameters.suites13 } else { &mut parameters.suites12 };
    *suites = vec![suite];
    EntryOptions { parameters, ..EntryOptions::default() }
}

#[test]
fn data_passes_both_ways_for_any_split_of_wire_and_buffers() {
    let authority = Authority::new();
    for (version, suite) in
        [(TLS13, 0x1301), (TLS13, 0x1302), (TLS13, 0x1303), (TLS12, 0xc02b), (TLS12, 0xc02c), (TLS12, 0xcca9)]
    {
        let acceptor = acceptor(&authority, options(version, suite));
        let (mut client, mut server) = pair(&acceptor, &connector(&authority), "a.test");
        assert_eq!((server.details().version, server.details().suite), (version, suite));
        assert_eq!((client.details().version, client.details().suite), (version, suite));
        assert_eq!(server.details().sni.as_deref(), Some("a.test"));
        let text: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
        for (cut, room) in [(60_000, 70_000), (16_000, 16_384), (7, 3), (1, 1), (4096, 100)] {
            let length = if cut < 10 { 500 } else { text.len() };
            assert!(carry(&mut client, &mut server, &text[..length], cut, room) == text[..length]);
            assert!(carry(&mut server, &mut client, &text[..length], cut, room) == text[..length]);
        }
    }
}
