//! Unusual input from a peer: hellos in many forms, and records that are split, forged, too long or unexpected.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Authority, acceptor, carry, connector, pair};
use proptest::prelude::*;
use tls::deframer::Deframer;
use tls::hello::{self, Hello};
use tls::{EntryOptions, FailureKind, Parameters, Reason, Session, TLS12, TLS13};

/// Returns the ClientHello that rustls sends, in one record.
fn client_hello(name: &str) -> Vec<u8> {
    let connector = connector(&Authority::new());
    let mut client = Session::connect(&connector, Some(name)).unwrap();
    assert_eq!(client.handshake(&[]), Ok(false));
    client.unsent().to_vec()
}

/// Returns the same message in records of `length` bytes.
fn in_records(hello: &[u8], length: usize) -> Vec<u8> {
    let record = |piece: &[u8]| {
        let mut record = vec![22, 3, 1];
        record.extend_from_slice(&u16::try_from(piece.len()).unwrap().to_be_bytes());
        record.extend_from_slice(piece);
        record
    };
    hello[5..].chunks(length).flat_map(record).collect()
}

#[test]
fn a_hello_is_parsed_for_any_split_into_records() {
    let whole = client_hello("some.name.test");
    for length in [1, 2, 3, 4, 5, 100, 16384] {
        let bytes = in_records(&whole, length);
        let (last, before) = bytes.split_last().unwrap();
        let mut deframer = Deframer::default();
        for (place, byte) in before.iter().enumerate() {
            assert_eq!(deframer.push(&[*byte]), Ok(None), "{length} {place}");
        }
        let message = deframer.push(&[*last]).unwrap().unwrap();
        assert_eq!(*message, whole[5..]);
        assert_eq!(Deframer::default().push(&bytes), Ok(Some(message)));
        let hello = Hello::parse(message).unwrap();
        assert_eq!(hello.server_name, Some(&b"some.name.test"[..]));
        assert_eq!((hello.legacy_version, hello.random.len()), (TLS12, 32));
        assert_eq!((hello.version_up_to(TLS13), hello.version_up_to(TLS12)), (TLS13, TLS12));
        assert!(hello::numbers(hello.suites).any(|suite| suite == 0x1302));
        assert!(hello::extensions(hello.extensions).all(|one| one.is_ok()));
    }
}

#[test]
fn a_server_answers_a_hello_in_pieces() {
    let acceptor = acceptor(&Authority::new(), EntryOptions::default());
    for length in [1, 100] {
        let mut server = Session::accept(&acceptor);
        for byte in in_records(&client_hello("a.test"), length) {
            assert_eq!(server.handshake(&[byte]), Ok(false));
        }
        assert!(server.unsent().len() > 500);
    }
}

proptest! {
    #[test]
    fn the_hello_parser_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let message = [&[1, 0, 0, u8::try_from(bytes.len()).unwrap_or(255)], &bytes[..]].concat();
        let _ = Hello::parse(&message[..message.len().min(4 + 255)]);
        if let Ok(Some(message)) = Deframer::default().push(&bytes) {
            let _ = Hello::parse(message);
        }
        prop_assert!(hello::pieces(&bytes).count() <= bytes.len());
        prop_assert!(hello::extensions(&bytes).count() <= bytes.len());
    }

    #[test]
    fn a_changed_hello_is_parsed_or_refused(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = HELLO.with(Clone::clone);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let mut refused = None;
        if let Ok(Some(message)) = Deframer::default().push(&bytes)
            && let Ok(hello) = Hello::parse(message)
        {
            prop_assert!(hello.session_id.len() <= 32 && hello.random.len() == 32);
            refused = ACCEPTOR.with(|acceptor| acceptor.choose(&hello).config.err());
        }
        let mut server = ACCEPTOR.with(Session::accept);
        let cut = cut.index(bytes.len());
        if server.handshake(&bytes[..cut]) == Ok(false) {
            let _ = server.handshake(&bytes[cut..]);
        }
        prop_assert!(!server.is_established());
        prop_assert!(refused.is_none() || server.failure() == refused);
    }
}

thread_local! {
    static HELLO: Vec<u8> = client_hello("a.test");
    static ACCEPTOR: std::sync::Arc<tls::Acceptor> = acceptor(&Authority::new(), EntryOptions::default());
}

fn version(version: u16) -> EntryOptions {
    let parameters = Parameters { min: version, max: version, ..Parameters::default() };
    EntryOptions { parameters, ..EntryOptions::default() }
}

/// Passes bytes to `to` in place of a record.
fn give(to: &mut Session, bytes: &[u8]) -> Result<usize, tls::Error> {
    let mut received = bytes.to_vec();
    to.open(&mut received, &mut [0; 20_000]).map(|opened| opened.filled)
}

#[test]
fn foreign_records_end_the_connection_with_an_alert() {
    let authority = Authority::new();
    for v in [TLS12, TLS13] {
        let acceptor = acceptor(&authority, version(v));
        let connector = connector(&authority);
        let sealed = |client: &mut Session, text: &[u8]| {
            let mut out = vec![0; 20_000];
            let (_, n) = client.seal(text, &[], &mut out).unwrap();
            out.truncate(n);
            out
        };
        for place in 0..30 {
            let (mut client, mut server) = pair(&acceptor, &connector, "a.test");
            let mut record = sealed(&mut client, b"some text");
            // A larger length makes the record incomplete.
            if place == 3 || place == 4 || place >= record.len() {
                continue;
            }
            record[place] ^= 0x40;
            let error = give(&mut server, &record).expect_err("a forged record");
            let reason = if place < 3 { Reason::WrongVersionNumber } else { Reason::DecryptionFailed };
            assert_eq!((error.kind, error.reason), (FailureKind::Fatal, reason), "{v:x} {place}");
            assert!(!server.unsent().is_empty());
            let alert = server.unsent().to_vec();
            let told = give(&mut client, &alert).expect_err("an alert");
            assert!(matches!(told.reason, Reason::Alert(10 | 20 | 22 | 50 | 70)), "{told}");
            // Nothing more is sent.
            assert_eq!(server.seal(b"x", b"", &mut [0; 100]), Err(error));
            assert_eq!(give(&mut server, &[]), Err(Error::internal()));
        }
        // A repeated record, and a missing one.
        let (mut client, mut server) = pair(&acceptor, &connector, "a.test");
        let record = sealed(&mut client, b"once");
        assert_eq!(give(&mut server, &record), Ok(4));
        assert_eq!(give(&mut server, &record).unwrap_err().reason, Reason::DecryptionFailed);
        // Plain text, and an oversized record.
        for (bytes, reason) in [
            (&b"GET / HTTP/1.1\r\n"[..], Reason::WrongVersionNumber),
            (b"\x17\x03\x03\x7f\xff", Reason::PacketLengthTooLong),
            (
                b"\x14\x03\x03\x00\x01\x01",
                if v == TLS13 { Reason::BadRecordType } else { Reason::DecryptionFailed },
            ),
        ] {
            let (_, mut server) = pair(&acceptor, &connector, "a.test");
            assert_eq!(give(&mut server, bytes).unwrap_err().reason, reason, "{v:x}");
        }
    }
}

struct Error;

impl Error {
    fn internal() -> tls::Error {
        tls::Error { kind: FailureKind::Fatal, reason: Reason::InternalError, verify: 0 }
    }
}

#[test]
fn data_before_an_error_is_still_read() {
    let authority = Authority::new();
    let (mut client, mut server) =
        pair(&acceptor(&authority, EntryOptions::default()), &connector(&authority), "a.test");
    let mut out = vec![0; 1000];
    let (_, n) = client.seal(b"good", &[], &mut out).unwrap();
    out.truncate(n);
    out.extend_from_slice(b"garbage");
    assert_eq!(give(&mut server, &out), Ok(4));
    assert_eq!(server.failure().unwrap().reason, Reason::WrongVersionNumber);
}

#[test]
fn long_connections_update_their_keys() {
    const SUITES: [u16; 3] = [0x1301, 0x1302, 0x1303];
    let authority = Authority::new();
    for suite in SUITES {
        let mut options = version(TLS13);
        options.parameters.suites13 = vec![suite];
        let (mut client, mut server) = pair(&acceptor(&authority, options), &connector(&authority), "a.test");
        assert_eq!(server.details().suite, suite);
        for round in 0..3 {
            assert!(client.renew_key(round == 0));
            assert!(!client.unsent().is_empty());
            assert_eq!(carry(&mut client, &mut server, b"text", 9000, 100), b"text");
            assert_eq!(server.unsent().is_empty(), round > 0);
            assert_eq!(carry(&mut server, &mut client, b"back", 9000, 100), b"back");
            assert!(server.renew_key(round == 1));
            assert_eq!(carry(&mut server, &mut client, b"back", 9000, 100), b"back");
            assert_eq!(carry(&mut client, &mut server, b"text", 9000, 100), b"text");
        }
    }
}

#[test]
fn keys_are_prepared_again_after_a_rest() {
    let authority = Authority::new();
    for number in [TLS12, TLS13] {
        let (mut client, mut server) =
            pair(&acceptor(&authority, version(number)), &connector(&authority), "a.test");
        for _ in 0..3 {
            client.rest();
            server.rest();
            assert_eq!(carry(&mut client, &mut server, b"text", 9000, 100), b"text");
            server.rest();
            assert_eq!(carry(&mut server, &mut client, b"back", 9000, 100), b"back");
            server.rest();
            assert_eq!(server.renew_key(true), number == TLS13);
            assert_eq!(carry(&mut server, &mut client, b"back", 9000, 100), b"back");
        }
    }
}
