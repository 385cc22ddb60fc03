//! Actions of `http-request`, `http-response` and `http-after-response` rules: each changes the message that the server or the
//! client receives.

use weir_tests::client::Client;
use weir_tests::listen::DEFAULTS;
use weir_tests::log_scene::scene;
use weir_tests::{Origin, Scratch, Weir, client, free_port, scratch};

/// Rules of one request, and the expected parts of the forwarded request.
type Row = (&'static [&'static str], &'static [&'static str]);

/// `FILE` stands for a folder with a map and a list. Each rule has the condition of its row.
#[rustfmt::skip]
const REQUESTS: &[Row] = &[
    (&["http-request add-headers-bin bin(05782d6e657701310000)"], &["x-new: 1"]),
    (&["http-request set-headers-bin bin(06782d6e616d6501310000) prefix x-"], &["x-name: 1"]),
    (&["http-request set-var(txn.bin) req.hdrs_bin", "http-request del-headers-bin var(txn.bin) -m str", "http-request set-header x-left %[req.hdr_cnt(x-name)]"], &["x-left: 0"]),
    (&["http-request add-acl(FILE/list) %[str(new)]", "http-request set-header x-in yes if { str(new) -m str -f FILE/list }"], &["x-in: yes"]),
    (&["http-request del-acl(FILE/list) %[str(old)]", "http-request set-header x-in yes if { str(old) -m str -f FILE/list }"], &[]),
    (&["http-request set-map(FILE/map) %[str(k)] %[str(changed)]", "http-request set-header x-map %[str(k),map(FILE/map)]"], &["x-map: changed"]),
    (&["http-request del-map(FILE/map) %[str(gone)]", "http-request set-header x-map %[str(gone),map(FILE/map,none)]"], &["x-map: none"]),
    (&["http-request replace-header x-name a(.*) z\\1"], &["x-name: z,b"]),
    (&["http-request replace-value x-name b c"], &["x-name: a,c"]),
    (&["http-request replace-uri ^/(.*) /uri/\\1"], &["GET /uri/path?q=1 HTTP/1.1"]),
    (&["http-request replace-pathq ^/(.*) /pathq/\\1"], &["GET /pathq/path?q=1 HTTP/1.1"]),
    (&["http-request set-uri /other?x"], &["GET /other?x HTTP/1.1"]),
    (&["http-request set-pathq /other?y"], &["GET /other?y HTTP/1.1"]),
    (&["http-request set-query z=2"], &["GET /path?z=2 HTTP/1.1"]),
    (&["http-request set-src-port int(1001)", "http-request set-header x-port %[src_port]"], &["x-port: 1001"]),
    (&["http-request set-dst-port int(1002)", "http-request set-header x-port %[dst_port]"], &["x-port: 1002"]),
    (&["http-request set-timeout server 30s", "http-request set-header x-timeout %[cur_server_timeout]"], &["x-timeout: 30000"]),
    (&["http-request set-var(txn.x) int(1)", "http-request unset-var(txn.x)", "http-request set-header x-var <%[var(txn.x)]>"], &["x-var: <>"]),
    (&["http-request wait-for-handshake", "http-request set-header x-done yes"], &["x-done: yes"]),
    (&["http-request set-fc-mark 1", "http-request set-mark 1", "http-request set-fc-tos 16", "http-request set-tos 16", "http-request set-bc-tos 16", "http-request set-header x-done yes"], &["x-done: yes"]),
    (&["http-request pause 20ms", "http-request set-header x-done yes"], &["x-done: yes"]),
    // In header fields, `+Q` quotes only aliases.
    (&["http-request set-header x-text %{+Q}[str(a)]%{+Q}[int(7)]"], &["x-text: a7"]),
    (&["http-request set-header x-text %{+Q}ft"], &["x-text: \"l\""]),
    (&["http-request set-var-fmt(txn.x) %{+Q}[str(a)]", "http-request set-header x-text %[var(txn.x)]"], &["x-text: \"a\""]),
];

/// Rules of one response, and the expected fields at the client.
#[rustfmt::skip]
const RESPONSES: &[Row] = &[
    (&["http-response add-headers-bin bin(05782d6e657701310000)"], &["x-new: 1"]),
    (&["http-response set-headers-bin bin(06782d6e616d6501310000) prefix x-"], &["x-name: 1"]),
    (&["http-response set-var(txn.bin) res.hdrs_bin", "http-response del-headers-bin var(txn.bin) -m str", "http-response set-header x-left %[res.hdr_cnt(x-name)]"], &["x-left: 0"]),
    (&["http-response add-acl(FILE/list) %[str(from-response)]", "http-response set-header x-in yes if { str(from-response) -m str -f FILE/list }"], &["x-in: yes"]),
    (&["http-response del-acl(FILE/list) %[str(old)]", "http-response set-header x-done yes"], &["x-done: yes"]),
    (&["http-response set-map(FILE/map) %[str(r)] %[str(changed)]", "http-response set-header x-map %[str(r),map(FILE/map)]"], &["x-map: changed"]),
    (&["http-response del-map(FILE/map) %[str(gone)]", "http-response set-header x-map %[str(gone),map(FILE/map,none)]"], &["x-map: none"]),
    (&["http-response replace-value x-name b c"], &["x-name: a,c"]),
    (&["http-response set-var(txn.x) int(1)", "http-response set-var-fmt(txn.y) <%[var(txn.x)]>", "http-response unset-var(txn.x)", "http-response set-header x-var %[var(txn.x)]%[var(txn.y)]"], &["x-var: <1>"]),
    (&["http-response redirect location /elsewhere"], &["location: /elsewhere"]),
    (&["http-response pause 20ms", "http-response set-header x-done yes"], &["x-done: yes"]),
    (&["http-response wait-for-body time 10s", "http-response set-header x-length %[res.body_len]"], &["x-length: 4"]),
    (&["http-response set-timeout client 30s", "http-response set-header x-timeout %[cur_client_timeout]"], &["x-timeout: 30000"]),
    (&["http-response set-fc-mark 1", "http-response set-mark 1", "http-response set-fc-tos 16", "http-response set-tos 16", "http-response set-header x-done yes"], &["x-done: yes"]),
    (&["http-response strict-mode off", "http-response set-log-level info", "http-response allow"], &["x-name: a,b"]),
    (&["http-after-response add-header x-more one", "http-after-response add-header x-more two"], &["x-more: one", "x-more: two"]),
    (&["http-after-response set-headers-bin bin(06782d6e616d6501310000)", "http-after-response add-headers-bin bin(05782d6e657701310000)"], &["x-name: 1", "x-new: 1"]),
    (&["http-after-response set-var(txn.bin) res.hdrs_bin", "http-after-response del-headers-bin var(txn.bin) -m str", "http-after-response set-header x-left %[res.hdr_cnt(x-name)]"], &["x-left: 0"]),
    (&["http-after-response replace-header x-name a(.*) z\\1"], &["x-name: z,b"]),
    (&["http-after-response replace-value x-name b c"], &["x-name: a,c"]),
    (&["http-after-response set-map(FILE/map) %[str(a)] %[str(changed)]", "http-after-response set-header x-map %[str(a),map(FILE/map)]"], &["x-map: changed"]),
    (&["http-after-response del-map(FILE/map) %[str(gone)]", "http-after-response set-header x-map %[str(gone),map(FILE/map,none)]"], &["x-map: none"]),
    (&["http-after-response del-acl(FILE/list) %[str(old)]", "http-after-response set-header x-done yes"], &["x-done: yes"]),
    (&["http-after-response set-var(txn.x) int(1)", "http-after-response set-var-fmt(txn.y) <%[var(txn.x)]>", "http-after-response unset-var(txn.x)", "http-after-response set-header x-var %[var(txn.x)]%[var(txn.y)]"], &["x-var: <1>"]),
    (&["http-after-response strict-mode off", "http-after-response set-log-level info", "http-after-response allow"], &["x-name: a,b"]),
];

/// Creates a folder with the files that rules change.
fn files() -> Scratch {
    let folder = scratch("actions");
    std::fs::write(folder.join("list"), "old\n").expect("the folder takes files");
    std::fs::write(folder.join("map"), "k v\ngone here\n").expect("the folder takes files");
    folder
}

/// Returns the lines of all rows, each with the condition of its row, for the files in a folder.
fn lines(rows: &[Row], folder: &Scratch) -> String {
    let mut out = String::new();
    for (row, (rules, _)) in rows.iter().enumerate() {
        for rule in *rules {
            let rule = rule.replace("FILE", &folder.to_string());
            let also = if rule.contains(" if ") { "" } else { " if" };
            out.push_str(&format!("  {rule}{also} {{ var(txn.row) -m str {row} }}\n"));
        }
    }
    out
}

fn start(rules: &str, origin: &Origin) -> (Weir, u16) {
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n  stats socket runtime level admin\n{DEFAULTS}listen l\n  bind 127.0.0.1:{port}\n  \
             http-request set-var(txn.row) req.hdr(x-row)\n{rules}  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    (weir, port)
}

fn request(row: usize) -> String {
    format!("GET /path?q=1 HTTP/1.1\r\nhost: l\r\nx-row: {row}\r\nx-name: a,b\r\n\r\n")
}

#[test]
fn request_rules_change_the_forwarded_request() {
    let origin = Origin::echo();
    let folder = files();
    let (weir, port) = start(&lines(REQUESTS, &folder), &origin);
    for (row, (rules, expected)) in REQUESTS.iter().enumerate() {
        let response = client::exchange(port, &request(row)).expect("a response");
        let seen = response.text();
        assert_eq!(response.status, 200, "{rules:?}: {}", weir.messages());
        for line in *expected {
            assert!(seen.lines().any(|own| own.trim_end() == *line), "{rules:?}: {line} is not in\n{seen}");
        }
        assert!(!expected.is_empty() || !seen.contains("x-in:"), "{rules:?}: {seen}");
    }
}

#[test]
fn response_rules_change_the_forwarded_response() {
    let origin =
        Origin::start(|_, _| b"HTTP/1.1 200 OK\r\nx-name: a,b\r\ncontent-length: 4\r\n\r\nbody".to_vec());
    let folder = files();
    let (weir, port) = start(&lines(RESPONSES, &folder), &origin);
    for (row, (rules, expected)) in RESPONSES.iter().enumerate() {
        let head = Client::connect(port).send(request(row)).read_head().to_ascii_lowercase();
        for line in *expected {
            assert!(
                head.lines().any(|own| own.trim_end() == *line),
                "{rules:?}: {line} is not in\n{head}{}",
                weir.messages()
            );
        }
    }
}

#[test]
fn early_hints_precede_the_response() {
    let origin = Origin::text("ok");
    let (_weir, port) = start("  http-request early-hint link </style.css>;rel=preload\n", &origin);
    let head = Client::connect(port).send(request(0)).read_head();
    assert!(head.starts_with("HTTP/1.1 103 "), "{head}");
}

#[test]
fn early_hints_have_no_framing_headers() {
    let origin = Origin::text("ok");
    for name in ["content-length", "Transfer-Encoding"] {
        let (_weir, port) = start(&format!("  http-request early-hint {name} 5\n"), &origin);
        let head = Client::connect(port).send(request(0)).read_head();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
}

#[test]
fn response_rules_fill_capture_slots() {
    let origin = Origin::text("ok");
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "{DEFAULTS}listen l\n  bind 127.0.0.1:{port}\n  declare capture response len 8\n  \
             declare capture response len 8\n  http-response capture str(one) id 0\n  \
             http-after-response capture str(two) id 1\n  \
             http-after-response set-header x-kept %[capture.res.hdr(0)]%[capture.res.hdr(1)]\n  \
             server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    let response = client::get(port, "/").expect("a response");
    assert_eq!(response.header("x-kept"), Some("onetwo"));
}

/// The id is generated on first use, here by a rule, and does not change afterwards.
#[test]
fn rules_can_use_the_unique_id() {
    let origin = Origin::echo();
    let port = free_port();
    let text = format!(
        "{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  unique-id-format %[var(txn.x)]-%[rand]%[unique-id]\n  \
         unique-id-header x-id\n  http-request set-var(txn.x) str(before)\n  http-request set-header x-fetch %[unique-id]\n  \
         http-request set-header x-alias %ID\n  http-request set-var(txn.x) str(after)\n  \
         http-response set-header x-late %[unique-id]\n  default_backend b\nbackend b\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    let mut ids = Vec::new();
    let mut client = Client::connect(port);
    for _ in 0..2 {
        let response = client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").response().expect("an answer");
        let id = response.header("x-late").expect("the id").to_owned();
        assert!(id.starts_with("before-") && id.len() > 7, "{id}");
        let seen = response.text().to_ascii_lowercase();
        for name in ["x-fetch", "x-alias", "x-id"] {
            assert!(seen.contains(&format!("{name}: {id}")), "{name}: {id}\n{seen}");
        }
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn malformed_takes_precedence_over_too_large() {
    let origin = Origin::text("ok");
    let scene = scene("", "", "", &origin, "");
    for (host, status) in [("a", "413"), ("b", "400")] {
        let request = format!("GET http://a/ HTTP/1.0\r\nHost: {host}\r\nContent-Length: 2\r\n\r\nhi");
        assert!(scene.talk(&request).starts_with(&format!("HTTP/1.1 {status} ")), "{host}");
    }
}

#[test]
fn replaced_values_include_surrounding_blanks() {
    let origin = Origin::echo();
    let scene = scene("", "http-request replace-value x-list ([a-z]+) <\\1>", "", &origin, "");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX-List: a , 2 ,  b,c\r\n\r\n";
    let answer = Client::connect(scene.port).send(request).response().expect("an answer");
    assert!(answer.text().contains("X-List: <a>, 2 ,<b>,<c>"), "{}", answer.text());
}
