//! Health checks over QUIC.

use weir_tests::{Origin, PATIENCE, Weir, client, eventually, free_port};

use super::{Lines, chain};
use crate::DEFAULTS;

fn status(chain: &super::Chain) -> (String, String) {
    (chain.weir.stat("b,s", "status"), chain.weir.stat("b,s", "check_status"))
}

#[test]
fn servers_are_checked_over_quic() {
    let origin = Origin::start(|head, _| {
        // HTTP/3 requires a host, which `option httpchk` does not have by default.
        let has_host = head.to_ascii_lowercase().contains("\r\nhost: ");
        let status = if head.contains("/bad") || !has_host { "500 No" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let cases = [
        ("", "", ("UP", "L6OK")),
        (" option httpchk GET /good", "", ("UP", "L7OK")),
        (" option httpchk GET /good", "check-proto quic", ("UP", "L7OK")),
        (" option httpchk GET /good", "check-proto quic port BEHIND", ("UP", "L7OK")),
        (" option httpchk GET /bad", "", ("DOWN", "L7STS")),
        (
            " option httpchk\n http-check send meth POST uri /good body abc hdr host localhost",
            "",
            ("UP", "L7OK"),
        ),
        ("", "port 1", ("DOWN", "L4CON")),
    ];
    for (back, more, (state, check)) in cases {
        let more = format!("check inter 200ms fall 1 rise 1 {more}");
        let chain = chain(&origin, Lines { back, more: &more, ..Lines::default() });
        let expected = (state.to_owned(), check.to_owned());
        assert!(eventually(|| status(&chain) == expected), "{back}{more}: {:?}", status(&chain));
        if state == "UP" {
            assert_eq!(client::get(chain.port, "/").expect("a response").status, 200, "{back}");
        }
    }
}

#[test]
fn failures_are_those_of_the_layer() {
    let origin = Origin::text("ok");
    let other = weir_tests::Authority::new();
    let untrusted = format!("ssl verify required ca-file {} sni str(localhost)", other.own().display());
    let lines = Lines { more: "check inter 200ms fall 1", ..Lines::default() };
    let chain = chain(&origin, Lines { server: Some(&untrusted), ..lines });
    let expected = ("DOWN".to_owned(), "L6RSP".to_owned());
    assert!(eventually(|| status(&chain) == expected), "{:?}", status(&chain));
}

#[test]
fn failed_checks_leave_no_handshake_in_progress() {
    // A server that never answers. Each check comes from another port.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    silent.set_read_timeout(Some(PATIENCE)).expect("it is positive");
    let (port, silent_port) = (free_port(), silent.local_addr().expect("it is bound").port());
    let text = format!(
        "global\n stats socket runtime level admin\n{DEFAULTS}frontend f\n bind 127.0.0.1:{port}\n default_backend b\n\
         backend b\n timeout check 100ms\n server s quic4@127.0.0.1:{silent_port} ssl verify none alpn h3 check inter 100ms\n"
    );
    let weir = Weir::start(&text, &[port]);
    let mut checks = std::collections::HashSet::new();
    while checks.len() < 5 {
        checks.insert(silent.recv_from(&mut [0; 2000]).expect("a check").1);
    }
    // At most the check that runs now.
    let in_progress = weir.stat("b,BACKEND", "quic_half_open_conn");
    assert!(["0", "1"].contains(&&*in_progress), "{in_progress}");
}
