//! PROXY protocol and NetScaler Client IP headers: the use of addresses in received headers, and the bytes of sent headers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};

use weir_tests::client::Client;
use weir_tests::{Origin, Weir, free_port};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Starts an origin that reports the first bytes of each connection.
fn recorder() -> (Origin, Receiver<Vec<u8>>) {
    let (tell, told) = channel();
    let origin = Origin::raw(move |mut stream| {
        let mut bytes = vec![0; 4096];
        let length = stream.read(&mut bytes).unwrap_or(0);
        bytes.truncate(length);
        let _ = tell.send(bytes);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    (origin, told)
}

/// Returns a version 2 header for 1.2.3.4:1 to 5.6.7.8:2 with these TLVs.
fn header(command: u8, family: u8, tlvs: &[u8]) -> Vec<u8> {
    let addresses: &[u8] = if family == 0x11 { &[1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0, 2] } else { &[] };
    let length = (addresses.len() + tlvs.len()) as u16;
    [SIGNATURE, &[command, family], &length.to_be_bytes(), addresses, tlvs].concat()
}

fn start(server: &str, port: u16, origin: u16) -> Weir {
    Weir::start(
        &format!(
            "global\n  nbthread 1\n  stats socket runtime level admin\n\
             defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n  \
             unique-id-format ID\n\
             listen l\n  bind 127.0.0.1:{port} accept-proxy\n  server s 127.0.0.1:{origin} {server}\n\
             listen u\n  bind unix@entry\n  server s 127.0.0.1:{origin} {server}\n"
        ),
        &[],
    )
}

#[test]
fn header_addresses_apply_to_the_session_only() {
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n  nbthread 1\n  stats socket runtime level admin\n\
             frontend f\n  mode http\n  timeout client 20s\n  bind 127.0.0.1:{port} accept-proxy\n  \
             tcp-request connection set-dst str(127.0.0.9)\n  http-request return status 200 content-type text/plain lf-string \
             \"%[src]:%[src_port] %[dst] %[fc_src] %[fc_dst] %[fc_pp_tlv(0xe0)] %[fc_pp_tlv(4)]\"\n"
        ),
        &[],
    );
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    let get = b"GET / HTTP/1.0\r\n\r\n";
    let tlvs = b"\xe0\0\x01x\x04\0\x01y";
    let cases: [(Vec<u8>, &str); 2] = [
        (header(0x21, 0x11, tlvs), "1.2.3.4:1 5.6.7.8 127.0.0.1 127.0.0.9 x y"),
        (header(0x20, 0, tlvs), "127.0.0.1:PORT 127.0.0.9 127.0.0.1 127.0.0.9 x y"),
    ];
    for (header, wanted) in cases {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the port takes connections");
        let own = stream.local_addr().expect("a connected socket").port().to_string();
        stream.write_all(&[&header[..], get].concat()).expect("a small request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer, and its end");
        assert!(answer.ends_with(&format!("\r\n\r\n{}", wanted.replace("PORT", &own))), "{answer}");
    }
    // No host name can be this long.
    let long = [&b"\x02\x01\0"[..], &[b'a'; 256]].concat();
    let refused = Client::connect(port).send([&header(0x21, 0x11, &long)[..], get].concat()).read_to_end();
    assert!(refused.is_empty(), "{}", refused.escape_ascii());
}

#[test]
fn sent_headers_follow_the_server_line() {
    let plain = header(0x21, 0x11, b"");
    let line = b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n".to_vec();
    let all = header(0x21, 0x11, b"\xe0\0\x01x\x03\0\x04SUM!\x02\0\x01h\x05\0\x02ID");
    let cases: [(&str, Vec<u8>); 8] = [
        ("send-proxy", line.clone()),
        ("send-proxy-v2", plain.clone()),
        // If both options are given, the second one applies; the others apply only if a version is named.
        ("send-proxy-v2 send-proxy", plain.clone()),
        ("send-proxy send-proxy-v2 no-send-proxy-v2", line.clone()),
        ("send-proxy proxy-v2-options unique-id", line),
        ("proxy-v2-options unique-id", Vec::new()),
        ("proxy-v2-options unique-id send-proxy-v2", header(0x21, 0x11, b"\x05\0\x02ID")),
        ("send-proxy-v2 proxy-v2-options unique-id,authority,crc32c set-proxy-v2-tlv-fmt(0xe0) x", all),
    ];
    for (words, wanted) in cases {
        let (origin, told) = recorder();
        let port = free_port();
        let weir = start(words, port, origin.port());
        assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
        let request = [&header(0x21, 0x11, b"\x02\0\x01h")[..], b"GET / HTTP/1.0\r\n\r\n"].concat();
        Client::connect(port).send(request).read_to_end();
        let mut got = told.recv().expect("the server is asked");
        let end = got.windows(4).position(|bytes| bytes == b"GET ").expect("a request behind the header");
        got.truncate(end);
        // Only the position of the checksum matters here; receivers verify its value.
        if let Some(at) = got.windows(3).position(|bytes| bytes == b"\x03\0\x04") {
            got[at + 3..at + 7].copy_from_slice(b"SUM!");
        }
        assert_eq!(got.escape_ascii().to_string(), wanted.escape_ascii().to_string(), "{words}");
    }
}

#[test]
fn unix_socket_clients_are_sent_as_local() {
    let (origin, told) = recorder();
    let weir = start("send-proxy-v2", free_port(), origin.port());
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    let mut stream =
        UnixStream::connect(weir.directory().join("entry")).expect("the socket takes connections");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("a small request");
    let got = told.recv().expect("the server is asked");
    assert!(got.starts_with(&header(0x20, 0, b"")), "{}", got.escape_ascii());
}

/// Returns a NetScaler Client IP header, in the layout since version 10.5, for 10.1.2.3:1111 to 10.9.8.7:2222.
fn netscaler(magic: u32) -> Vec<u8> {
    let ip = [0x45, 0, 0, 40, 0, 1, 0, 0, 64, 6, 0, 0, 10, 1, 2, 3, 10, 9, 8, 7];
    let tcp = [0x04, 0x57, 0x08, 0xae, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 2, 0, 0, 0, 0, 0, 0];
    [&magic.to_be_bytes()[..], &[0, 0, 0, 52, 0, 1, 0, 40], &ip, &tcp].concat()
}

#[test]
fn netscaler_addresses_precede_those_of_a_proxy_header() {
    let ports = [free_port(), free_port(), free_port()];
    let rest = "http-request return status 200 content-type text/plain lf-string \
                \"%[src]:%[src_port] %[dst]:%[dst_port] %[fc_src] %[fc_rcvd_proxy]\"\n";
    let weir = Weir::start(
        &format!(
            "global\n  nbthread 1\n  stats socket runtime level admin\n\
             defaults\n  mode http\n  timeout client 20s\n\
             frontend a\n  bind 127.0.0.1:{} accept-netscaler-cip 1234\n  {rest}\
             frontend b\n  bind 127.0.0.1:{} accept-netscaler-cip 1234 accept-proxy\n  {rest}\
             frontend c\n  bind 127.0.0.1:{} accept-proxy\n  \
             tcp-request connection expect-netscaler-cip layer4 if {{ src 127.0.0.1 }}\n  {rest}",
            ports[0], ports[1], ports[2],
        ),
        &[],
    );
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    let (get, proxy) = ("GET / HTTP/1.0\r\n\r\n", "PROXY TCP4 192.0.2.1 192.0.2.2 3 4\r\n");
    let through = |port: u16, headers: &[&[u8]]| {
        let request = [&headers.concat()[..], get.as_bytes()].concat();
        let answer = Client::connect(port).send(request).read_to_end();
        String::from_utf8_lossy(&answer).rsplit("\r\n").next().unwrap_or_default().to_owned()
    };
    let known = netscaler(1234);
    assert_eq!(through(ports[0], &[&known]), "10.1.2.3:1111 10.9.8.7:2222 127.0.0.1 0");
    assert_eq!(through(ports[1], &[&known, proxy.as_bytes()]), "192.0.2.1:3 192.0.2.2:4 127.0.0.1 1");
    // A rule expects the magic number of the bind line, 0 by default.
    assert_eq!(through(ports[2], &[&netscaler(0), proxy.as_bytes()]), "192.0.2.1:3 192.0.2.2:4 127.0.0.1 1");
    for refused in [&[&known[..]][..], &[proxy.as_bytes()], &[proxy.as_bytes(), &known]] {
        assert_eq!(through(ports[1], refused), "", "{refused:?}");
    }
    // The header may be split anywhere.
    let mut slow = Client::connect(ports[0]);
    for byte in &known {
        slow.send([*byte]);
    }
    let answer = slow.send(get).read_to_end();
    assert!(answer.ends_with(b"10.1.2.3:1111 10.9.8.7:2222 127.0.0.1 0"), "{}", answer.escape_ascii());
}
