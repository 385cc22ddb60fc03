//! Reverse HTTP connections: settings in one direction, requests in the other.

use super::*;
use crate::stream::LOCAL_ENDED;

/// Passes output between both sides until none is left.
fn talk(one: &mut Side, other: &mut Side) {
    loop {
        let bytes = [one.bytes(), other.bytes()];
        if bytes.iter().all(Vec::is_empty) {
            return;
        }
        other.feed(&bytes[0]);
        one.feed(&bytes[1]);
    }
}

fn pair() -> (Side, Side) {
    let side = |role| {
        let engine = Connection::reversed(role, &Arc::new(Config::default()));
        Side { engine, events: Vec::new(), closed: None }
    };
    (side(Role::Server), side(Role::Client))
}

#[test]
fn the_dialling_side_sends_the_preface_and_serves_streams() {
    let (mut dialled, mut accepted) = pair();
    let first = dialled.bytes();
    assert!(first.starts_with(PREFACE));
    accepted.feed(&first);
    assert_eq!((accepted.events(), accepted.closed), (vec![Event::Settings], None));
    talk(&mut dialled, &mut accepted);
    assert_eq!((dialled.events(), dialled.closed), (vec![Event::Settings], None));
    assert!(accepted.engine.peer().connect_protocol, "whoever serves says so");
    let mut head = Head::new();
    head.start_request(b"GET", b"/");
    head.append(b"host", b"a");
    let key = accepted.engine.open(&head, fields::Scheme::Http, true).expect("a stream");
    assert_eq!(key.id(), 1);
    talk(&mut dialled, &mut accepted);
    let Some(Event::Head { key, end: true, .. }) = dialled.events().pop() else { panic!("a request") };
    let mut answer = Head::new();
    answer.start_response(204, None);
    dialled.engine.send_head(key, &answer, true);
    assert!(dialled.engine.streams.get(key).is_some_and(|stream| stream.has(LOCAL_ENDED)));
    talk(&mut dialled, &mut accepted);
    assert!(matches!(accepted.events().pop(), Some(Event::Head { end: true, .. })));
}

#[test]
fn streams_opened_by_the_dialling_side_are_errors() {
    let (_, mut accepted) = pair();
    accepted.feed(PREFACE).feed(&frame(kind::SETTINGS, 0, 0, &[])).feed(&get(1));
    assert_eq!(accepted.closed.map(|closed| closed.code), Some(Code::ProtocolError));
}

#[test]
fn frames_before_settings_are_errors_on_both_sides() {
    let (mut dialled, mut accepted) = pair();
    dialled.feed(&get(1));
    accepted.feed(PREFACE).feed(&frame(kind::PING, 0, 0, &[0; 8]));
    for side in [dialled, accepted] {
        assert_eq!(side.closed.map(|closed| closed.code), Some(Code::ProtocolError));
    }
    let (_, mut other) = pair();
    other.feed(b"GET / HTTP/1.1\r\n\r\n");
    assert!(other.closed.is_some());
}

#[test]
fn an_engine_is_repacked_unless_payload_waits_in_it() {
    let mut side = Side::server();
    let Side { engine, .. } = side;
    let mut again = engine.repacked::<Box<[u8]>>().expect("nothing waits").repacked().expect("the same");
    again.check_invariants();
    side = Side { engine: again, events: Vec::new(), closed: None };
    side.feed(&get(1));
    let Some(Event::Head { key, .. }) = side.events().pop() else { panic!("a request") };
    let mut answer = Head::new();
    answer.start_response(200, None);
    side.engine.send_head(key, &answer, false);
    side.engine.send_owned(key, vec![0; 8000], 0..8000, true).expect("there is room");
    assert!(side.engine.repacked::<Box<[u8]>>().is_none());
}
