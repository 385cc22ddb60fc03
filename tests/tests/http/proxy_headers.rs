//! PROXY headers of both versions: which addresses are used, and which headers end the connection (proxy-protocol.txt, 2.1 and
//! 2.2).

use weir_tests::client::Client;
use weir_tests::{Weir, free_port};

/// Returns a version 2 header.
fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend_from_slice(&[command, family]);
    header.extend_from_slice(&(body.len() as u16).to_be_bytes());
    header.extend_from_slice(body);
    header
}

const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const V4: &[u8] = &[10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 7, 208];

fn v6() -> Vec<u8> {
    let mut body = vec![0; 36];
    (body[0], body[1], body[15], body[31], body[33], body[35]) = (0x20, 1, 1, 2, 80, 90);
    body
}

/// Returns the client's address according to the header of a request; `None` if the connection was closed.
fn client(port: u16, header: &[u8]) -> Option<String> {
    let mut client = Client::connect(port);
    let request: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    client.send([header, request].concat()).response().map(|response| response.text())
}

#[test]
fn headers_are_interpreted_as_specified() {
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "defaults\n mode http\n timeout client 20s\nfrontend f\n bind 127.0.0.1:{port} accept-proxy\n \
             http-request return status 200 content-type text/plain lf-string \"%[src] %[src_port]\" unless {{ src 127.0.0.1 }}\n \
             http-request return status 200 content-type text/plain string own\n"
        ),
        &[port],
    );
    let text = |line: &str| format!("PROXY {line}\r\n").into_bytes();
    let unix = [0; 216];
    let cases: &[(Vec<u8>, Option<&str>)] = &[
        (text("TCP4 1.2.3.4 5.6.7.8 80 90"), Some("1.2.3.4 80")),
        (text("TCP6 2001:db8::1 ::2 65535 90"), Some("2001:db8::1 65535")),
        (text("UNKNOWN"), Some("own")),
        (text("UNKNOWN 1.2.3.4 whatever stands here"), Some("own")),
        (text("TCP4 1.2.3 5.6.7.8 80 90"), None),
        (text("TCP4 1.2.3.256 5.6.7.8 80 90"), None),
        (text("TCP4 01.2.3.4 5.6.7.8 80 90"), None),
        (text("TCP4 1.2.3.4 5.6.7.8 99999 90"), None),
        (text("TCP4 1.2.3.4 5.6.7.8 80 65536"), None),
        (text("TCP4 1.2.3.4 5.6.7.8 080 90"), None),
        (text("TCP4 1.2.3.4 5.6.7.8 80"), None),
        (text("TCP4 ::1 ::2 80 90"), None),
        (text("TCP6 1.2.3.4 5.6.7.8 80 90"), None),
        (text("UDP4 1.2.3.4 5.6.7.8 80 90"), None),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 80 90\n".to_vec(), None),
        (binary(PROXY, 0x11, V4), Some("10.0.0.1 1000")),
        (binary(PROXY, 0x12, V4), Some("10.0.0.1 1000")),
        (binary(PROXY, 0x21, &v6()), Some("2001::1 80")),
        (binary(PROXY, 0x22, &v6()), Some("2001::1 80")),
        (binary(PROXY, 0x31, &unix), Some("own")),
        (binary(PROXY, 0x00, b""), Some("own")),
        (binary(LOCAL, 0x00, b""), Some("own")),
        (binary(LOCAL, 0x11, V4), Some("own")),
        (binary(LOCAL, 0x22, &v6()), Some("own")),
        (binary(LOCAL, 0x31, b"short"), Some("own")),
        (binary(PROXY, 0x11, &V4[..8]), None),
        (binary(PROXY, 0x21, V4), None),
        (binary(PROXY, 0x41, V4), None),
        (binary(0x22, 0x11, V4), None),
        (binary(0x11, 0x11, V4), None),
    ];
    for (header, wanted) in cases {
        let shown = header.escape_ascii();
        assert_eq!(client(port, header).as_deref(), *wanted, "{shown}");
    }
}

#[test]
fn header_time_is_logged_as_handshake() {
    for mode in ["http", "tcp"] {
        let (port, origin) = (free_port(), weir_tests::Origin::text("x"));
        let weir = Weir::start(
            &format!(
                "global\n log stderr format raw local0\n stats socket runtime level admin\ndefaults\n mode {mode}\n timeout client 20s\n timeout server 20s\n \
                 timeout connect 20s\n log global\nfrontend f\n bind 127.0.0.1:{port} accept-proxy\n \
                 log-format \"<%Th,%Ti,%Tt,%Ta>\"\n default_backend b\nbackend b\n server s 127.0.0.1:{}\n",
                origin.port()
            ),
            &[],
        );
        assert!(weir_tests::eventually(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()));
        let accepted = || weir.stat("f,FRONTEND", "conn_tot");
        assert!(weir_tests::eventually(|| accepted() == "1"));
        let mut client = Client::connect(port);
        assert!(weir_tests::eventually(|| accepted() == "2"));
        // The connection has been accepted. The header arrives at least this much later, which is the logged time.
        let late = std::time::Duration::from_millis(60);
        std::thread::sleep(late);
        client.send("PROXY TCP4 192.0.2.7 192.0.2.8 4660 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.response().is_some());
        client.shut().read_to_end();
        let told = || {
            let messages = weir.messages();
            let line = messages.lines().find(|line| line.starts_with('<') && line.ends_with('>'))?;
            let times = line[1..line.len() - 1].split(',').map(|time| time.parse::<i64>().ok());
            times.collect::<Option<Vec<i64>>>()
        };
        assert!(weir_tests::eventually(|| told().is_some()), "{}", weir.messages());
        let times = told().expect("a line");
        // Handshake, idle (never in TCP), total.
        assert!(times[0] >= late.as_millis() as i64 && times[2] >= times[0], "{mode} {times:?}");
        assert_eq!(times[1] >= 0, mode == "http", "{mode} {times:?}");
        // In TCP the handshake is part of the active time; in HTTP it precedes it.
        assert_eq!(times[3] == times[2], mode == "tcp", "{mode} {times:?}");
    }
}
