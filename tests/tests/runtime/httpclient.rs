//! Requests sent by the process for an operator (`httpclient`).

use weir_tests::listen::TOP;
use weir_tests::{NameServer, Origin, Weir, Zone, free_port};

#[test]
fn httpclient_command_sends_requests() {
    let origin = Origin::start(|head, _| {
        let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
        let length = line.len();
        format!("HTTP/1.1 200 Fine\r\nX-Own: A b\r\nContent-Length: {length}\r\n\r\n{line}").into_bytes()
    });
    let names = NameServer::start(&[("named.test", Zone::Addresses(vec!["127.0.0.1"]))]);
    let text = format!(
        "{TOP}resolvers default\n  nameserver n 127.0.0.1:{}\nfrontend f\n  bind 127.0.0.1:{}\n  http-request deny\n",
        names.port(),
        free_port()
    );
    let weir = Weir::start(&text.replace("global\n", "global\n  httpclient.retries 0\n"), &[]);
    assert!(weir.ask("httpclient GET http://127.0.0.1/").contains("restricted to expert mode"));
    let send = |words: &str| weir.ask(&format!("expert-mode on; httpclient {words}"));
    for host in ["127.0.0.1", "named.test"] {
        let answer = send(&format!("GET http://{host}:{}/a?b", origin.port()));
        assert!(answer.contains("HTTP/1.1 200 Fine\nx-own: A b\r\n"), "{answer}");
        assert!(answer.contains("\r\n\r\nGET /a?b\n"), "{answer}");
    }
    let parts = send(&format!("--htx PUT http://127.0.0.1:{}/", origin.port()));
    assert!(parts.contains("[1] type=HTX_BLK_HDR       - size=8      - addr=17    \tx-own: A b"), "{parts}");
    let closed = free_port();
    assert!(send(&format!("GET http://127.0.0.1:{closed}/")).contains("HTTP/1.1 0 "));
    assert!(send("GET").contains("not enough parameters"));
    assert!(send("GET ldap://a/").contains("the URL does not start with http:// or https://"));
}
