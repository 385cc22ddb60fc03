//! Records as applications send them, whole, cut and changed, and what becomes of them.

use http::{Method, ParseOptions};

use super::{Config, Connection, HELD};
use crate::record::{self, kind};
use crate::{Event, Key, Parameters};

fn connection(most: u16) -> Connection {
    Connection::new(Config {
        keeps: true,
        multiplexes: most > 1,
        most,
        asks: false,
        wants_messages: true,
        head: ParseOptions { max_bytes: 2000, ..ParseOptions::default() },
    })
}

fn open(connection: &mut Connection) -> Key {
    connection.open(&Parameters::new(100), Method::Get, true).expect("there is a place")
}

/// An event, with the bytes or the status that it is about.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Status(u32, u16),
    Body(u32, Vec<u8>),
    Other(Event),
    Closed,
}

/// What is told of `bytes`, which come in pieces of `cut`; neighbouring pieces of a body are one.
fn told(connection: &mut Connection, bytes: &[u8], cut: usize) -> Vec<Told> {
    let (mut all, mut input) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(cut) {
        input.extend_from_slice(piece);
        loop {
            let (used, event) = match connection.receive(&input) {
                Ok(outcome) => outcome,
                Err(_) => {
                    all.push(Told::Closed);
                    return all;
                }
            };
            match event {
                Some(Event::Head { key }) => all.push(Told::Status(key.id(), connection.head_mut().status())),
                Some(Event::Data { key, range }) => {
                    let bytes = &input[range];
                    match all.last_mut() {
                        Some(Told::Body(id, before)) if *id == key.id() => before.extend_from_slice(bytes),
                        _ => all.push(Told::Body(key.id(), bytes.to_vec())),
                    }
                    connection.consume(key, bytes.len());
                }
                Some(event) => all.push(Told::Other(event)),
                None => {
                    input.drain(..used);
                    break;
                }
            }
            input.drain(..used);
        }
    }
    all
}

fn output(id: u16, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    record::write(kind::STDOUT, id, text, &mut out);
    out
}

fn end(id: u16) -> Vec<u8> {
    let mut out = Vec::new();
    record::write(kind::END_REQUEST, id, &[0; 8], &mut out);
    out
}

/// What applications send of two requests.
fn conversations() -> Vec<Vec<u8>> {
    let mut message = Vec::new();
    record::write(kind::STDERR, 1, b"a message", &mut message);
    let chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: 1\r\n\r\n";
    vec![
        [output(1, b"X: 1\r\n\r\nhello"), message, end(1), output(2, chunked), end(2)].concat(),
        [output(2, b"Status: 404\r\n"), output(1, b"Content-Length: 3\r\n\r\nabc"), output(2, b"\r\nx")]
            .concat(),
        [output(1, b"no head\r\n\r\n"), end(2), end(1)].concat(),
        [output(1, b"Content-Length: 9\r\n\r\nabc"), end(1), output(9, b"X: 1\r\n\r\n")].concat(),
        output(0, b"X: 1\r\n\r\n"),
    ]
}

#[test]
fn what_is_told_does_not_depend_on_how_records_are_cut() {
    for bytes in conversations() {
        let run = |cut| {
            let mut connection = connection(2);
            let _ = (open(&mut connection), open(&mut connection));
            told(&mut connection, &bytes, cut)
        };
        let whole = run(bytes.len());
        assert!(!whole.is_empty());
        for cut in 1..bytes.len() {
            assert_eq!(run(cut), whole, "pieces of {cut}");
        }
    }
}

#[test]
fn whatever_comes_the_connection_stays_in_order() {
    let mut random = fastrand::Rng::with_seed(10);
    for _ in 0..20_000 {
        let all = conversations();
        let mut bytes = all[random.usize(..all.len())].clone();
        for _ in 0..random.usize(1..8) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        let mut connection = connection(2);
        let keys = [open(&mut connection), open(&mut connection)];
        told(&mut connection, &bytes, random.usize(1..64));
        keys.into_iter().for_each(|key| connection.release(key));
        assert!(connection.is_forgotten() && !connection.must_drain());
        assert!(connection.message().len() <= super::MESSAGE);
    }
}

#[test]
fn nothing_is_read_while_nobody_takes_a_body() {
    let mut connection = connection(2);
    let (first, second) = (open(&mut connection), open(&mut connection));
    let bytes = [output(1, b"X: 1\r\n\r\n"), output(1, &vec![b'x'; HELD])].concat();
    let mut rest = &bytes[..];
    while let (used, Some(_)) = connection.receive(rest).expect("records") {
        rest = &rest[used..];
    }
    assert!(connection.must_drain());
    connection.release(second);
    assert!(connection.must_drain());
    connection.consume(first, 1);
    assert!(!connection.must_drain());
}

#[test]
fn a_place_is_free_once_the_application_has_ended_its_request() {
    let mut connection = connection(1);
    let key = open(&mut connection);
    assert_eq!(connection.free(), 0);
    let waiting = connection.output().len();
    connection.sent(waiting);
    connection.release(key);
    // It was not over: the application is told.
    assert_eq!(connection.output().get(1), Some(&kind::ABORT_REQUEST));
    assert!(connection.has_aborted() && connection.free() == 0);
    assert_eq!(told(&mut connection, &[output(1, b"late"), end(1)].concat(), 100), []);
    assert_eq!((connection.free(), connection.streams()), (1, 0));
    // A key that is over means no later request.
    let later = open(&mut connection);
    connection.release(key);
    assert_eq!((later.index(), connection.streams(), connection.is_forgotten()), (0, 1, false));
}
