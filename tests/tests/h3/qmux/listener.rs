//! Clients of a QMux listener.

use std::io::{Read as _, Write as _};

use weir_tests::qmux::{PING, RawQmux, numbers, record, request, stream, usual};
use weir_tests::{Origin, eventually};

use super::{bytes, origin, scene, scene_with};

#[test]
fn bodies_of_all_sizes_arrive_in_both_directions() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    let mut client = scene.connect();
    for length in [0, 1, 100, 16_370, 16_382, 16_384, 65_537, 1 << 20] {
        let id = client.request("GET", &format!("/get/{length}"), None);
        let response = client.response(id).expect("a response");
        assert_eq!((response.status, response.body.len()), (200, length));
        assert!(response.body == bytes(length), "{length} bytes received");
        let sent = bytes(length);
        let id = client.request("POST", "/echo", Some(&sent));
        assert!(client.response(id).expect("a response").body == sent, "{length} bytes sent");
    }
    let id = client.request("GET", "/get/20000000", None);
    assert!(client.response(id).expect("a response").body == bytes(20_000_000), "a large body");
    assert!(eventually(|| scene.weir.stat("f,FRONTEND", "scur") == "1"), "one connection is enough");
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3req"), "17");
}

#[test]
fn a_hundred_requests_at_once_get_their_own_responses() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    let mut client = scene.connect();
    for round in 0..5 {
        let ids: Vec<u64> =
            (0..100).map(|at| client.request("GET", &format!("/get/{}", at * 97), None)).collect();
        for (at, id) in ids.into_iter().enumerate() {
            let response = client.response(id).expect("a response");
            assert!(response.body == bytes(at * 97), "request {at} of round {round}");
        }
    }
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3req"), "500");
}

#[test]
fn records_may_be_cut_anywhere() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    let mut client = RawQmux::bare(scene.port);
    let control = stream(2, 0, &[0, 4, 0], false);
    let get = stream(0, 0, &request("GET", "/get/5", None), true);
    let frames = [&control[..], &[0; 3], &get, &[0; 2]].concat();
    let all = [record(&weir_tests::qmux::parameters(&usual(1 << 16))), record(&frames)].concat();
    for byte in all {
        client.send(&[byte]);
    }
    assert_eq!(client.response(0).expect("a response").body, bytes(5));
}

/// The data of a stream without a length ends with its record.
#[test]
fn data_without_a_length_extends_to_the_end_of_the_record() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    let mut client = scene.connect();
    let get = [&numbers(&[0x09, 0])[..], &request("GET", "/get/7", None)].concat();
    client.send_record(&get);
    assert_eq!(client.response(0).expect("a response").body, bytes(7));
}

#[test]
fn a_client_without_credit_stops_its_stream_and_no_other() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    let mut client = RawQmux::with_limits(scene.port, &[(4, 1 << 20), (5, 10_000), (7, 10_000), (9, 3)]);
    let stalled = client.request("GET", "/get/50000", None);
    assert!(client.receive_until(|client| client.stream(stalled).bytes.len() == 10_000));
    let small = client.request("GET", "/get/100", None);
    assert_eq!(client.response(small).expect("a response").body, bytes(100));
    assert_eq!(client.stream(stalled).bytes.len(), 10_000, "not a byte more");
    client.send_record(&numbers(&[0x11, stalled, 1 << 20]));
    assert_eq!(client.response(stalled).expect("the rest").body.len(), 50_000);
}

#[test]
fn the_window_of_the_connection_is_not_exceeded() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    let mut client = RawQmux::with_limits(scene.port, &[(4, 30_000), (5, 1 << 20), (7, 10_000), (9, 3)]);
    let ids: Vec<u64> = (0..4).map(|_| client.request("GET", "/get/20000", None)).collect();
    let is_full = client.receive_until(|client| client.received_data() == 30_000);
    let each: Vec<usize> = ids.iter().map(|id| client.stream(*id).bytes.len()).collect();
    assert!(is_full, "{each:?} of {}", client.received_data());
    client.send_record(&numbers(&[PING, 1]));
    assert!(client.receive_until(|client| !client.answers.is_empty()));
    assert_eq!(client.received_data(), 30_000);
    client.gives_credit = true;
    client.send_record(&numbers(&[0x10, 1 << 20]));
    for id in ids {
        assert_eq!(client.response(id).expect("a response").body.len(), 20_000);
    }
}

/// A server that does not read stops the client's upload after the window of the stream, and the connection goes on.
#[test]
fn an_upload_that_stalls_leaves_the_connection_usable() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::raw(move |mut socket| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if socket.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        if head.starts_with(b"POST") {
            let _ = wait.lock().expect("one upload").recv();
            let mut body = Vec::new();
            let _ = socket.set_read_timeout(Some(weir_tests::PATIENCE));
            while !body.ends_with(b"0\r\n\r\n") {
                let mut room = [0; 65_536];
                match socket.read(&mut room) {
                    Ok(n) if n > 0 => body.extend_from_slice(&room[..n]),
                    _ => break,
                }
            }
        }
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    });
    let scene = scene(&origin, " tune.sndbuf.server 16k\n tune.quic.fe.stream.rxbuf 64k", "");
    let mut client = scene.connect();
    let window = client.parameters.iter().find(|(name, _)| *name == 6).expect("a window").1;
    let id = client.next_stream();
    let body = vec![b'x'; usize::try_from(window).expect("a size") - 1000];
    let first = request("POST", "/", None);
    client.send_record(&stream(id, 0, &first, false));
    let mut offset = first.len() as u64;
    let head = numbers(&[0, body.len() as u64]);
    client.send_record(&stream(id, offset, &head, false));
    offset += head.len() as u64;
    for piece in body.chunks(16_000) {
        client.send_record(&stream(id, offset, piece, false));
        offset += piece.len() as u64;
    }
    assert_eq!(client.get("/small"), Some((200, "ok".to_owned())), "while the upload waits");
    release.send(()).expect("the server waits");
    client.send_record(&stream(id, offset, &[], true));
    assert_eq!(client.response(id).expect("a response").body, b"ok");
}

#[test]
fn cancelled_requests_end_and_others_go_on() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    let mut client = RawQmux::with_limits(scene.port, &[(4, 1 << 20), (5, 1000), (7, 10_000), (9, 3)]);
    for _ in 0..300 {
        let id = client.request("GET", "/get/100000", None);
        assert!(client.receive_until(|client| client.stream(id).bytes.len() == 1000));
        client.send_record(&numbers(&[0x05, id, 0x10c]));
        assert!(client.receive_until(|client| client.stream(id).reset.is_some()), "the stream is reset");
    }
    client.send_record(&numbers(&[0x10, 1 << 22]));
    assert_eq!(client.get("/get/9").expect("a response").0, 200);
    assert!(eventually(|| scene.weir.stat("b,s", "scur") == "0"), "no request is left");
}

#[test]
fn pings_are_answered_and_idle_connections_are_pinged() {
    let origin = origin();
    let scene = scene_with(&origin, "", "", "idle-ping 100ms");
    let mut client = scene.connect();
    client.send_record(&numbers(&[PING, 7]));
    assert!(client.receive_until(|client| client.answers == [7]));
    assert!(client.receive_until(|client| client.pings.starts_with(&[1, 2, 3])), "each is answered");
    assert_eq!(client.get("/get/3").expect("a response").0, 200);
}

#[test]
fn facts_of_requests_are_those_of_http3_over_tcp() {
    let origin = origin();
    let rules = " http-request return status 200 hdr x-facts \
                 \"%[req.ver] %[fc_http_major] %[fs.id] %[fc_rtt(us),bool] %[src] %[fc_nb_streams]\"";
    let scene = scene(&origin, "", rules);
    let mut client = scene.connect();
    for at in 0..2_u64 {
        let id = client.request("GET", "/", None);
        let response = client.response(id).expect("a response");
        let facts = response.fields.iter().find(|(name, _)| name == "x-facts").map(|(_, value)| &**value);
        assert_eq!(facts, Some(&*format!("3.0 3 {} 1 127.0.0.1 1", at * 4)));
    }
    let sessions = scene.weir.ask("show sess");
    assert!(sessions.contains("f"), "{sessions}");
    assert!(!scene.weir.ask("show quic").contains("f "), "it is no QUIC connection");
}

#[test]
fn a_proxy_header_comes_before_the_first_record() {
    let origin = origin();
    let scene = scene_with(&origin, "", " http-request return status 200 hdr x-src %[src]", "accept-proxy");
    let mut client = RawQmux::bare(scene.port);
    client.send(b"PROXY TCP4 192.0.2.7 192.0.2.8 4660 80\r\n");
    client.send_record(&weir_tests::qmux::parameters(&usual(1 << 16)));
    client.send_record(&stream(2, 0, &[0, 4, 0], false));
    let id = client.request("GET", "/", None);
    let response = client.response(id).expect("a response");
    assert!(response.fields.contains(&("x-src".to_owned(), "192.0.2.7".to_owned())), "{response:?}");
}

#[test]
fn time_limits_end_idle_connections_with_a_close() {
    let origin = origin();
    let limits = " timeout http-request 300ms\n timeout http-keep-alive 300ms";
    let scene = scene(&origin, "", limits);
    let mut silent = scene.connect();
    silent.receive_end();
    assert_eq!(silent.closed, Some((0x1d, 0x100)), "before the first request");
    let mut idle = scene.connect();
    assert_eq!(idle.get("/get/3").expect("a response").0, 200);
    idle.receive_end();
    assert_eq!(idle.closed, Some((0x1d, 0x100)), "after a request");
    let mut slow = scene.connect();
    slow.send(&[0x40]);
    slow.receive_end();
    assert_eq!(slow.closed, Some((0x1d, 0x100)), "within a record");
}

/// The limit that both sides agree on ends the connection without a frame.
#[test]
fn the_idle_timeout_of_the_client_is_respected() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    let mut parameters = usual(1 << 16);
    parameters[0].1 = 1_000;
    let mut client = RawQmux::connect_with(scene.port, &parameters);
    assert_eq!(client.get("/get/3").expect("a response").0, 200);
    client.receive_end();
    assert_eq!(client.closed, None);
}

#[test]
fn a_soft_stop_ends_connections_after_their_last_response() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |_, _| {
        let _ = wait.lock().expect("one request").recv();
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate".to_vec()
    });
    let mut scene = scene(&origin, "", "");
    let mut client = scene.connect();
    let mut idle = scene.connect();
    let id = client.request("GET", "/", None);
    assert!(eventually(|| origin.requests() == 1));
    scene.weir.signal("USR1");
    // GOAWAY (RFC 9114, 7.2.6) on the control stream, which is the server's first.
    let is_leaving =
        |client: &RawQmux| client.stream(3).bytes.windows(2).any(|two| two == [7, 8] || two == [7, 1]);
    assert!(client.receive_until(is_leaving), "{:x?}", client.stream(3).bytes);
    release.send(()).expect("the server waits");
    assert_eq!(client.response(id).expect("a response").body, b"late");
    for connection in [&mut client, &mut idle] {
        connection.receive_end();
        assert_eq!(connection.closed, Some((0x1d, 0x100)));
    }
    assert_eq!(scene.weir.await_end(), Some(0));
}

#[test]
fn connections_stay_open_during_a_reload_in_place() {
    let origin = origin();
    let scene = scene(&origin, "", " http-response set-header x-plan one");
    let mut client = scene.connect();
    let plan = |client: &mut RawQmux| {
        let id = client.request("GET", "/get/3", None);
        let fields = client.response(id).expect("a response").fields;
        fields.into_iter().find(|(name, _)| name == "x-plan").map(|(_, value)| value)
    };
    assert_eq!(plan(&mut client).as_deref(), Some("one"));
    let file = scene.weir.directory().join("haproxy.cfg");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    std::fs::write(&file, text.replace("x-plan one", "x-plan two")).expect("it is writable");
    let answer = scene.weir.ask("reload");
    assert!(eventually(|| plan(&mut client).as_deref() == Some("two")), "{answer}");
}
