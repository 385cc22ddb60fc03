//! The same tests for both engines: their connections must behave alike.

#![cfg(feature = "legacy-tls")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::sync::Arc;

use common::{Authority, carry, certificate, entry, listening, shake};
use rcgen::{KeyPair, PKCS_RSA_SHA256};
use tls::{
    Acceptor, ClientVerify, Connecting, Connector, EntryOptions, FailureKind, Keep, Legacy, Listening,
    Parameters, PeerEnd, Reason, Resumption, Session, TLS10, TLS12, TLS13, TicketKeys, VerifyMode,
};

const TLS11: u16 = 0x0302;

/// Returns the parameters of a line for one engine, with these versions.
fn parameters(is_legacy: bool, min: u16, max: u16) -> Parameters {
    let old = || tls::ciphers::ciphers("DEFAULT").unwrap();
    let default = Parameters { min, max, ..Parameters::default() };
    if is_legacy {
        Parameters { legacy: Some(Legacy::default()), suites12: old(), ..default }
    } else {
        default
    }
}

/// Forces the use of OpenSSL: rustls does not support client verification at a low security level.
fn only_openssl(options: &mut EntryOptions, authority: &Authority) {
    if let Some(legacy) = &mut options.parameters.legacy {
        legacy.security_level = Some(0);
        options.verify =
            ClientVerify { mode: VerifyMode::Optional, trust: authority.trust(), ..ClientVerify::default() };
    }
}

struct Pair {
    client: Session,
    server: Session,
}

/// Returns both sides after the handshake. `true` means that a side uses OpenSSL.
fn meet(authority: &Authority, [client, server]: [Line; 2], alpn: [&[&str]; 2]) -> Pair {
    let list = |names: &[&str]| names.iter().map(|name| name.as_bytes().into()).collect::<Vec<Box<[u8]>>>();
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let own = certificate(&authority.issue_with(&["a.test"], &key, |_| {}));
    let mut options = EntryOptions {
        parameters: parameters(server.0, server.1, server.2),
        alpn: list(alpn[1]),
        ..EntryOptions::default()
    };
    only_openssl(&mut options, authority);
    let listening = Listening {
        keep: Keep { secrets: true, ..Keep::default() },
        ..listening(vec![entry(own, &Arc::new(options))])
    };
    let acceptor = Arc::new(Acceptor::new(listening).unwrap());
    let connector = Connector::new(&Connecting {
        parameters: parameters(client.0, client.1, client.2),
        alpn: list(alpn[0]),
        trust: Some(authority.trust()),
        keep: Keep { secrets: true, ..Keep::default() },
        ..Connecting::default()
    })
    .unwrap();
    let mut client = Session::connect(&connector, Some("a.test")).unwrap();
    let mut server = Session::accept(&acceptor);
    let _ = shake(&mut client, &mut server);
    Pair { client, server }
}

/// Whether a side uses OpenSSL, and its versions.
type Line = (bool, u16, u16);

/// The engine and versions of each side, and the version that is negotiated.
#[rustfmt::skip]
const MEETINGS: &[([Line; 2], u16)] = &[
    ([(false, TLS12, TLS13), (false, TLS12, TLS13)], TLS13),
    ([(false, TLS12, TLS12), (false, TLS12, TLS13)], TLS12),
    ([(false, TLS12, TLS12), (true, TLS10, TLS12)],  TLS12),
    ([(true, TLS12, TLS12), (false, TLS12, TLS13)],  TLS12),
    ([(true, TLS10, TLS13), (false, TLS12, TLS13)],  TLS13),
    ([(true, TLS10, TLS13), (true, TLS10, TLS13)],   TLS13),
    ([(true, TLS12, TLS12), (true, TLS10, TLS13)],   TLS12),
    ([(true, TLS10, TLS13), (true, TLS11, TLS11)],   TLS11),
    ([(true, TLS10, TLS10), (true, TLS10, TLS13)],   TLS10),
];

#[test]
fn both_engines_report_the_same_details() {
    let authority = Authority::new();
    for (engines, version) in MEETINGS {
        let Pair { client, server } = meet(&authority, *engines, [&["x", "http/1.1"], &["h3", "http/1.1"]]);
        assert!(client.is_established() && server.is_established(), "{engines:x?}");
        let (of_client, of_server) = (client.details(), server.details());
        for details in [of_client, of_server] {
            assert_eq!(details.version, *version, "{engines:x?}");
            assert_eq!(details.alpn.as_deref(), Some(&b"http/1.1"[..]), "{engines:x?}");
            assert_eq!(details.sni.as_deref(), Some("a.test"), "{engines:x?}");
            assert!(!details.is_resumed && details.cipher_name().is_some(), "{engines:x?}");
            assert!(details.group_name().is_some_and(|name| name.starts_with("X25519")), "{engines:x?}");
        }
        assert_eq!((of_client.suite, of_client.group), (of_server.suite, of_server.group), "{engines:x?}");
        assert_eq!((of_client.peer.len(), of_server.peer.len()), (1, 0), "{engines:x?}");
        let (one, two) = (of_client.captured.as_ref().unwrap(), of_server.captured.as_ref().unwrap());
        assert_ne!(one.client_random, [0; 32], "{engines:x?}");
        assert_eq!(one.client_random, two.client_random, "{engines:x?}");
        assert_eq!(one.server_random, two.server_random, "{engines:x?}");
        let label = if *version == TLS13 { "CLIENT_TRAFFIC_SECRET_0" } else { "CLIENT_RANDOM" };
        assert!(one.secret(label).is_some_and(|secret| secret.len() >= 32), "{engines:x?}");
        assert_eq!(one.secret(label), two.secret(label), "{engines:x?}");
    }
}

#[test]
fn data_passes_for_any_split() {
    let authority = Authority::new();
    let text: Vec<u8> = (0..70_000u32).map(|n| (n % 253) as u8).collect();
    for (engines, _) in MEETINGS {
        let Pair { mut client, mut server } = meet(&authority, *engines, [&[], &[]]);
        for (cut, room) in [(1460, 16_384), (20_000, 100), (97, 5000), (100_000, 100_000)] {
            assert!(carry(&mut client, &mut server, &text, cut, room) == text, "{engines:x?} {cut} {room}");
            assert!(carry(&mut server, &mut client, &text, cut, room) == text, "{engines:x?} {cut} {room}");
        }
        // An empty room only asks whether there is data.
        let mut wire = [0; 1000];
        let (_, sealed) = client.seal(b"ab", b"c", &mut wire).unwrap();
        assert_eq!(server.open(&mut wire[..sealed], &mut []).unwrap().filled, 0);
        assert!(server.has_waiting());
        let mut room = [0; 16];
        let first = server.take_plain(&mut room);
        let rest = server.open(&mut [], &mut room[first..]).unwrap().filled;
        assert_eq!(&room[..first + rest], b"abc", "{engines:x?}");
        assert!(!server.has_waiting());
    }
}

fn unsent(from: &mut Session) -> Vec<u8> {
    let wire = from.unsent().to_vec();
    from.sent(wire.len());
    wire
}

#[test]
fn a_clean_end_differs_from_a_broken_connection() {
    let authority = Authority::new();
    for (engines, _) in MEETINGS {
        let Pair { mut client, mut server } = meet(&authority, *engines, [&[], &[]]);
        let early = unsent(&mut server);
        let mut room = [0; 64];
        client.open(&mut early.clone(), &mut room).unwrap();
        client.close();
        client.close();
        let mut wire = unsent(&mut client);
        assert!(server.open(&mut wire, &mut room).unwrap().is_end, "{engines:x?}");
        assert_eq!(server.ended(), PeerEnd::Cleanly);
        // The other direction still works.
        let mut out = [0; 1000];
        let (_, sealed) = server.seal(b"bye", b"", &mut out).unwrap();
        assert_eq!(client.open(&mut out[..sealed], &mut room).unwrap().filled, 3, "{engines:x?}");
        assert_eq!(&room[..3], b"bye");
        assert!(!client.transport_ended());
        assert_eq!(client.ended(), PeerEnd::Cut);
        // A record modified in transit.
        let Pair { mut client, mut server } = meet(&authority, *engines, [&[], &[]]);
        let mut out = [0; 1000];
        let (_, sealed) = client.seal(b"hello", b"", &mut out).unwrap();
        out[sealed - 1] ^= 1;
        let error = server.open(&mut out[..sealed], &mut room).unwrap_err();
        assert_eq!(
            (error.kind, error.reason),
            (FailureKind::Fatal, Reason::DecryptionFailed),
            "{engines:x?}"
        );
        assert!(!server.unsent().is_empty() && server.failure() == Some(error));
        assert!(server.seal(b"x", b"", &mut out).is_err());
    }
}

/// Invalid handshake data fails without a panic, whatever its length.
#[test]
fn noise_fails_on_openssl_as_on_rustls() {
    let authority = Authority::new();
    let Pair { .. } = meet(&authority, MEETINGS[8].0, [&[], &[]]);
    let options = EntryOptions { parameters: parameters(true, TLS10, TLS12), ..EntryOptions::default() };
    let acceptor = common::acceptor(&authority, options);
    let connector = Connector::new(&Connecting {
        parameters: parameters(true, TLS10, TLS12),
        trust: Some(authority.trust()),
        ..Connecting::default()
    })
    .unwrap();
    let mut client = Session::connect(&connector, Some("a.test")).unwrap();
    client.handshake(&[]).unwrap();
    let hello = unsent(&mut client);
    for place in (0..hello.len()).step_by(2) {
        let mut changed = hello.clone();
        changed[place] ^= 0x55;
        let mut server = Session::accept(&acceptor);
        let _ = server.handshake(&changed);
        let _ = server.handshake(&changed);
        let mut server = Session::accept(&acceptor);
        let _ = server.handshake(&hello[..place]);
        assert!(!server.is_established());
    }
    let mut server = Session::accept(&acceptor);
    server.handshake(&hello).unwrap();
    let flight = unsent(&mut server);
    for place in (0..flight.len()).step_by(3) {
        let mut changed = flight.clone();
        changed[place] ^= 0x55;
        let mut client = Session::connect(&connector, Some("a.test")).unwrap();
        let _ = client.handshake(&[]);
        let _ = client.handshake(&changed);
        assert!(!client.is_established());
    }
}

#[test]
fn a_client_that_wants_to_renegotiate_is_refused() {
    let authority = Authority::new();
    let Pair { mut server, .. } = meet(&authority, MEETINGS[6].0, [&[], &[]]);
    let mut room = [0; 64];
    // Whatever its content, a record of this type must be a ClientHello.
    let mut record = [&[22, 3, 3, 0, 64][..], &[7; 64]].concat();
    let error = server.open(&mut record, &mut room).unwrap_err();
    assert_eq!((error.kind, error.reason), (FailureKind::Renegotiation, Reason::NoRenegotiation));
}

#[test]
fn sessions_are_resumed_if_the_line_allows_it() {
    let authority = Authority::new();
    let lines = [
        ("nothing", Resumption::default(), false),
        (
            "tickets",
            Resumption { tickets: Some(Arc::new(TicketKeys::random(300).unwrap())), sessions: None },
            true,
        ),
    ];
    // An OpenSSL client resumes nothing. A rustls client shows how the listener handles tickets. Sessions that OpenSSL stores are
    // tested elsewhere (tests/tests/tls/legacy.rs).
    for (what, resumption, expected) in lines {
        let own = certificate(&authority.issue(&["a.test"], |_| {}));
        let mut options =
            EntryOptions { parameters: parameters(true, TLS10, TLS12), ..EntryOptions::default() };
        only_openssl(&mut options, &authority);
        let listening = Listening { resumption, ..listening(vec![entry(own, &Arc::new(options))]) };
        let acceptor = Arc::new(Acceptor::new(listening).unwrap());
        let parameters = parameters(false, TLS12, TLS12);
        let connecting = Connecting { parameters, sessions: 8, ..Connecting::default() };
        let connector = Connector::new(&connecting).unwrap();
        for round in 0..3 {
            let mut client = Session::connect(&connector, Some("a.test")).unwrap();
            let mut server = Session::accept(&acceptor);
            assert_eq!(shake(&mut client, &mut server), (Ok(true), Ok(true)));
            let resumed = (client.details().is_resumed, server.details().is_resumed);
            assert_eq!(resumed, (expected && round > 0, expected && round > 0), "{what} {round}");
        }
    }
}
