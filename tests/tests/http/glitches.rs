//! Messages that are accepted although they violate the protocol: they are counted, and too many of them end a connection.

use weir_tests::Origin;
use weir_tests::client::Client;
use weir_tests::listen::{listen, local};

/// Returns the field `X-Glitches` of each response on one connection until one announces the end; `None` for no response.
fn glitches(port: u16, request: &str, most: usize) -> Vec<(Option<String>, bool)> {
    let mut client = Client::connect(port);
    let mut seen = Vec::new();
    while seen.len() < most {
        let response = client.send(request).response();
        let counts = response.as_ref().and_then(|response| response.header("x-glitches").map(str::to_owned));
        let ends = response.is_none_or(|response| response.header("connection") == Some("close"));
        seen.push((counts, ends));
        if ends {
            break;
        }
    }
    seen
}

#[test]
fn tolerated_glitches_are_counted_and_limited() {
    let origin = Origin::start(|head, _| {
        let odd = if head.contains("/odd") { "x[y: 1\r\n" } else { "" };
        format!("HTTP/1.1 200 OK\r\n{odd}Content-Length: 0\r\n\r\n").into_bytes()
    });
    let lines = "  option accept-unsafe-violations-in-http-request\n  option accept-unsafe-violations-in-http-response\n  \
                 http-reuse always\n  http-after-response set-header X-Glitches %[fc_glitches]/%[bc_glitches]\n";
    let of = |numbers: &[&str]| {
        let last = numbers.len() - 1;
        let row = |(at, text): (usize, &&str)| (Some((*text).to_owned()), at == last);
        numbers.iter().enumerate().map(row).collect::<Vec<_>>()
    };
    let odd_request = "GET / HTTP/1.1\r\nHost: h\r\nx[y: 1\r\nz]: 2\r\n\r\n";
    let odd_response = "GET /odd HTTP/1.1\r\nHost: h\r\n\r\n";
    let limits = "  nbthread 1\n  tune.h1.fe.glitches-threshold 4\n  tune.h1.be.glitches-threshold 4\n";
    let (weir, port) = listen(limits, lines, &local(&origin));
    assert_eq!(glitches(port, odd_request, 9), of(&["1/0", "2/0", "3/0"]), "three of four are nearly enough");
    let errors = weir.ask("show errors");
    assert!(errors.contains("invalid header name"), "{errors}");
    let before = origin.connections();
    let counts: Vec<String> =
        glitches(port, odd_response, 7).into_iter().filter_map(|(counts, _)| counts).collect();
    assert_eq!(
        counts,
        ["0/1", "0/2", "0/3", "0/1", "0/2", "0/3", "0/1"],
        "a server's connection ends at the same count"
    );
    assert_eq!(origin.connections() - before, 2);
    assert_eq!(
        weir.ask("show errors").matches("invalid header name").count(),
        2,
        "{}",
        weir.ask("show errors")
    );
    let (_weir, port) = listen("  nbthread 1\n  tune.h1.fe.glitches-threshold 1\n", lines, &local(&origin));
    assert_eq!(glitches(port, odd_request, 9), [(None, true)], "one is too many");
    let (_weir, port) = listen("  nbthread 1\n", lines, &local(&origin));
    assert_eq!(glitches(port, odd_request, 9).len(), 9, "there is no limit unless it is said");
    let busy = "  nbthread 1\n  tune.h1.fe.glitches-threshold 2\n  tune.glitches.kill.cpu-usage 100\n";
    let (_weir, port) = listen(busy, lines, &local(&origin));
    assert_eq!(glitches(port, odd_request, 9).len(), 9, "a thread with time to spare bears with it");
}
