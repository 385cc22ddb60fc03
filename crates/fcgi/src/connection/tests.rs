//! Flow control of bodies, and reuse of slots. Truncated and corrupted records are covered by the fuzz target `fcgi_records`.

use http::{Method, ParseOptions};

use super::{Config, Connection, HELD};
use crate::record::{self, kind};
use crate::{Parameters, StreamKey};

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

fn open(connection: &mut Connection) -> StreamKey {
    connection.open(&Parameters::new(100), Method::Get, true).expect("there is a place")
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

#[test]
fn unconsumed_body_stops_reading() {
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
fn late_output_does_not_reach_the_next_request_in_the_slot() {
    let mut connection = connection(1);
    let first = open(&mut connection);
    // The application sends more output for a request that it has ended.
    let late = output(1, b"X: 1\r\n\r\nlate");
    let bytes = [output(1, b"X: 1\r\n\r\n"), end(1), late[..12].to_vec()].concat();
    let mut rest = &bytes[..];
    while let (used, Some(_)) = connection.receive(rest).expect("records") {
        rest = &rest[used..];
    }
    connection.release(first);
    let second = open(&mut connection);
    assert_eq!(second.index(), first.index());
    let (used, event) = connection.receive(&late[12..]).expect("records");
    assert_eq!((used, event), (late.len() - 12, None));
}

#[test]
fn slot_is_free_once_the_application_ends_the_request() {
    let mut connection = connection(1);
    let key = open(&mut connection);
    assert_eq!(connection.free(), 0);
    let waiting = connection.output().len();
    connection.sent(waiting);
    connection.release(key);
    // The request was unfinished, so an abort is sent to the application.
    assert_eq!(connection.output().get(1), Some(&kind::ABORT_REQUEST));
    assert!(connection.has_aborted() && connection.free() == 0);
    let late = [output(1, b"late"), end(1)].concat();
    assert_eq!(connection.receive(&late), Ok((late.len(), None)));
    assert_eq!((connection.free(), connection.streams()), (1, 0));
    // The key of a finished request does not refer to a later one.
    let later = open(&mut connection);
    connection.release(key);
    assert_eq!((later.index(), connection.streams(), connection.is_forgotten()), (0, 1, false));
}
