//! `show stat`: its rows, their counters, and counters that survive a process (`stats-file`).

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::running::start;
use weir_tests::client::Client;
use weir_tests::listen::{listen, local};
use weir_tests::{Origin, Statistics, Weir, client, eventually, free_port};

/// Threads peak at different times, so the sum of their peaks exceeds the peak.
#[test]
fn session_maxima_stay_within_the_connection_limit() {
    let origin = Origin::text("x");
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n  nbthread 4\n  maxconn 4\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port} name l\n  option socket-stats\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    for _ in 0..40 {
        let mut clients: Vec<_> = (0..4).map(|_| Client::connect(port)).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        }
        for client in &mut clients {
            assert!(!client.read_to_end().is_empty());
        }
    }
    let shown = weir.statistics();
    for row in shown.rows() {
        assert!((1..=4).contains(&shown.number(&row, "smax")), "{row}: {shown:?}");
    }
}

#[test]
fn rows_are_selected_by_a_bit_mask_of_types() {
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port} name l\n  option socket-stats\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:{port}\n"
    );
    let weir = Weir::start(&text, &[]);
    for (kinds, expected) in [
        ("1", "f,FRONTEND"),
        ("2", "b,BACKEND"),
        ("4", "b,s"),
        ("8", "f,l"),
        ("7", "f,FRONTEND b,s b,BACKEND"),
        ("0", ""),
        ("-1", "f,FRONTEND f,l b,s b,BACKEND"),
    ] {
        let shown = Statistics::read(&weir.ask(&format!("show stat -1 {kinds} -1")));
        assert_eq!(shown.rows().join(" "), expected, "{kinds}");
    }
}

#[test]
fn counters_are_dumped_by_identifier_and_preloaded() {
    let (origin, port, other) = (Origin::text("counted"), free_port(), free_port());
    let lines = format!(
        "frontend f\n  guid g-f\n  option socket-stats\n  bind 127.0.0.1:{port} guid-prefix g-l\n  default_backend b\n\
         frontend h\n  bind 127.0.0.1:{other}\nbackend b\n  guid g-b\n  server s 127.0.0.1:{} guid g-s\n",
        origin.port()
    );
    let weir = start(&lines, port);
    for _ in 0..3 {
        assert_eq!(client::get(port, "/").map(|response| response.status), Some(200));
    }
    let total = |weir: &Weir, letter: &str| {
        let all = weir.ask("show stat typed");
        let line =
            all.lines().find(|line| line.starts_with(letter) && line.contains(".stot.")).map(str::to_owned);
        line.and_then(|line| line.rsplit(':').next()?.trim().parse::<u64>().ok())
    };
    // A connection may be counted after its client is answered.
    assert!(eventually(|| total(&weir, "S.") == Some(3)));
    let dumped = weir.ask("dump stats-file");
    assert!(dumped.starts_with("#fe guid,stot,bin,bout,dreq,"), "{dumped}");
    // The connection that checked the port was counted too.
    let sessions = total(&weir, "F.").unwrap_or(0);
    let own = [format!("\ng-f,{sessions},"), format!("\ng-l-0,{sessions},")];
    let others = ["\n#be guid,stot,", "\ng-s,3,", "\ng-b,3,"].map(str::to_owned);
    for line in own.iter().chain(&others) {
        assert!(dumped.contains(line), "{line:?}: {dumped}");
    }
    drop(weir);
    let file = weir_tests::scratch("counters").file("stats");
    std::fs::write(&file, format!("// left by another\nbad,\n{dumped}#zz guid,stot,\ng-b,99,\n"))
        .expect("a file");
    let weir = start(
        &format!("global\n  stats-file {}\n{}", file.display(), lines.replace("guid g-b", "guid g-c")),
        port,
    );
    for letter in ["F.", "L."] {
        let now = || total(&weir, letter) == Some(sessions + 1);
        assert!(eventually(now), "{letter}: the port was waited for again");
    }
    assert_eq!(total(&weir, "S."), Some(3));
    assert_eq!(total(&weir, "B."), Some(0), "it has another identifier now");
    drop(weir);
    let weir = start(&format!("global\n  stats-file /nowhere/stats\n{lines}"), port);
    assert!(weir.says("Can't load stats-file '/nowhere/stats'"), "{}", weir.messages());
}

#[test]
fn tcp_streams_are_in_the_statistics_while_they_last() {
    let (origin, port) = (Origin::echo(), free_port());
    let weir = Weir::start(
        &format!(
            "global\n  stats socket runtime level admin\ndefaults\n  mode tcp\n  timeout client 20s\n  timeout connect 10s\n  \
             timeout server 20s\nfrontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n\
             backend b\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.response().is_some());
    let shown = weir.statistics();
    for row in ["b,s", "b,BACKEND"] {
        assert!(shown.value(row, "lastsess").parse::<u32>().is_ok(), "{row}: {shown:?}");
    }
    // The port was checked once before.
    assert!(shown.number("f,FRONTEND", "sess_other") > 0, "{shown:?}");
    assert_eq!(shown.value("f,FRONTEND", "req_tot"), "0", "{shown:?}");
}

#[test]
fn failed_attempts_are_sessions_of_their_server() {
    let (refused, port) = (free_port(), free_port());
    let weir = Weir::start(
        &format!(
            "global\n stats socket runtime level admin\n\
             defaults\n mode http\n timeout client 9s\n timeout connect 1s\n timeout server 9s\n retries 0\n\
             frontend f\n bind 127.0.0.1:{port}\n default_backend b\nbackend b\n server s 127.0.0.1:{refused}\n"
        ),
        &[port],
    );
    assert_eq!(weir.statistics().value("b,s", "lastsess"), "-1");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.response().map(|response| response.status), Some(503));
    let shown = weir.statistics();
    for row in ["b,s", "b,BACKEND"] {
        assert!(shown.value(row, "lastsess").parse::<u32>().is_ok(), "{row}: {shown:?}");
    }
}

#[test]
fn contstats_counts_bytes_while_they_flow() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        let _ = stream.write_all(&[b'x'; 50_000]);
        // The rest never arrives.
        let _ = stream.read(&mut [0; 1]);
    });
    let (weir, port) = listen("", "  option contstats\n", &local(&origin));
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut drain = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    drain.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("a request");
    let mut seen = 0;
    while seen < 50_000 {
        seen += drain.read(&mut [0; 16384]).expect("bytes");
    }
    let counted = || weir.statistics().number("l,BACKEND", "bout");
    assert!(eventually(|| counted() >= 50_000), "counted {}", counted());
}
