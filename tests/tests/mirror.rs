//! Copies of requests for another backend (`http-request mirror`): what they are, and that the
//! request itself has nothing to do with them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_tests::client::{Client, exchange, get};
use weir_tests::versions::{TIMEOUTS, curl};
use weir_tests::{Origin, Weir, eventually, free_port};

/// What the second backend's server got: heads and bodies.
type Got = Arc<Mutex<Vec<(String, String)>>>;

fn second(answer: &'static str) -> (Origin, Got) {
    let got = Got::default();
    let own = got.clone();
    let origin = Origin::start(move |head, body| {
        let text = String::from_utf8_lossy(body).into_owned();
        own.lock().expect("no test failed in it").push((head.to_owned(), text));
        answer.as_bytes().to_vec()
    });
    (origin, got)
}

fn taken(got: &Got, count: usize) -> Vec<(String, String)> {
    let here = || got.lock().expect("no test failed in it").len() >= count;
    assert!(eventually(here), "{count} copies: {:?}", got.lock());
    std::mem::take(&mut *got.lock().expect("no test failed in it"))
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecond";

fn start(front: &str, back: &str, origin: u16, second: u16) -> (Weir, u16, u16) {
    let [port, h2] = [0; 2].map(|_| free_port());
    let text = format!(
        "global\n nbthread 1\n stats socket runtime level admin\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n bind 127.0.0.1:{h2} proto h2\n \
         {front}\n default_backend b\nbackend b\n server s 127.0.0.1:{origin}\nbackend next\n {back}\n server n 127.0.0.1:{second}\n"
    );
    (Weir::start(&text, &[port, h2]), port, h2)
}

/// One value of `show mirror next`.
fn count(weir: &Weir, column: &str) -> u64 {
    let table = weir.ask("show mirror next");
    let mut lines = table.lines();
    let titles = lines.next().unwrap_or_default().trim_start_matches("# ");
    let at = titles.split(' ').position(|title| title == column).expect("a column");
    let row = lines.next().expect("a row");
    row.split(' ').nth(at).expect("a value").parse().expect("a number")
}

#[test]
fn a_copy_has_head_and_body_as_rules_left_them_and_goes_by_the_rules_of_its_backend() {
    let ((origin, first), (second, got)) = (second(OK.replace("second", "first!").leak()), second(OK));
    let front = "option http-buffer-request\n http-request set-header x-rule set\n http-request mirror next\n http-request set-path /changed%[path]";
    let back = "http-request set-header x-next yes\n option forwardfor";
    let (weir, port, h2) = start(front, back, origin.port(), second.port());
    let before: u64 = weir.stat("f,FRONTEND", "req_tot").parse().expect("a number");
    let text =
        exchange(port, "POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody");
    assert_eq!(text.expect("a response").text(), "first!");
    let copies = taken(&got, 1);
    let (head, body) = &copies[0];
    assert!(head.starts_with("POST /changed/a"), "{head}");
    let lower = head.to_ascii_lowercase();
    for field in ["x-rule: set", "x-next: yes", "x-forwarded-for: 127.0.0.1", "content-length: 4", "host: h"]
    {
        assert!(lower.lines().any(|line| line == field), "{field}: {head}");
    }
    assert_eq!(body, "body");
    assert!(!first.lock().expect("no test failed in it")[0].0.contains("x-next"), "the request is another");
    // In chunks, and over HTTP/2.
    exchange(
        port,
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    assert_eq!(taken(&got, 1)[0].1, "abc");
    curl(&["--http2-prior-knowledge", "-d", "h2 body", &format!("http://127.0.0.1:{h2}/")]);
    assert_eq!(taken(&got, 1)[0].1, "h2 body");
    curl(&["--http2-prior-knowledge", &format!("http://127.0.0.1:{h2}/get")]);
    assert!(taken(&got, 1)[0].0.starts_with("GET /changed/get "));
    assert!(eventually(|| count(&weir, "answered") == 4), "{}", weir.ask("show mirror"));
    assert_eq!((count(&weir, "begun"), count(&weir, "failed")), (4, 0));
    // The request is counted once where it came in, the copy where it went.
    assert_eq!(
        (weir.stat("f,FRONTEND", "req_tot"), weir.stat("b,BACKEND", "req_tot")),
        ((before + 4).to_string(), "4".into())
    );
    assert_eq!(
        (weir.stat("next,BACKEND", "req_tot"), weir.stat("next,n", "hrsp_2xx")),
        ("4".into(), "4".into())
    );
    assert!(eventually(|| weir.stat("next,BACKEND", "scur") == "0"));
}

#[test]
fn connections_of_copies_are_kept_for_the_next() {
    let (origin, (second, got)) = (Origin::text("ok"), second(OK));
    let (weir, port, _) =
        start("http-request mirror next", "http-reuse always", origin.port(), second.port());
    for number in 1..=5 {
        assert_eq!(get(port, "/").expect("a response").text(), "ok");
        taken(&got, 1);
        assert!(
            eventually(|| count(&weir, "answered") == number && weir.stat("next,BACKEND", "scur") == "0")
        );
    }
    assert_eq!(second.connections(), 1);
}

#[test]
fn what_rules_refuse_is_not_copied_and_a_sample_is_a_share() {
    let (origin, (second, got)) = (Origin::text("ok"), second(OK));
    let front = "http-request mirror next if { path_beg /all }\n http-request mirror next sample 50% if { path_beg /half }\n http-request deny if { path_end no }";
    let (weir, port, _) = start(front, "", origin.port(), second.port());
    assert_eq!(get(port, "/all/no").expect("a response").status, 403);
    assert_eq!(get(port, "/other").expect("a response").status, 200);
    assert_eq!(get(port, "/all").expect("a response").status, 200);
    assert!(taken(&got, 1)[0].0.starts_with("GET /all "));
    let mut client = Client::connect(port);
    for _ in 0..200 {
        client.send("GET /half HTTP/1.1\r\nHost: h\r\n\r\n");
        client.response().expect("a response");
    }
    let begun = count(&weir, "begun") + count(&weir, "dropped") - 1;
    assert!((50..150).contains(&begun), "{begun} of 200");
}

#[test]
fn a_second_backend_that_hangs_or_fails_costs_the_request_nothing() {
    let silent = Origin::raw(|stream| {
        let mut stream = stream;
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let origin = Origin::text("ok");
    let (weir, port, _) = start("http-request mirror next", "", origin.port(), silent.port());
    let mut client = Client::connect(port);
    let begun = Instant::now();
    for _ in 0..200 {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.response().expect("a response").text(), "ok");
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "nobody waited for what takes 20 seconds");
    assert_eq!((count(&weir, "begun"), count(&weir, "dropped")), (128, 72), "{}", weir.ask("show mirror"));
    drop(weir);
    let (weir, port, _) = start("http-request mirror next", "retries 0", origin.port(), free_port());
    assert_eq!(get(port, "/").expect("a response").text(), "ok");
    assert!(eventually(|| count(&weir, "failed") == 1));
    let metrics = weir.ask("show mirror");
    assert!(metrics.contains("next 1 0 1 0 0"), "{metrics}");
}

#[test]
fn a_body_that_is_not_here_is_not_copied() {
    let (origin, (second, _got)) = (Origin::text("ok"), second(OK));
    let (weir, port, _) = start("http-request mirror next", "", origin.port(), second.port());
    let mut client = Client::connect(port);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
    assert!(eventually(|| count(&weir, "without_body") == 1));
    client.send("dy");
    assert_eq!(client.response().expect("a response").text(), "ok");
    assert_eq!(count(&weir, "begun"), 0);
}

#[test]
fn a_rule_names_a_backend_of_http_and_a_share() {
    let (port, file) = (free_port(), weir_tests::scratch("mirror").file("haproxy.cfg"));
    let text = format!(
        "{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n http-request mirror\n http-request mirror nexd\n http-request mirror raw\n \
         http-request mirror next sample 0\n http-request mirror next sample 101%\n http-request mirror next sample 100 if {{ path / }}\n \
         default_backend next\nbackend next\n server n 127.0.0.1:1\nbackend raw\n mode tcp\n server n 127.0.0.1:1\n"
    );
    std::fs::write(&file, text).expect("the temporary directory takes files");
    let verdict = weir_tests::check(&file, file.parent().expect("it stands somewhere"));
    let alerts = verdict.alerts();
    assert_eq!(alerts.len(), 5, "{alerts:#?}");
}
