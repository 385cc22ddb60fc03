//! QUIC servers: the program in front of its own QUIC listener.

use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::{Authority, Origin, Weir, client, free_port};

use super::DEFAULTS;

/// The program with an HTTP/1 port, an HTTP/3 port, and a QUIC server behind both, which is another frontend of the program in front
/// of an HTTP/1 server.
struct Chain {
    weir: Weir,
    port: u16,
    _authority: Authority,
}

/// Starts the chain in front of `origin`. `server` are further parameters of the QUIC server, `front` lines of the frontend for
/// clients, `back` lines of the backend of the QUIC server, and `bind` further parameters of the QUIC listener behind it.
fn chain(origin: &Origin, [global, front, back, server, bind]: [&str; 5]) -> Chain {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let (port, behind) = (free_port(), free_port());
    let (shown, trusted) = (certificate.display(), authority.own());
    let trusted = trusted.display();
    let text = format!(
        "global\n stats socket runtime level admin\n{global}\n{DEFAULTS}\
         frontend f\n bind 127.0.0.1:{port}\n bind quic4@127.0.0.1:{port} ssl crt {shown}\n{front}\n default_backend b\n\
         backend b\n{back}\n server s quic4@127.0.0.1:{behind} ssl verify required ca-file {trusted} sni str(localhost) {server}\n\
         frontend behind\n bind quic4@127.0.0.1:{behind} ssl crt {shown} {bind}\n default_backend o\n\
         backend o\n server o 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    Chain { weir, port, _authority: authority }
}

#[test]
fn requests_of_http1_clients_reach_a_quic_server() {
    let origin = Origin::start(|head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()).into_bytes()
    });
    let chain = chain(&origin, ["", "", "", "", ""]);
    for path in ["/a", "/b"] {
        let answer = client::get(chain.port, path).expect("a response");
        assert_eq!((answer.status, &*answer.text()), (200, path));
    }
}

#[test]
fn requests_of_http3_clients_reach_a_quic_server() {
    let origin = Origin::start(|_, body| {
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
    });
    let chain = chain(&origin, ["", "", "", "", ""]);
    let mut client = Http3Client::connect(chain.port);
    let response = client.exchange(&Http3Request::post("/", b"hello"));
    assert_eq!((response.status, &*response.body), (200, &b"hello"[..]));
    assert_eq!(chain.weir.stat("behind,FRONTEND", "h3sess"), "1");
}
