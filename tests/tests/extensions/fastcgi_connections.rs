//! Connections to FastCGI applications: reused for the next request, shared by several clients, and the effects of one client on
//! the others.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use weir_tests::client::{Client, get};
use weir_tests::fastcgi::{
    Asked, Records, application, configuration, echo, end, kind, output, record, response, start,
};
use weir_tests::{Origin, Weir, eventually, free_port};

#[test]
fn connections_are_reused_unless_disabled() {
    for (app, connections) in [("", 1), (" no option keep-conn\n", 3)] {
        let server = application(echo);
        let (_weir, port) = start(&server, " http-reuse always\n", app);
        for _ in 0..3 {
            assert_eq!(get(port, "/a").expect("a response").status, 201, "{app}");
        }
        assert_eq!(server.connections(), connections, "{app}");
    }
}

/// Sends requests of several clients at once, each on its own thread, and returns the responses.
fn at_once(port: u16, paths: &[&str]) -> Vec<std::thread::JoinHandle<String>> {
    let one = |path: &&str| {
        let path = (*path).to_owned();
        // With HTTP/1.0 the response is not chunked.
        let request = format!("GET {path} HTTP/1.0\r\nHost: h\r\n\r\n");
        std::thread::spawn(move || {
            let all = Client::connect(port).send(request).read_to_end();
            let text = String::from_utf8_lossy(&all).into_owned();
            text.split_once("\r\n\r\n").map_or(text.clone(), |(_, body)| body.to_owned())
        })
    };
    paths.iter().map(one).collect()
}

#[test]
fn requests_share_a_connection_if_the_application_agrees() {
    let (send, receive) = mpsc::channel();
    let send = Mutex::new(send);
    let server = Origin::raw(move |stream| {
        let mut records = Records::new(stream);
        let mut all: Vec<Asked> = Vec::new();
        while all.len() < 3 {
            let Some(asked) = records.next_request() else { return };
            all.push(asked);
        }
        let _ = send.lock().expect("nobody panics with it").send(all.clone());
        // Answers the last request first, in interleaved pieces.
        for piece in ["X: 1\r\n\r\n", "of ", "it"] {
            for asked in all.iter().rev() {
                records.send(&output(asked.id, piece.as_bytes()));
            }
        }
        for asked in all.iter().rev() {
            let name = asked.get("SCRIPT_NAME").to_owned();
            records.send(&response(asked.id, name.as_bytes()));
        }
        while records.next_record().is_some() {}
    });
    let app = " option mpxs-conns\n option max-reqs 10\n";
    let port = free_port();
    let text = configuration(port, server.port(), " http-reuse always\n", app);
    let _weir = Weir::start(&text, &[port]);
    let mut got: Vec<String> =
        at_once(port, &["/a", "/b", "/c"]).into_iter().map(|one| one.join().unwrap()).collect();
    got.sort();
    assert_eq!(got, ["of it/a", "of it/b", "of it/c"]);
    let mut ids: Vec<u16> = receive.recv().expect("three requests").iter().map(|asked| asked.id).collect();
    ids.sort_unstable();
    assert_eq!((ids, server.connections()), (vec![1, 2, 3], 1));
}

#[test]
fn get_values_limits_concurrent_requests() {
    for (said, connections) in [
        (&b"\x0f\x01FCGI_MPXS_CONNS1\x0d\x02FCGI_MAX_REQS10"[..], 1),
        (b"\x0f\x01FCGI_MPXS_CONNS0\x0d\x02FCGI_MAX_REQS10", 2),
        (b"", 2),
    ] {
        let arrived = Arc::new((Mutex::new(0), std::sync::Condvar::new()));
        let server = {
            let arrived = arrived.clone();
            Origin::raw(move |stream| {
                let mut records = Records::new(stream);
                let asked = records.next_record().expect("a question");
                assert_eq!((asked.kind, asked.id), (kind::GET_VALUES, 0));
                records.send(&record(kind::GET_VALUES_RESULT, 0, said));
                let mut mine = Vec::new();
                loop {
                    let Some(request) = records.next_request() else { return };
                    mine.push(request.id);
                    let (count, changed) = &*arrived;
                    *count.lock().expect("nobody panics with it") += 1;
                    changed.notify_all();
                    // A second connection is handled by another thread.
                    if connections == 1 && mine.len() < 2 {
                        continue;
                    }
                    let waits = count.lock().expect("nobody panics with it");
                    drop(changed.wait_while(waits, |count| *count < 2).expect("nobody panics with it"));
                    for id in mine.drain(..) {
                        records.send(&response(id, b"X: 1\r\n\r\nok"));
                    }
                }
            })
        };
        let port = free_port();
        let text = configuration(port, server.port(), " http-reuse always\n", " option get-values\n");
        let _weir = Weir::start(&text, &[port]);
        // The GET_VALUES answer has arrived when the first request does.
        let first = at_once(port, &["/a"]);
        assert!(eventually(|| *arrived.0.lock().expect("nobody panics with it") == 1));
        let second = at_once(port, &["/b"]);
        for one in first.into_iter().chain(second) {
            assert_eq!(one.join().unwrap(), "ok");
        }
        assert_eq!(server.connections(), connections, "{}", String::from_utf8_lossy(said));
    }
}

#[test]
fn client_abort_only_affects_its_own_request() {
    let (send, receive) = mpsc::channel();
    let send = Mutex::new(send);
    let server = Origin::raw(move |stream| {
        let mut records = Records::new(stream);
        let (Some(first), Some(second)) = (records.next_request(), records.next_request()) else { return };
        let (left, stays) =
            if first.get("SCRIPT_NAME") == "/leaves" { (first, second) } else { (second, first) };
        records.send(&output(left.id, b"X: 1\r\n\r\nbegun"));
        let aborted = records.next_record();
        let is_right =
            aborted.is_some_and(|record| (record.kind, record.id) == (kind::ABORT_REQUEST, left.id));
        let _ = send.lock().expect("nobody panics with it").send(is_right);
        // Late output for the abandoned request has no effect.
        records.send(&output(left.id, b"more"));
        records.send(&end(left.id, 0));
        records.send(&response(stays.id, b"X: 1\r\n\r\nok"));
        while records.next_record().is_some() {}
    });
    let port = free_port();
    let text = configuration(
        port,
        server.port(),
        " http-reuse always\n",
        " option mpxs-conns\n option max-reqs 2\n",
    );
    let _weir = Weir::start(&text, &[port]);
    let mut leaves = Client::connect(port);
    leaves.send("GET /leaves HTTP/1.1\r\nHost: h\r\n\r\n");
    let stays = at_once(port, &["/stays"]);
    assert!(leaves.read_head().contains("200"));
    drop(leaves);
    assert_eq!(receive.recv(), Ok(true));
    assert_eq!(stays.into_iter().next().unwrap().join().unwrap(), "ok");
}

#[test]
fn memory_is_bounded_if_clients_do_not_read() {
    const ALL: usize = 256 << 20;
    let (send, receive) = mpsc::channel();
    let send = Mutex::new(send);
    let server = Origin::raw(move |stream| {
        let mut records = Records::new(stream);
        let Some(asked) = records.next_request() else { return };
        records.send(&output(asked.id, b"X: 1\r\n\r\n"));
        let piece = output(asked.id, &[b'x'; 65535]);
        // Sending stops once the kernel buffers are full.
        let mut stream = records.stream();
        stream.set_write_timeout(Some(Duration::from_millis(500))).expect("not zero");
        let mut sent = 0;
        while sent < ALL && std::io::Write::write_all(&mut stream, &piece).is_ok() {
            sent += piece.len();
        }
        let _ = send.lock().expect("nobody panics with it").send(sent);
        while records.next_record().is_some() {}
    });
    let (weir, port) = start(&server, "", "");
    let at_first = weir.memory();
    let mut client = Client::connect(port);
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.read_head().contains("200"));
    let sent = receive.recv().expect("the application tells");
    assert!(sent < ALL / 2, "{sent} bytes went somewhere");
    let grown = weir.memory().saturating_sub(at_first);
    assert!(grown < 4096, "{grown} kB more than {at_first}");
}
