//! Queues of servers and backends: timeouts, limits, counters.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use weir_tests::client::Client;
use weir_tests::log_scene::{GET, LAST, Scene};
use weir_tests::logs::DEFAULTS;
use weir_tests::{Origin, Weir, eventually, free_port};

#[test]
fn abandoned_queued_requests_do_not_block_others() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let server = format!("timeout queue 300ms\n  server s 127.0.0.1:{} maxconn 1", origin.port());
    let scene = Scene::start("", "log-format \"%ST %tsc %bq\"", &server);
    let mut first = Client::connect(scene.port);
    first.send(GET);
    assert!(eventually(|| scene.counts("b,s", &["scur"]) == ["scur=1"]));
    let mut others = [Client::connect(scene.port), Client::connect(scene.port)];
    for client in &mut others {
        client.send(LAST);
    }
    for client in &mut others {
        client.read_to_end();
    }
    let line = || scene.line_with_times();
    assert_eq!([line(), line()], ["503 sQ-- 1", "503 sQ-- 1"]);
}

#[test]
fn lbtot_counts_selections_even_if_unreachable() {
    for (algorithm, chosen) in [("roundrobin", "lbtot=1"), ("uri", "lbtot=3")] {
        let origin = Origin::raw(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            // Silent until the peer leaves.
            let _ = stream.read(&mut [0; 4096]);
        });
        let backend = format!("balance {algorithm}\n  server s 127.0.0.1:{} maxconn 1", origin.port());
        let scene = Scene::start("", "", &backend);
        let clients = [(); 3].map(|()| {
            let mut client = Client::connect(scene.port);
            client.send(GET);
            client
        });
        let waiting =
            || scene.counts("b,s", &["qcur"]).concat() + &scene.counts("b,BACKEND", &["qcur"]).concat();
        assert!(eventually(|| waiting().contains('2')), "{}", waiting());
        assert_eq!(
            scene.counts("b,s", &["lbtot"]),
            [chosen],
            "{algorithm}: those in the backend's queue wait for any"
        );
        drop(clients);
    }
}

#[test]
fn max_keep_alive_queue_limits_server_affinity() {
    let held: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let keep = Arc::clone(&held);
    let first = Origin::raw(move |mut stream| {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            if bytes[..length].starts_with(b"GET /slow") {
                // The test answers it.
                keep.lock().expect("nobody panicked").push(stream);
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Server: first\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let second =
        Origin::start(|_, _| b"HTTP/1.1 200 OK\r\nX-Server: second\r\nContent-Length: 0\r\n\r\n".to_vec());
    let server = |setting: &str| {
        let port = free_port();
        let weir = Weir::start(
            &format!(
                "global\n  nbthread 1\n  stats socket runtime level admin\n{DEFAULTS}  balance roundrobin\n\
                 listen l\n  bind 127.0.0.1:{port}\n  option prefer-last-server\n  {setting}\n  use-server first if {{ path_beg /slow /one }}\n  \
                 server first 127.0.0.1:{} maxconn 1\n  server second 127.0.0.1:{} maxconn 1\n",
                first.port(),
                second.port()
            ),
            &[port],
        );
        let ask = |client: &mut Client, path: &str| {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        };
        let mut client = Client::connect(port);
        ask(&mut client, "/one");
        assert_eq!(client.response().expect("a response").header("x-server"), Some("first"));
        let mut slow = Client::connect(port);
        ask(&mut slow, "/slow");
        assert!(eventually(|| !held.lock().expect("nobody panicked").is_empty()));
        ask(&mut client, "/two");
        let queued = || weir.ask("show stat").lines().any(|line| line.starts_with("l,first,1,"));
        let waits = !setting.ends_with(" 0");
        if waits {
            assert!(eventually(queued), "{setting}: {}", weir.ask("show stat"));
        }
        let free = || {
            for mut stream in held.lock().expect("nobody panicked").drain(..) {
                let _ =
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        };
        if waits {
            free();
        }
        let answer = client.response().expect("a response");
        free();
        answer.header("x-server").map(str::to_owned)
    };
    assert_eq!(server("max-keep-alive-queue 0").as_deref(), Some("second"));
    assert_eq!(server("max-keep-alive-queue 3").as_deref(), Some("first"));
    assert_eq!(server("max-keep-alive-queue -1").as_deref(), Some("first"));
}
