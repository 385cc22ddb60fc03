//! Early data to servers (`allow-0rtt`).

use weir_tests::{Origin, client};

use super::{Lines, chain};

const FACTS: &str = " http-response set-header x-early \"%[ssl_fc_early_rcvd] %[ssl_fc_is_resumed]\"";

fn early(port: u16, request: &str) -> (u16, String) {
    let answer = client::exchange(port, request).expect("a response");
    (answer.status, answer.header("x-early").unwrap_or_default().to_owned())
}

#[test]
fn safe_requests_are_sent_early_on_resumed_connections() {
    let origin = Origin::text("ok");
    let lines = Lines {
        bind: "allow-0rtt",
        more: "allow-0rtt",
        back: " http-reuse never\n option http-buffer-request\n retry-on conn-failure 0rtt-rejected",
        behind: FACTS,
        ..Lines::default()
    };
    let chain = chain(&origin, lines);
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(early(chain.port, get), (200, "0 0".to_owned()), "there is no session yet");
    assert_eq!(early(chain.port, get), (200, "1 1".to_owned()));
    assert_eq!(early(chain.port, post), (200, "0 1".to_owned()), "not safe");
    assert_eq!(early(chain.port, get), (200, "1 1".to_owned()));
}

#[test]
fn requests_that_are_refused_early_are_repeated() {
    let origin = Origin::text("ok");
    let lines = Lines {
        bind: "allow-0rtt",
        more: "allow-0rtt",
        back: " http-reuse never\n option http-buffer-request\n retry-on conn-failure 0rtt-rejected 425",
        behind: " http-request return status 425 if { ssl_fc_has_early }\n http-response set-header x-early \
                 \"%[ssl_fc_early_rcvd] %[ssl_fc_is_resumed]\"",
        ..Lines::default()
    };
    let chain = chain(&origin, lines);
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(early(chain.port, get), (200, "0 0".to_owned()), "there is no session yet");
    assert_eq!(
        early(chain.port, get),
        (200, "1 1".to_owned()),
        "repeated on the connection after its handshake"
    );
}
