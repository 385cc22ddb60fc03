use super::*;
use crate::data::{Data, write_text, write_u32};

fn config(pipelining: bool) -> Config {
    Config { frame_size: 1000, pipelining, most: 3, engine: "e".into() }
}

/// Returns a frame from the agent.
fn of_agent(kind: u8, stream: u64, frame: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Frame { kind, flags: FIN, stream, frame, payload }.write(&mut out);
    out
}

fn hello(frame_size: u32, capabilities: &str) -> Vec<u8> {
    let mut items = Vec::new();
    write_text(&mut items, b"version");
    Data::Str(b"2.0").write(&mut items);
    write_text(&mut items, b"max-frame-size");
    write_u32(&mut items, frame_size);
    write_text(&mut items, b"capabilities");
    Data::Str(capabilities.as_bytes()).write(&mut items);
    of_agent(kind::AGENT_HELLO, 0, 0, &items)
}

fn goodbye(status: u32) -> Vec<u8> {
    let mut items = Vec::new();
    write_text(&mut items, b"status-code");
    write_u32(&mut items, status);
    of_agent(kind::AGENT_DISCONNECT, 0, 0, &items)
}

/// Passes all of `bytes` to the connection and returns the events with their payloads.
fn receive(connection: &mut Connection, mut bytes: &[u8]) -> Result<Vec<(Event, Vec<u8>)>, Closed> {
    let mut all = Vec::new();
    loop {
        let (used, event) = connection.receive(bytes)?;
        bytes = &bytes[used..];
        match event {
            Some(event) => all.push((event, connection.payload().to_vec())),
            None => break,
        }
    }
    Ok(all)
}

/// Takes the frames in the output: type, stream id and payload of each.
fn sent(connection: &mut Connection) -> Vec<(u8, u64, Vec<u8>)> {
    let mut rest = connection.output();
    let mut all = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<LENGTH>() {
        let (frame, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
        let frame = Frame::read(frame).expect("a frame");
        all.push((frame.kind, frame.stream, frame.payload.to_vec()));
        rest = behind;
    }
    let count = connection.pending();
    connection.sent(count);
    all
}

fn open(capabilities: &str) -> Connection {
    let mut connection = Connection::new(config(true));
    assert_eq!(receive(&mut connection, &hello(500, capabilities)), Ok(vec![(Event::Ready, vec![])]));
    sent(&mut connection);
    connection
}

#[test]
fn queries_wait_for_the_handshake() {
    let mut connection = Connection::new(config(true));
    assert_eq!((connection.most(), connection.free()), (1, 1));
    let key = connection.ask(b"one").expect("there is room");
    assert_eq!(connection.ask(b"two"), Err(Refusal::Full));
    let kinds: Vec<u8> = sent(&mut connection).iter().map(|frame| frame.0).collect();
    assert_eq!(kinds, [kind::HAPROXY_HELLO]);
    assert_eq!(receive(&mut connection, &hello(500, "pipelining")), Ok(vec![(Event::Ready, vec![])]));
    assert_eq!(sent(&mut connection), [(kind::NOTIFY, 1, b"one".to_vec())]);
    let second = connection.ask(b"two").expect("there is room");
    assert_eq!((second.stream(), connection.free()), (3, 1));
    let answers = [of_agent(kind::ACK, 3, 1, b"B"), of_agent(kind::ACK, 1, 1, b"A")].concat();
    let told = [(Event::Ack { key: second }, b"B".to_vec()), (Event::Ack { key }, b"A".to_vec())];
    assert_eq!(receive(&mut connection, &answers), Ok(told.to_vec()), "in any order");
    assert_eq!((connection.live(), connection.held(), connection.free()), (0, 2, 3));
    let third = connection.ask(b"three").expect("there is room");
    assert!(
        ![key.index(), second.index()].contains(&third.index()),
        "answers that were not read keep theirs"
    );
    for key in [key, second, third] {
        connection.release(key);
    }
    assert_eq!((connection.held(), connection.ask(b"four").expect("there is room").index()), (0, 0));
}

#[test]
fn unread_answers_limit_new_queries() {
    let mut connection = open("pipelining");
    for _ in 0..PLACES {
        let key = connection.ask(b"").expect("there is room");
        let answer = of_agent(kind::ACK, key.stream().into(), 1, b"");
        assert_eq!(receive(&mut connection, &answer), Ok(vec![(Event::Ack { key }, vec![])]));
        connection.sent(connection.pending());
    }
    assert_eq!((connection.free(), connection.ask(b"")), (0, Err(Refusal::Full)));
}

#[test]
fn stream_ids_wrap_without_using_zero() {
    let mut connection = open("pipelining");
    connection.total = (u32::MAX >> 1) - 1;
    let streams: Vec<u32> = (0..3).map(|_| connection.ask(b"").expect("there is room").stream()).collect();
    assert_eq!(streams, [u32::MAX - 2, 1, 3]);
}

#[test]
fn one_query_at_a_time_without_pipelining() {
    for (offers, capabilities) in [(true, ""), (false, "pipelining")] {
        let mut connection = Connection::new(config(offers));
        receive(&mut connection, &hello(500, capabilities)).expect("it is a hello");
        connection.ask(b"one").expect("there is room");
        assert_eq!(connection.ask(b"two"), Err(Refusal::Full));
    }
}

#[test]
fn frames_may_be_split_anywhere() {
    let bytes = [hello(500, "pipelining"), of_agent(50, 0, 0, b"strange"), of_agent(kind::ACK, 1, 1, b"abc")];
    let bytes = bytes.concat();
    for size in 1..bytes.len() {
        let mut connection = Connection::new(config(true));
        let key = connection.ask(b"one").expect("there is room");
        let mut told = Vec::new();
        for piece in bytes.chunks(size) {
            told.extend(receive(&mut connection, piece).expect("all of it is right"));
        }
        assert_eq!(told, [(Event::Ready, vec![]), (Event::Ack { key }, b"abc".to_vec())], "pieces of {size}");
    }
}

#[test]
fn unknown_answers_are_ignored() {
    let mut connection = open("pipelining");
    let key = connection.ask(b"one").expect("there is room");
    for (stream, frame) in [(3, 1), (1, 2), (0, 0), (u64::MAX, 1), (1 + (1 << 32), 1)] {
        assert_eq!(receive(&mut connection, &of_agent(kind::ACK, stream, frame, b"")), Ok(vec![]));
    }
    let answer = of_agent(kind::ACK, 1, 1, b"");
    assert_eq!(receive(&mut connection, &answer), Ok(vec![(Event::Ack { key }, vec![])]));
    assert_eq!(receive(&mut connection, &answer), Ok(vec![]), "once");
}

#[test]
fn late_answers_to_released_queries_are_discarded() {
    let mut connection = open("pipelining");
    let first = connection.ask(b"one").expect("there is room");
    connection.release(first);
    let second = connection.ask(b"two").expect("there is room");
    assert_eq!((second.index(), connection.live()), (first.index(), 1));
    connection.release(first);
    assert_eq!(connection.live(), 1, "that one was forgotten before");
    assert_eq!(receive(&mut connection, &of_agent(kind::ACK, 1, 1, b"")), Ok(vec![]));
    let told = receive(&mut connection, &of_agent(kind::ACK, 3, 1, b""));
    assert_eq!(told, Ok(vec![(Event::Ack { key: second }, vec![])]));
}

#[test]
fn silent_agents_get_no_more_queries() {
    let mut connection = open("pipelining");
    for count in 1..=PATIENCE {
        assert!(!connection.is_stuck(), "after {}", count - 1);
        let key = connection.ask(b"?").expect("there is room");
        connection.release(key);
    }
    assert!(connection.is_stuck() && connection.free() == 0);
    receive(&mut connection, &of_agent(kind::ACK, 1, 1, b"")).expect("it is an answer");
    assert!(!connection.is_stuck(), "it speaks");
    let mut connection = open("");
    let key = connection.ask(b"?").expect("there is room");
    connection.release(key);
    assert!(connection.is_stuck(), "the next answer is that of a question that nobody has");
    let mut connection = Connection::new(config(true));
    let key = connection.ask(b"?").expect("there is room");
    connection.release(key);
    assert!(connection.is_stuck(), "it did not even greet");
    receive(&mut connection, &hello(500, "")).expect("late");
    let frames = sent(&mut connection);
    assert_eq!(frames.len(), 1, "what was forgotten is not asked: {frames:?}");
}

#[test]
fn queries_over_the_frame_size_are_not_sent() {
    let mut connection = Connection::new(config(true));
    assert_eq!(connection.ask(&[b'x'; 1000 - 6]), Err(Refusal::TooBig));
    let key = connection.ask(&[b'x'; 1000 - 7]).expect("exactly");
    assert_eq!(
        receive(&mut connection, &hello(500, "")),
        Ok(vec![(Event::TooBig { key }, vec![])]),
        "the agent takes less"
    );
    assert_eq!(connection.ask(&[b'x'; 500 - 6]), Err(Refusal::TooBig));
    connection.ask(&[b'x'; 500 - 7]).expect("exactly");
}

#[test]
fn violations_end_the_connection_with_their_status() {
    let fragment = {
        let mut out = Vec::new();
        Frame { kind: kind::ACK, flags: 0, stream: 1, frame: 1, payload: b"" }.write(&mut out);
        out
    };
    let cases: [(&[u8], Status); 6] = [
        (b"\0\0\0\0", Status::INVALID),
        (b"\0\0\x01\xf5", Status::TOO_BIG),
        (b"\xff\xff\xff\xff", Status::TOO_BIG),
        (b"\0\0\0\x02\x67\0", Status::INVALID),
        (&hello(500, ""), Status::INVALID),
        (&fragment, Status::FRAGMENTED),
    ];
    for (bytes, status) in cases {
        let mut connection = open("");
        assert_eq!(receive(&mut connection, bytes), Err(Closed), "{}", bytes.escape_ascii());
        assert_eq!(connection.status(), status, "{}", bytes.escape_ascii());
        assert_eq!(sent(&mut connection)[0].0, kind::HAPROXY_DISCONNECT);
        assert_eq!(connection.receive(b"more"), Err(Closed));
        assert_eq!(connection.ask(b"?"), Err(Refusal::Full));
    }
    let mut connection = Connection::new(config(true));
    assert_eq!(receive(&mut connection, &of_agent(kind::ACK, 1, 1, b"")), Err(Closed));
    assert_eq!(connection.status(), Status::INVALID, "before its hello");
}

#[test]
fn status_is_taken_from_the_agents_disconnect() {
    for (status, told) in [(77, Status(77)), (0, Status::IO)] {
        let mut connection = open("");
        connection.ask(b"?").expect("there is room");
        sent(&mut connection);
        assert_eq!(receive(&mut connection, &goodbye(status)), Err(Closed));
        assert_eq!(connection.status(), told);
        assert_eq!(sent(&mut connection)[0].0, kind::HAPROXY_DISCONNECT);
    }
}

#[test]
fn unsent_output_limits_new_queries() {
    let mut connection = Connection::new(Config { most: u16::MAX, ..config(true) });
    receive(&mut connection, &hello(1000, "pipelining")).expect("it is a hello");
    let count = std::iter::from_fn(|| connection.ask(&[b'x'; 900]).ok()).count();
    assert!((60..80).contains(&count), "{count}");
    assert!(connection.pending() < OUTPUT + 1000);
    connection.sent(connection.pending());
    assert!(connection.free() > 0);
}
