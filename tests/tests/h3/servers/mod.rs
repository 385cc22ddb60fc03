//! QUIC servers: a QUIC listener of the same program, and another implementation.

mod checks;
mod early;
mod faults;
mod peer;
mod reliability;
mod runtime;
mod settings;
mod sharing;

use std::path::PathBuf;

use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::{Authority, Origin, Weir, client, free_port};

use super::DEFAULTS;

/// The program with an HTTP/1 port and an HTTP/3 port for clients (frontend `f`), and a QUIC server (`b/s`) behind both: another
/// frontend of the same program (`behind`), in front of an HTTP/1 server (`o/o`).
struct Chain {
    weir: Weir,
    /// The port for clients over TCP and QUIC.
    port: u16,
    /// The port of the QUIC listener.
    behind: u16,
    /// The trusted CA.
    trusted: PathBuf,
    /// The configuration.
    text: String,
    _authority: Authority,
}

/// The lines that a test adds.
#[derive(Clone, Copy, Default)]
struct Lines<'a> {
    /// In the global section.
    global: &'a str,
    /// In the frontend for clients.
    front: &'a str,
    /// In the backend with the QUIC server, after `http-reuse always`.
    back: &'a str,
    /// Parameters of the QUIC server instead of those for verification.
    server: Option<&'a str>,
    /// More parameters of the QUIC server.
    more: &'a str,
    /// Parameters of the QUIC listener.
    bind: &'a str,
    /// In the frontend with the QUIC listener.
    behind: &'a str,
}

/// Starts the program in front of `origin`. `CA` in the lines is the file of the CA, `OWN` a certificate that it signed, and `BEHIND`
/// the port of the QUIC listener.
fn chain(origin: &Origin, lines: Lines<'_>) -> Chain {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let (port, behind) = (free_port(), free_port());
    let (shown, trusted) = (certificate.display().to_string(), authority.own());
    let verified = "ssl verify required ca-file CA sni str(localhost)";
    let Lines { global, front, back, server, more, bind, behind: rules } = lines;
    let server = server.unwrap_or(verified);
    let text = format!(
        "global\n stats socket runtime level admin\n{global}\n{DEFAULTS}\
         frontend f\n bind 127.0.0.1:{port}\n bind quic4@127.0.0.1:{port} ssl crt OWN\n{front}\n default_backend b\n\
         backend b\n http-reuse always\n{back}\n server s quic4@127.0.0.1:BEHIND {server} {more}\n\
         frontend behind\n bind quic4@127.0.0.1:BEHIND ssl crt OWN {bind}\n{rules}\n default_backend o\n\
         backend o\n server o 127.0.0.1:{}\n",
        origin.port()
    );
    let text = text.replace("CA ", &format!("{} ", trusted.display())).replace("OWN", &shown);
    let text = text.replace("BEHIND", &behind.to_string());
    let weir = Weir::start(&text, &[port]);
    Chain { weir, port, behind, trusted, text, _authority: authority }
}

impl Chain {
    /// Sends a request over HTTP/1 and returns status and body.
    fn get(&self, path: &str) -> (u16, String) {
        let answer = client::get(self.port, path).expect("a response");
        (answer.status, answer.text())
    }
}

/// Answers with the path.
fn paths() -> Origin {
    Origin::start(|head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()).into_bytes()
    })
}

/// Answers GET with interim hints, a body and trailers, and returns the bodies of other requests.
pub(super) fn hints_and_trailers() -> Origin {
    Origin::start(|head, body| {
        if head.starts_with("GET") {
            let first = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n";
            return format!("{first}{head}3\r\nabc\r\n0\r\nx-sum: 3\r\n\r\n").into_bytes();
        }
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
    })
}

#[test]
fn requests_of_http1_clients_reach_a_quic_server() {
    let origin = paths();
    let chain = chain(&origin, Lines { global: " nbthread 1", ..Lines::default() });
    for path in ["/a", "/b"] {
        assert_eq!(chain.get(path), (200, path.to_owned()));
    }
    assert_eq!(chain.weir.stat("behind,FRONTEND", "h3sess"), "1", "the connection is kept");
    assert_eq!(chain.weir.stat("behind,FRONTEND", "h3req"), "2");
}

#[test]
fn bodies_and_trailers_pass_from_http3_to_http3() {
    let origin = hints_and_trailers();
    let chain = chain(&origin, Lines::default());
    let mut client = Http3Client::connect(chain.port);
    for length in [0, 1, 1200, 16_384, 100_000, 3 << 20] {
        let body: Vec<u8> = (0..length).map(|at: usize| (at ^ (at >> 8)) as u8).collect();
        let response = client.exchange(&Http3Request::post("/", &body));
        assert_eq!(response.status, 200);
        assert!(response.body == body, "{length}");
    }
    let response = client.exchange(&Http3Request::get("/"));
    assert_eq!((response.interim, &*response.body), (vec![103], &b"abc"[..]));
    assert_eq!(response.trailers.expect("trailers")["x-sum"], "3");
}

#[test]
fn facts_about_the_connection_are_those_of_quic() {
    let origin = paths();
    let front = " http-response set-header x-facts \"%[bc_http_major] %[ssl_bc] %[ssl_bc_protocol] %[ssl_bc_alpn] %[bs.id] \
                 %[bc_nb_streams] %[srv_name] %[bc_dst_port]\"\n \
                 http-response set-header x-rtt %[bc_rtt(us)]\n http-response set-header x-sent %[ssl_s_s_dn]";
    let behind = " http-request set-header x-sni %[ssl_fc_sni]\n \
                  http-response set-header x-version \"%HV %[ssl_fc_sni] %[fc_http_major]\"";
    let chain = chain(&origin, Lines { global: " nbthread 1", front, behind, ..Lines::default() });
    for id in [0, 4] {
        let answer = client::get(chain.port, "/").expect("a response");
        let facts = format!("3 1 TLSv1.3 h3 {id} 1 s {}", chain.behind);
        assert_eq!(answer.header("x-facts"), Some(&*facts));
        assert_eq!(answer.header("x-version"), Some("HTTP/3.0 localhost 3"));
        let rtt: u32 = answer.header("x-rtt").and_then(|rtt| rtt.parse().ok()).expect("a time");
        assert!((1..1_000_000).contains(&rtt), "{rtt}");
    }
}

#[test]
fn upgrades_pass_as_extended_connect() {
    let origin = Origin::raw(|mut stream| {
        use std::io::{Read, Write};
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap_or(0);
        let head = String::from_utf8_lossy(&bytes[..length]).to_ascii_lowercase();
        assert!(head.contains("upgrade: echo"), "{head}");
        let accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
        let _ = stream.write_all(accepted.as_bytes());
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..length]);
        }
    });
    let chain = chain(&origin, Lines::default());
    let mut client = client::Client::connect(chain.port);
    client.send("GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    let head = client.read_head();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    for text in ["one", "two"] {
        client.send(text);
        assert_eq!(client.read_bytes(3), text.as_bytes());
    }
}
