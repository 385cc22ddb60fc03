//! The cost of a connection: no allocation per record, and little memory while idle.
//!
//! This is the only test in its program, because the counts are per process.

mod common;

use std::alloc::System;

use common::{Authority, acceptor, connector, pair};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tls::{EntryOptions, Parameters, TLS12, TLS13};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Memory limit of a session, in addition to the memory of the library for its two keys.
const HELD: usize = 800;

/// Returns the resident bytes of the process.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

#[test]
fn an_established_connection_allocates_nothing_and_holds_little() {
    let authority = Authority::new();
    for version in [TLS12, TLS13] {
        let parameters = Parameters { min: version, max: version, ..Parameters::default() };
        let acceptor = acceptor(&authority, EntryOptions { parameters, ..EntryOptions::default() });
        let connector = connector(&authority);
        let (mut client, mut server) = pair(&acceptor, &connector, "a.test");
        let text = vec![7; 40_000];
        let (mut wire, mut room) = (vec![0; 60_000], vec![0; 16_384]);
        let mut turn = |from: &mut tls::Session, to: &mut tls::Session, length: usize| {
            let (_, sealed) = from.seal(&text[..length / 2], &text[length / 2..length], &mut wire).unwrap();
            let mut got = 0;
            // Cut in two, so that a part has to be stored.
            for piece in [0..sealed / 2, sealed / 2..sealed] {
                let mut received = [0; 66_000];
                let kept = to.take_kept(&mut received);
                received[kept..kept + piece.len()].copy_from_slice(&wire[piece.clone()]);
                got += to.open(&mut received[..kept + piece.len()], &mut room).unwrap().filled;
                loop {
                    let kept = to.take_kept(&mut received);
                    let opened = to.open(&mut received[..kept], &mut room).unwrap();
                    got += opened.filled;
                    if opened.filled == 0 {
                        break;
                    }
                }
            }
            assert_eq!(got, length);
        };
        // The thread's buffers are allocated and grow in the first rounds.
        let mut change = Region::new(GLOBAL).change();
        for _ in 0..4 {
            let region = Region::new(GLOBAL);
            for length in [40_000, 1, 100, 16_384] {
                turn(&mut client, &mut server, length);
                turn(&mut server, &mut client, length);
            }
            change = region.change();
        }
        assert_eq!((change.allocations, change.reallocations), (0, 0), "{version:x}");

        let resident_before = resident();
        let mut servers = Vec::with_capacity(1000);
        for _ in 0..1000 {
            let (client, mut server) = pair(&acceptor, &connector, "a.test");
            let unsent = server.unsent().len();
            server.sent(unsent);
            drop(client);
            servers.push(server);
        }
        let region = Region::new(GLOBAL);
        let per_session = (resident().saturating_sub(resident_before)) / 1000;
        drop(servers);
        let change = region.change();
        let held = change.bytes_deallocated / 1000;
        eprintln!("{version:x}: {held} bytes of ours, {per_session} resident with a pool's share");
        assert!(held <= HELD, "{version:x}: {held}");
    }
}
