//! TLS outside of forwarded requests: logs, and steps of checks (manual, 12.5 `ring`, 12.6 `log-forward`, 4.2 `http-check connect`,
//! `tcp-check connect`, `option ssl-hello-chk`).

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use weir_tests::client::get;
use weir_tests::tls::shown;
use weir_tests::{Authority, NameServer, Weir, Zone, check, eventually, free_port, scratch};

const DEFAULTS: &str = "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n timeout check 3s\n";

/// Binds a collector for logs.
fn collector() -> (UdpSocket, String) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket takes a timeout");
    let address = socket.local_addr().expect("a bound socket has an address").to_string();
    (socket, address)
}

fn line(socket: &UdpSocket) -> String {
    let mut room = [0; 4096];
    let length = socket.recv(&mut room).expect("there is a line within the time");
    String::from_utf8_lossy(&room[..length]).into_owned()
}

#[test]
fn rings_and_log_backends_use_tls_if_configured() {
    let authority = Authority::new();
    let (certificate, ca) = (shown(&authority.issue(&["logs.test"])), shown(&authority.own()));
    for target in ["ring@secure", "backend@secured"] {
        let (socket, collector) = collector();
        let (port, logs) = (free_port(), free_port());
        let _weir = Weir::start(
            &format!(
                "{DEFAULTS}frontend f\n bind 127.0.0.1:{port}\n log {target} local0\n log-format \"asked for %HU\"\n http-request return status 200\n\
                 ring secure\n format rfc5424\n maxlen 1200\n size 32764\n timeout connect 5s\n timeout server 10s\n \
                 server s 127.0.0.1:{logs} ssl ca-file {ca} sni str(logs.test)\n\
                 backend secured\n mode log\n server s 127.0.0.1:{logs} ssl ca-file {ca} verifyhost logs.test\n\
                 log-forward taking\n bind 127.0.0.1:{logs} ssl crt {certificate}\n log {collector} local1\n"
            ),
            &[port, logs],
        );
        for number in 0..3 {
            get(port, &format!("/{number}")).expect("an answer");
        }
        let mut rest = vec!["asked for /0", "asked for /1", "asked for /2"];
        while !rest.is_empty() {
            let line = line(&socket);
            rest.retain(|text| !line.trim_end().ends_with(text));
        }
    }
}

#[test]
fn messages_are_not_sent_without_a_valid_certificate() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (certificate, ca) = (shown(&authority.issue(&["logs.test"])), shown(&stranger.own()));
    let (socket, collector) = collector();
    let (port, logs) = (free_port(), free_port());
    let _weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend f\n bind 127.0.0.1:{port}\n log ring@secure local0\n log-format secret\n http-request return status 200\n\
             ring secure\n format rfc5424\n size 32764\n timeout connect 5s\n timeout server 10s\n server s 127.0.0.1:{logs} ssl ca-file {ca}\n\
             log-forward taking\n bind 127.0.0.1:{logs} ssl crt {certificate}\n log {collector} local1\n"
        ),
        &[port, logs],
    );
    get(port, "/").expect("an answer");
    // The forwarder reports the missing handshake.
    let line = line(&socket);
    assert!(line.contains("SSL") && !line.contains("secret"), "{line}");
}

/// Returns the status of the last check of `backend,server`.
fn status(weir: &Weir, server: &str) -> String {
    weir.stat(server, "check_status")
}

#[test]
fn check_steps_use_their_own_sni_and_alpn() {
    let authority = Authority::new();
    let (one, two) = (shown(&authority.issue(&["one.test"])), shown(&authority.issue(&["two.test"])));
    let ca = shown(&authority.own());
    let (port, inner) = (free_port(), free_port());
    let server = format!("server s 127.0.0.1:{inner} check inter 50ms ca-file {ca}");
    let request = "http-check send meth GET uri / hdr host x\n http-check expect status 200";
    let weir = Weir::start(
        &format!(
            "global\n stats socket runtime level admin\n{DEFAULTS}frontend own\n bind 127.0.0.1:{port}\n\
             backend secure\n option httpchk\n http-check connect ssl sni one.test alpn http/1.1\n {request}\n {server}\n\
             backend wrong\n option httpchk\n http-check connect ssl sni three.test\n {request}\n {server}\n\
             backend twice\n option httpchk\n http-check connect ssl sni one.test alpn http/1.1\n {request}\n \
             http-check connect ssl sni two.test alpn http/1.0\n http-check send meth GET uri /two hdr host x\n http-check expect status 200\n {server}\n\
             backend alone\n option tcp-check\n tcp-check connect ssl sni two.test\n {server}\n\
             backend deaf\n option ssl-hello-chk\n server s 127.0.0.1:{port} check inter 50ms\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {one} crt {two} strict-sni alpn http/1.1,http/1.0\n \
             http-request deny if {{ path /two }} !{{ ssl_fc_alpn http/1.0 }}\n \
             http-request deny unless {{ path /two }} or {{ ssl_fc_alpn http/1.1 }}\n http-request return status 200\n"
        ),
        &[port, inner],
    );
    for (server, expected) in [
        ("secure,s", "L7OK"),
        ("twice,s", "L7OK"),
        ("alone,s", "L6OK"),
        ("wrong,s", "L6RSP"),
        ("deaf,s", "L6RSP"),
    ] {
        assert!(eventually(|| status(&weir, server) == expected), "{server}: {:?}", status(&weir, server));
    }
}

#[test]
fn ssl_hello_check_needs_a_tls_server() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let (port, inner) = (free_port(), free_port());
    let weir = Weir::start(
        &format!(
            "global\n stats socket runtime level admin\n{DEFAULTS}frontend own\n bind 127.0.0.1:{port}\n\
             backend hello\n option ssl-hello-chk\n server s 127.0.0.1:{inner} check inter 50ms\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {certificate}\n"
        ),
        &[port, inner],
    );
    assert!(eventually(|| status(&weir, "hello,s") == "L6OK"), "{:?}", status(&weir, "hello,s"));
}

#[test]
fn tls_check_needs_trust_anchors() {
    let directory = scratch("check");
    let file = directory.join("haproxy.cfg");
    let text = "backend b\n option tcp-check\n tcp-check connect ssl\n server s 127.0.0.1:1 check\n";
    std::fs::write(&file, format!("{DEFAULTS}{text}")).expect("the directory takes files");
    let verdict = check(&file, &directory);
    assert!(verdict.alerts().iter().any(|line| line.contains("verify is enabled by default")), "{verdict:?}");
}

#[test]
fn name_servers_may_be_queried_over_tls() {
    let authority = Authority::new();
    let (certificate, ca) = (shown(&authority.issue(&["dns.test"])), shown(&authority.own()));
    let names = NameServer::start(&[("a.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let (port, secure) = (free_port(), free_port());
    let weir = Weir::start(
        &format!(
            "global\n stats socket runtime level admin\n{DEFAULTS}resolvers r\n nameserver n tcp@127.0.0.1:{secure} ssl ca-file {ca} verifyhost dns.test\n \
             resolve_retries 100\n timeout retry 100ms\n\
             backend b\n server s a.test:80 resolvers r init-addr none\n\
             listen front\n mode tcp\n bind 127.0.0.1:{secure} ssl crt {certificate}\n server s 127.0.0.1:{}\n\
             frontend own\n bind 127.0.0.1:{port}\n",
            names.port()
        ),
        &[port, secure],
    );
    let has = || weir.ask("show servers state b").contains(" 127.0.0.1 ");
    assert!(eventually(has), "{}", weir.ask("show resolvers"));
    assert_eq!(names.questions().0, 0, "no datagram was sent");
}
