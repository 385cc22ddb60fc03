//! HTTP/2 connections: how they begin and end, sharing, retries.

use std::sync::mpsc;
use std::thread;

use weir_tests::client::Client;
use weir_tests::multiplexed::{
    ACK, CANCEL, DATA, END_STREAM, Frames, GOAWAY, HEADERS, PING, REFUSED_STREAM, RST_STREAM,
};
use weir_tests::versions::{TIMEOUTS, backend, frontend};
use weir_tests::{Origin, Weir, eventually, free_port};

#[test]
fn preface_is_detected_on_http1_listeners_unless_disabled() {
    let origin = Origin::text("x");
    for (option, speaks) in [("", true), ("option disable-h2-upgrade", false)] {
        let port = free_port();
        let text = format!(
            "{TIMEOUTS}frontend f\n {option}\n bind 127.0.0.1:{port}\n default_backend b\nbackend b\n \
             server s 127.0.0.1:{}\n",
            origin.port()
        );
        let _weir = Weir::start(&text, &[port]);
        if speaks {
            assert_eq!(Frames::connect(port).get(1, "/").next_head().0[0], ":status: 200");
        } else {
            let mut client = Client::connect(port);
            client.send(weir_tests::multiplexed::PREFACE);
            assert_eq!(client.response().expect("an answer of HTTP/1").status, 405);
        }
    }
}

#[test]
fn incomplete_preface_times_out_with_408() {
    let origin = Origin::text("x");
    let port = free_port();
    let text = format!(
        "defaults\n mode http\n timeout client 200ms\n timeout connect 20s\n timeout server 20s\nfrontend f\n \
         bind 127.0.0.1:{port}\n default_backend b\nbackend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    client.send("P");
    assert_eq!(client.response().expect("an answer").status, 408);
}

#[test]
fn requests_beyond_the_limit_use_another_connection() {
    let global = " nbthread 1\n tune.h2.be.max-concurrent-streams 2";
    let (listener, _weir, port) = backend(global, " http-reuse always", "");
    let clients: Vec<Client> = (0..3)
        .map(|number| {
            let mut client = Client::connect(port);
            client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        })
        .collect();
    let (mut one, mut other) = (Frames::accept(&listener), Frames::accept(&listener));
    let streams = [one.next_of(HEADERS).stream, one.next_of(HEADERS).stream];
    assert_eq!((streams, other.next_of(HEADERS).stream), ([1, 3], 1));
    drop(clients);
    // The requests have been abandoned.
    assert_eq!(one.next_of(RST_STREAM).number(0), CANCEL);
}

#[test]
fn clients_share_a_connection_without_mixing_responses() {
    let (listener, weir, port) = backend(" nbthread 1\n stats socket runtime", " http-reuse always", "");
    let mut first = Client::connect(port);
    first.send("GET /0 HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    let head = peer.next_of(HEADERS);
    assert_eq!(head.stream, 1);
    let mut others: Vec<Client> = (1..4).map(|_| Client::connect(port)).collect();
    for (number, client) in others.iter_mut().enumerate() {
        client.send(format!("POST /{} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab", number + 1));
    }
    let mut asked = Vec::new();
    while asked.len() < 3 {
        let frame = peer.next_of(HEADERS);
        let path = peer.fields(&frame).into_iter().find(|line| line.starts_with(":path")).expect("a path");
        asked.push((frame.stream, path));
    }
    // Answers the last request first.
    for (stream, path) in asked.iter().rev() {
        peer.head(*stream, 0, &[(":status", "200"), ("x-path", path)]).send(DATA, END_STREAM, *stream, b"ok");
    }
    peer.head(1, 0, &[(":status", "200"), ("x-path", ":path: /0")]).send(DATA, END_STREAM, 1, b"ok");
    for (number, client) in std::iter::once(&mut first).chain(&mut others).enumerate() {
        let answer = client.response().expect("an answer");
        assert_eq!(answer.header("x-path"), Some(format!(":path: /{number}").as_str()), "{}", answer.head);
        assert_eq!((answer.status, answer.text().as_str()), (200, "2\r\nok\r\n0\r\n\r\n"), "{}", answer.head);
    }
    let counted = weir.ask("show stat b 2 -1 typed");
    let has =
        |name: &str, value: &str| counted.lines().any(|line| line.contains(name) && line.ends_with(value));
    assert!(has("h2_total_connections", ":1") && has("h2_backend_total_streams", ":4"), "{counted}");
    assert!(has("h2_headers_rcvd", ":4") && has("h2_data_rcvd", ":4"), "{counted}");
}

#[test]
fn unprocessed_request_is_retried_whatever_its_method() {
    for goes_away in [false, true] {
        let (listener, _weir, port) = backend(" nbthread 1", " retries 1", "");
        let mut client = Client::connect(port);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let mut peer = Frames::accept(&listener);
        let stream = peer.next_of(HEADERS).stream;
        match goes_away {
            false => peer.send(RST_STREAM, 0, stream, &REFUSED_STREAM.to_be_bytes()),
            true => peer.send(GOAWAY, 0, 0, &[0; 8]),
        };
        let mut again = match goes_away {
            true => Frames::accept(&listener),
            false => peer,
        };
        let stream = match goes_away {
            true => again.next_of(HEADERS).stream,
            // Another connection, or another stream of this one.
            false => {
                listener.set_nonblocking(true).unwrap();
                let (sender, receiver) = mpsc::channel();
                thread::spawn(move || {
                    let stream = again.find(|frame| frame.kind == HEADERS).map(|frame| frame.stream);
                    let _ = sender.send(());
                    if let Some(stream) = stream {
                        again.head(stream, END_STREAM, &[(":status", "204")]);
                        again.rest();
                    }
                });
                assert!(eventually(|| {
                    if let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(false).unwrap();
                        thread::spawn(move || {
                            let mut peer = Frames::take(stream);
                            let stream = peer.next_of(HEADERS).stream;
                            peer.head(stream, END_STREAM, &[(":status", "204")]);
                            peer.rest();
                        });
                        return true;
                    }
                    receiver.try_recv().is_ok()
                }));
                assert_eq!(client.response().expect("an answer").status, 204);
                continue;
            }
        };
        again.head(stream, END_STREAM, &[(":status", "204")]);
        assert_eq!(client.response().expect("an answer").status, 204, "GOAWAY: {goes_away}");
    }
}

#[test]
fn idle_peers_are_pinged() {
    let origin = Origin::text("x");
    let port = free_port();
    let text = format!(
        "{TIMEOUTS}frontend f\n bind 127.0.0.1:{port} proto h2 idle-ping 50ms\n default_backend b\nbackend b\n \
         server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    let mut client = Frames::connect(port);
    client.get(1, "/").next_head();
    for _ in 0..2 {
        let ping = client.next_of(PING);
        client.send(PING, ACK, 0, &ping.payload);
    }
    client.next_of(PING);
    // The ping is not answered, so that was the last one.
    let left = client.rest();
    assert!(left.iter().any(|frame| frame.kind == GOAWAY), "{left:?}");
    let (listener, _weir, port) = backend("", "", "idle-ping 50ms");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    let stream = peer.next_of(HEADERS).stream;
    peer.head(stream, END_STREAM, &[(":status", "204")]);
    let ping = peer.next_of(PING);
    peer.send(PING, ACK, 0, &ping.payload);
    peer.next_of(PING);
    assert!(peer.rest().iter().all(|frame| frame.kind != HEADERS));
}

#[test]
fn unused_connection_is_kept_if_idle_ones_are_allowed() {
    for (parameters, is_kept) in
        [("", true), ("pool-max-conn 1", true), ("pool-max-conn 0", false), ("pool-purge-delay 0", false)]
    {
        let (listener, _weir, port) = backend("", "", parameters);
        let mut client = Client::connect(port);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut peer = Frames::accept(&listener);
        let stream = peer.next_of(HEADERS).stream;
        peer.head(stream, END_STREAM, &[(":status", "204")]);
        assert_eq!(client.response().expect("an answer").status, 204);
        if is_kept {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let next = peer.find(|frame| frame.kind == HEADERS).map(|frame| frame.stream);
        // If the connection is kept without a request, the wait for one ends and a PING is answered.
        let answered = peer.send(PING, 0, 0, &[0; 8]).find(|frame| frame.kind == PING).is_some();
        assert_eq!((next, answered), (is_kept.then_some(stream + 2), is_kept), "{parameters:?}");
    }
}

#[test]
fn soft_stop_sends_goaway_and_serves_pending_requests() {
    let (release, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let origin = Origin::start(move |head, _| {
        if head.starts_with("GET /slow") {
            let _ = held.lock().unwrap().recv();
        }
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let (mut weir, port) = frontend("", "", origin.port());
    let mut client = Frames::connect(port);
    client.get(1, "/").next_head();
    client.get(3, "/slow");
    assert!(eventually(|| origin.requests() == 2));
    weir.signal("USR1");
    assert_eq!(client.next_of(GOAWAY).number(4), 0);
    let ping = client.next_of(PING);
    client.send(PING, ACK, 0, &ping.payload);
    release.send(()).unwrap();
    assert_eq!(client.next_head().0[0], ":status: 200");
    client.rest();
    assert_eq!(weir.await_end(), Some(0));
}
