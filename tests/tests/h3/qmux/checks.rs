//! Health checks over QMux.

use weir_tests::{Authority, Origin, Weir, eventually, free_port};

use super::super::DEFAULTS;

#[test]
fn servers_are_checked_over_qmux() {
    let origin = Origin::start(|head, _| {
        let status = if head.contains("/bad") { "500 No" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]).display().to_string();
    let post = " option httpchk\n http-check send meth POST uri /good body abc hdr host localhost";
    let step = " option httpchk\n http-check connect proto qmux\n http-check send uri /good";
    // Lines of the backend, parameters of the server and of the listener, and the results.
    let cases = [
        ("", "proto qmux", "proto qmux", ("UP", "L4OK")),
        (" option httpchk GET /good", "proto qmux", "proto qmux", ("UP", "L7OK")),
        (" option httpchk GET /bad", "proto qmux", "proto qmux", ("DOWN", "L7STS")),
        (" option httpchk GET /good", "check-proto qmux", "proto qmux", ("UP", "L7OK")),
        (post, "proto qmux", "proto qmux", ("UP", "L7OK")),
        (step, "", "proto qmux", ("UP", "L7OK")),
        (" option httpchk GET /good", "ssl verify none alpn h3", "ssl crt OWN alpn h3", ("UP", "L7OK")),
        (" option httpchk GET /good", "ssl verify none proto qmux", "ssl crt OWN alpn h3", ("UP", "L7OK")),
        (" option httpchk GET /good", "proto qmux", "", ("DOWN", "L4CON")),
        (" option httpchk GET /good", "proto qmux send-proxy", "proto qmux accept-proxy", ("UP", "L7OK")),
    ];
    for (back, server, bind, (state, check)) in cases {
        let behind = free_port();
        let bind = bind.replace("OWN", &certificate);
        let text = format!(
            "global\n stats socket runtime level admin\n expose-experimental-directives\n{DEFAULTS}\
             backend b\n{back}\n server s 127.0.0.1:{behind} {server} check inter 200ms fall 1 rise 1\n\
             frontend behind\n bind 127.0.0.1:{behind} {bind}\n default_backend o\n\
             backend o\n server o 127.0.0.1:{}\n",
            origin.port()
        );
        let weir = Weir::start(&text, &[behind]);
        let seen = || (weir.stat("b,s", "status"), weir.stat("b,s", "check_status"));
        let expected = (state.to_owned(), check.to_owned());
        assert!(eventually(|| seen() == expected), "{back} {server} {bind}: {:?}", seen());
    }
}
