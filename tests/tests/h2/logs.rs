//! HTTP/2 connections and streams in logs and fetches.

use std::net::TcpListener;
use std::thread;

use weir_tests::client::Client;
use weir_tests::multiplexed::{
    CANCEL, DATA, END_STREAM, Frames, GOAWAY, HEADERS, PROTOCOL_ERROR, RST_STREAM,
};
use weir_tests::versions::{TIMEOUTS, frontend};
use weir_tests::{Origin, Weir, eventually, free_port};

#[test]
fn protocol_violations_are_logged_as_configured() {
    let origin = Origin::text("x");
    let upper = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("X", "1")];
    for (level, of_streams, of_connections) in
        [("stream", true, true), ("connection", false, true), ("none", false, false)]
    {
        let (weir, port) = frontend(
            &format!(" tune.h2.log-errors {level}"),
            " log-format \"%TR/%Tq/%Ti/%Tt %ST %tsc %r\"",
            origin.port(),
        );
        let mut client = Frames::connect(port);
        client.head(1, END_STREAM, &upper);
        assert_eq!(client.next_of(RST_STREAM).number(0), PROTOCOL_ERROR);
        // The connection is still usable.
        assert_eq!(client.get(3, "/").next_head().0[0], ":status: 200");
        client.send(DATA, 0, 0, b"");
        assert_eq!(client.next_of(GOAWAY).number(4), PROTOCOL_ERROR);
        client.rest();
        // Without a stream there is no status and no time.
        let bad = || weir.messages().matches("-1/-1/0/0 0 PR-- ").count();
        let expected = usize::from(of_streams) + usize::from(of_connections);
        assert!(eventually(|| bad() == expected), "{level}: {}", weir.messages());
        assert!(
            !weir.messages().contains("PR--") || weir.messages().contains("<BADREQ>"),
            "{}",
            weir.messages()
        );
    }
}

#[test]
fn log_formats_and_fetches_show_streams_and_versions() {
    let origin = Origin::text("x");
    let front = " log-format \"<%HV %r|%[fc_http_major],%[bc_http_major],%[fs.id],%[bs.id],%[fs.rst_code],%HU,%HPO,%[fc_nb_streams],%[fc_settings_streams_limit],%[bc_nb_streams]>\"";
    let (weir, port) = frontend("", front, origin.port());
    let mut client = Frames::connect(port);
    client.get(1, "/a?b").next_head();
    client.get(3, "/c").next_head();
    let told = |text: &str| weir.says(text);
    assert!(
        told("<HTTP/2.0 GET http://a.test/a?b HTTP/2.0|2,1,1,0,-,http://a.test/a?b,/a,1,100,1>"),
        "{}",
        weir.messages()
    );
    assert!(told("|2,1,3,1,-,http://a.test/c,/c,1,100,1>"), "{}", weir.messages());
}

#[test]
fn client_reset_code_is_logged() {
    let origin = Origin::raw(|stream| {
        let mut byte = [0];
        while matches!(std::io::Read::read(&mut &stream, &mut byte), Ok(n) if n > 0) {}
    });
    let (weir, port) = frontend("", " log-format \"<%[fs.rst_code] %ts>\"", origin.port());
    let mut client = Frames::connect(port);
    client.get(1, "/");
    assert!(eventually(|| origin.connections() == 1));
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    assert!(weir.says("<8 C"), "{}", weir.messages());
}

#[test]
fn server_reset_code_is_logged() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().unwrap().port();
    let port = free_port();
    let text = format!(
        "global\n log stderr format raw local0\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n \
         log-format \"<%[bs.rst_code],%[bs.id],%[bc_http_major],%[bc_settings_streams_limit] %ST>\"\n default_backend b\nbackend b\n \
         server s 127.0.0.1:{server} proto h2\n"
    );
    let weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = Frames::accept(&listener);
    let stream = peer.next_of(HEADERS).stream;
    peer.send(RST_STREAM, 0, stream, &PROTOCOL_ERROR.to_be_bytes());
    assert_eq!(client.response().expect("an answer").status, 502);
    assert!(weir.says("<1,1,2,100 502>"), "{}", weir.messages());
}

#[test]
fn request_resembling_the_preface_is_timed_from_its_start() {
    let origin = Origin::text("x");
    let port = free_port();
    let text = format!(
        "global\n log stderr format raw local0\n{TIMEOUTS}frontend f\n log-format \"<%TR>\"\n bind 127.0.0.1:{port}\n \
         default_backend b\nbackend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    client.send("P");
    // The rest comes late, so the logged time counts from the first byte, however late that was read.
    thread::sleep(std::time::Duration::from_millis(600));
    client.send("UT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().expect("an answer").status, 200);
    let told = || {
        let messages = weir.messages();
        let line =
            messages.lines().find_map(|line| line.strip_prefix('<')?.strip_suffix('>')?.parse::<u64>().ok());
        line.is_some_and(|time| time >= 50)
    };
    assert!(eventually(told), "{}", weir.messages());
}

#[test]
fn stream_dump_shows_stream_ids_on_both_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (server, port) = (listener.local_addr().expect("an address").port(), free_port());
    let text = format!(
        "global\n stats socket runtime\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port} proto h2\n default_backend b\n\
         backend b\n server s 127.0.0.1:{server} proto h2\n"
    );
    let weir = Weir::start(&text, &[port]);
    let mut client = Frames::connect(port);
    client.get(7, "/");
    let mut peer = Frames::accept(&listener);
    assert_eq!(peer.next_of(HEADERS).stream, 1);
    let dump = weir.ask("show sess all");
    let told: Vec<&str> = dump.lines().filter(|line| line.contains("h2s.id=")).map(str::trim).collect();
    assert_eq!(told, ["h2s=(nil) h2s.id=7", "h2s=(nil) h2s.id=1"], "{dump}");
    assert_eq!(dump.matches(" mux=H2 ").count(), 2, "{dump}");
}
