//! Health checks over QUIC.

use weir_tests::{Origin, client, eventually};

use super::{Lines, chain};

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
