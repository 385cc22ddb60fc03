//! QMux servers: a QMux listener of the same program, clear and with TLS.

use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::{Authority, Origin, Weir, client, eventually, free_port};

use super::super::DEFAULTS;
use super::super::servers::hints_and_trailers;
use super::{bytes, origin};

/// The program with an HTTP/1 port and an HTTP/3 port for clients (frontend `f`), and a QMux server (`b/s`) behind both: another
/// frontend of the same program (`behind`), in front of an HTTP/1 server (`o/o`).
struct Chain {
    weir: Weir,
    port: u16,
    _authority: Authority,
}

/// The parameters of server and listener for one way to use QMux. `CA` is the file of the CA, `OWN` a certificate that it signed.
const WAYS: [(&str, &str); 3] = [
    ("proto qmux", "proto qmux"),
    ("ssl verify required ca-file CA sni str(localhost) alpn h3", "ssl crt OWN alpn h3,h2"),
    ("ssl verify required ca-file CA sni str(localhost) proto qmux", "ssl crt OWN proto qmux"),
];

fn chain(origin: &Origin, global: &str, (server, bind): (&str, &str)) -> Chain {
    chain_with(origin, global, (server, bind), "")
}

/// Starts the program in front of `origin`, with more lines of the backend with the QMux server.
fn chain_with(origin: &Origin, global: &str, (server, bind): (&str, &str), back: &str) -> Chain {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let (port, behind) = (free_port(), free_port());
    let text = format!(
        "global\n stats socket runtime level admin\n expose-experimental-directives\n{global}\n{DEFAULTS}\
         frontend f\n bind 127.0.0.1:{port}\n bind quic4@127.0.0.1:{port} ssl crt OWN\n default_backend b\n\
         backend b\n http-reuse always\n{back}\n server s 127.0.0.1:{behind} {server}\n\
         frontend behind\n bind 127.0.0.1:{behind} {bind}\n http-response set-header x-alpn %[ssl_fc_alpn]\n \
         http-response set-header x-ver %[req.ver]\n default_backend o\n\
         backend o\n server o 127.0.0.1:{}\n",
        origin.port()
    );
    let text = text.replace("CA ", &format!("{} ", authority.own().display()));
    let text = text.replace("OWN", &certificate.display().to_string());
    Chain { weir: Weir::start(&text, &[port]), port, _authority: authority }
}

#[test]
fn requests_reach_servers_over_qmux() {
    let origin = origin();
    for (at, way) in WAYS.into_iter().enumerate() {
        let chain = chain(&origin, " nbthread 1", way);
        for length in [3, 100_000] {
            let response = client::get(chain.port, &format!("/get/{length}")).expect("a response");
            assert_eq!((response.status, response.header("x-ver")), (200, Some("3.0")));
            assert_eq!(response.header("x-alpn").unwrap_or_default(), if at == 0 { "" } else { "h3" });
            assert_eq!(response.body.len(), length);
        }
        assert_eq!(chain.weir.stat("behind,FRONTEND", "h3sess"), "1", "the connection is kept");
        assert_eq!(chain.weir.stat("behind,FRONTEND", "h3req"), "2");
        assert_eq!(chain.weir.stat("b,s", "connect"), "1");
    }
}

#[test]
fn bodies_and_trailers_pass_from_http3_to_qmux() {
    let origin = hints_and_trailers();
    for way in WAYS {
        let chain = chain(&origin, "", way);
        let mut client = Http3Client::connect(chain.port);
        for length in [0, 1, 16_384, 100_000, 3 << 20] {
            let body = bytes(length);
            let response = client.exchange(&Http3Request::post("/", &body));
            assert_eq!(response.status, 200);
            assert!(response.body == body, "{length}");
        }
        let response = client.exchange(&Http3Request::get("/"));
        assert_eq!((response.interim, &*response.body), (vec![103], &b"abc"[..]));
        assert_eq!(response.trailers.expect("trailers")["x-sum"], "3");
    }
}

#[test]
fn requests_of_many_clients_share_a_connection() {
    let origin = origin();
    for way in WAYS {
        let chain = chain(&origin, " nbthread 1", way);
        assert_eq!(client::get(chain.port, "/get/1").expect("a response").status, 200);
        let mut client = Http3Client::connect(chain.port);
        let requests: Vec<_> = (0..100).map(|at| Http3Request::get(&format!("/get/{}", at * 997))).collect();
        for (at, response) in client.exchange_all(&requests).into_iter().enumerate() {
            assert!(response.expect("a response").body == bytes(at * 997), "request {at}");
        }
        let sessions: u32 = chain.weir.stat("behind,FRONTEND", "h3sess").parse().expect("a number");
        assert!(sessions <= 2, "{sessions} connections for 101 requests");
    }
}

#[test]
fn idle_connections_move_between_workers() {
    let origin = origin();
    for way in WAYS {
        let chain = chain(&origin, " nbthread 4\n thread-groups 1", way);
        for at in 0..40 {
            assert_eq!(client::get(chain.port, "/get/3").expect("a response").status, 200, "{at}");
        }
        let connects: u32 = chain.weir.stat("b,s", "connect").parse().expect("a number");
        assert!(connects < 40, "{connects} connections for 40 requests, one after the other");
    }
}

#[test]
fn the_server_is_told_the_client_in_a_proxy_header() {
    let origin = origin();
    for (server, bind) in [WAYS[0], WAYS[1]] {
        let way = (format!("{server} send-proxy-v2"), format!("{bind} accept-proxy"));
        let chain = chain(&origin, "", (&way.0, &way.1));
        for _ in 0..3 {
            assert_eq!(client::get(chain.port, "/get/3").expect("a response").status, 200);
        }
    }
}

#[test]
fn a_server_that_does_not_speak_qmux_is_an_error_of_the_connection() {
    let origin = Origin::text("not QMux");
    let port = free_port();
    let text = format!(
        "global\n stats socket runtime level admin\n expose-experimental-directives\n{DEFAULTS} retries 0\n\
         frontend f\n bind 127.0.0.1:{port}\n http-after-response set-header x-error %[bc_err_name]\n \
         default_backend b\nbackend b\n server s 127.0.0.1:{} proto qmux\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    let response = client::get(port, "/").expect("a response");
    assert_eq!((response.status, response.header("x-error")), (503, Some("QMUX")));
    assert_eq!(weir.stat("b,s", "econ"), "1");
}

/// `alpn h3` is an offer: a server that chooses another protocol gets that one.
#[test]
fn other_protocols_remain_possible_with_alpn() {
    let origin = origin();
    let offer = "ssl verify none alpn h3,h2,http/1.1";
    for (bind, version) in [("alpn h2", "2.0"), ("alpn http/1.1", "1.1"), ("alpn h3,h2", "3.0")] {
        let chain = chain(&origin, "", (offer, &format!("ssl crt OWN {bind}")));
        let response = client::get(chain.port, "/get/3").expect("a response");
        assert_eq!((response.status, response.header("x-ver")), (200, Some(version)), "{bind}");
    }
}

#[test]
fn requests_outlive_the_idle_limit_of_the_server() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |_, _| {
        let _ = wait.lock().expect("one request").recv();
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate".to_vec()
    });
    let limits = " tune.quic.fe.max-idle-timeout 1s\n tune.quic.be.max-idle-timeout 1s";
    let chain = chain(&origin, limits, WAYS[0]);
    let port = chain.port;
    let request = std::thread::spawn(move || client::get(port, "/"));
    let since = std::time::Instant::now();
    assert!(eventually(|| since.elapsed() > std::time::Duration::from_millis(2500)));
    release.send(()).expect("the server waits");
    assert_eq!(request.join().expect("no panic").expect("a response").text(), "late");
}

#[test]
fn upgrades_pass_over_qmux() {
    let origin = Origin::raw(|socket| {
        use std::io::{BufRead as _, BufReader, Read as _, Write as _};
        let mut reader = BufReader::new(&socket);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
        }
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n";
        let _ = (&socket).write_all(head.as_bytes());
        let mut four = [0; 4];
        if reader.read_exact(&mut four).is_ok() {
            let _ = (&socket).write_all(&four);
        }
    });
    let chain = chain(&origin, "", WAYS[0]);
    let mut client = client::Client::connect(chain.port);
    client.send("GET /chat HTTP/1.1\r\nHost: localhost\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n");
    let head = client.read_head();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client.send("ping");
    assert_eq!(client.read_bytes(4), b"ping");
}
