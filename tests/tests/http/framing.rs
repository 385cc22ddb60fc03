//! The end of a message does not depend on rules: whatever they do to its fields, method or status, both sides see the same
//! messages on a persistent connection, and no byte of a body is read as another message.

use std::io::Write;
use std::sync::{Arc, Mutex};

use weir_tests::client::Client;
use weir_tests::request::Request;
use weir_tests::{Origin, Weir, free_port};

/// Edits of the fields that frame a message; `%side` is `http-request` or `http-response`.
const EDITS: &[&str] = &[
    "%side del-header content-length",
    "%side del-header content- -m beg",
    "%side del-header transfer-encoding",
    "%side del-header .* -m reg",
    "%side set-header content-length 0",
    "%side set-header content-length 5",
    "%side set-header content-length 9",
    "%side set-header content-length 99999999999999999999999",
    "%side set-header content-length abc",
    "%side set-header content-length %[str(),concat(5)]",
    "%side add-header content-length 5",
    "%side add-header content-length 9",
    "%side set-header transfer-encoding chunked",
    "%side add-header transfer-encoding chunked",
    "%side set-header transfer-encoding gzip",
    "%side add-header Transfer-Encoding gzip,chunked",
    "%side replace-header content-length .* 7",
    "%side replace-value transfer-encoding chunked identity",
    "%side replace-header transfer-encoding .* \\",
    "%side del-header content-length\n  %side set-header transfer-encoding chunked",
    "%side del-header transfer-encoding\n  %side set-header content-length 3",
];

/// Edits of method and status, which affect the body as well.
const OTHERS: &[&str] = &[
    "http-request set-method HEAD",
    "http-request set-method GET",
    "http-response set-status 204",
    "http-response set-status 304",
    "http-response set-status 200",
    "http-response set-status 101",
    "http-after-response set-header content-length 9",
    "http-after-response del-header content-length",
    "http-after-response set-header transfer-encoding chunked",
    "http-request return status 200 content-type text/plain string hello hdr content-length 9",
    "http-request return status 200 content-type text/plain string hello hdr transfer-encoding chunked",
    "http-request deny",
    "option http-drop-request-trailers\n  http-request del-header transfer-encoding",
    "option http-buffer-request\n  http-request del-header content-length",
];

const REQUESTS: &[&str] = &[
    "GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    // A server that misses the end would see another request.
    "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 33\r\n\r\nGET /stolen HTTP/1.1\r\nHost: a\r\n\r\n",
    "PUT /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n21\r\nGET /stolen HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n",
];

const RESPONSES: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 36\r\n\r\nHTTP/1.1 299 Stolen\r\nx: y\r\n\r\nabcdefg",
];

const STOLEN: &str = "GET /stolen HTTP/1.1\r\nHost: a\r\n\r\n";

/// Starts a server that answers every request for `/a` with these bytes, `/next` with a length, and records what it cannot parse.
fn server(answer: &'static str, wrong: Arc<Mutex<Vec<String>>>) -> Origin {
    Origin::raw(move |mut stream| {
        let mut unread = Vec::new();
        while let Some(request) = Request::read_head(&mut stream, &mut unread) {
            let note = |what: &str| wrong.lock().expect("no panic").push(format!("{what}: {}", request.head));
            if request.path != "/a" && request.path != "/next" {
                return note("no request of ours");
            }
            match request.read_body(&mut stream, &mut unread, usize::MAX) {
                None => return,
                Some(Err(error)) => return note(&error),
                Some(Ok(body)) if !matches!(&body[..], b"" | b"hello") && body != STOLEN.as_bytes() => {
                    return note(&format!("the body {}", body.escape_ascii()));
                }
                Some(Ok(_)) => {}
            }
            let (head, _) = answer.split_once("\r\n\r\n").expect("a head");
            let answer = match (&*request.path, &*request.method) {
                ("/next", "HEAD") => "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n".to_owned(),
                ("/next", _) => "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext".to_owned(),
                (_, "HEAD") => format!("{head}\r\n\r\n"),
                _ => answer.to_owned(),
            };
            if stream.write_all(answer.as_bytes()).is_err() || answer.contains("close") {
                return;
            }
        }
    })
}

/// Sends a request and then another one; returns the first error in the responses.
fn check(port: u16, request: &str) -> Result<(), String> {
    let mut client = Client::connect(port);
    // The next request is sent after the response: a body without an end lasts until the connection closes.
    client.send(request);
    let head_only = request.starts_with("HEAD");
    let first =
        if head_only { client.read_head() } else { client.response().map_or(String::new(), |r| r.head) };
    if first.is_empty() {
        return Ok(());
    }
    let known = ["200", "204", "304", "403", "500", "502"];
    if !first.starts_with("HTTP/1.1 ") || !known.contains(&first.get(9..12).unwrap_or_default()) {
        return Err(format!("answered {first:?}"));
    }
    client.send("GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let rest = String::from_utf8_lossy(&client.read_to_end()).into_owned();
    if rest.is_empty() || rest.starts_with("HTTP/1.1 ") && known.contains(&&rest[9..12]) {
        return Ok(());
    }
    Err(format!("then {rest:?}, after {first:?}"))
}

#[test]
fn rules_do_not_change_where_a_message_ends() {
    let edits = |side: &str| EDITS.iter().map(move |edit| edit.replace("%side", side)).collect::<Vec<_>>();
    let mut rules = [edits("http-request"), edits("http-response"), edits("http-after-response")].concat();
    rules.extend(OTHERS.iter().map(|rule| (*rule).to_owned()));
    for answer in RESPONSES {
        let wrong = Arc::new(Mutex::new(Vec::new()));
        let origin = server(answer, Arc::clone(&wrong));
        // One program for all rules, with a frontend for each.
        let ports: Vec<u16> = rules.iter().map(|_| free_port()).collect();
        let mut configuration =
            "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  \
             timeout server 20s\n"
                .to_owned();
        for (at, (rule, port)) in rules.iter().zip(&ports).enumerate() {
            configuration.push_str(&format!(
                "listen l{at}\n  bind 127.0.0.1:{port}\n  {rule}\n  server s 127.0.0.1:{}\n",
                origin.port()
            ));
        }
        let weir = Weir::start(&configuration, &ports);
        for (rule, port) in rules.iter().zip(&ports) {
            for request in REQUESTS {
                let seen = check(*port, request);
                assert_eq!(seen, Ok(()), "{rule} with {request:?} and {answer:?}: {}", weir.messages());
                let wrong = wrong.lock().expect("no panic");
                assert!(wrong.is_empty(), "{rule} with {request:?} and {answer:?}: {wrong:?}");
            }
        }
    }
}

/// Returns what the server gets for `request` when `rule` edits it: head and body, or the status that the client gets instead.
fn sent(rule: &str, request: &str) -> (String, String) {
    let seen = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&seen);
    let origin = Origin::raw(move |mut stream| {
        let mut unread = Vec::new();
        let Some(request) = Request::read_head(&mut stream, &mut unread) else { return };
        let body = request.read_body(&mut stream, &mut unread, usize::MAX);
        let body = String::from_utf8(body.and_then(Result::ok).unwrap_or_default()).unwrap_or_default();
        let framing = |line: &&str| {
            let line = line.to_ascii_lowercase();
            line.starts_with("content-length") || line.starts_with("transfer-encoding")
        };
        let lines: Vec<String> = request.head.lines().filter(framing).map(str::to_ascii_lowercase).collect();
        *noted.lock().expect("no panic") = Some((lines.join("|"), body));
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
             listen l\n  bind 127.0.0.1:{port}\n  {rule}\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    let status = Client::connect(port).send(request).response().map_or(0, |response| response.status);
    let seen = seen.lock().expect("no panic").take();
    seen.unwrap_or_else(|| (status.to_string(), String::new()))
}

/// As HAProxy 3.5 reframes requests; where it would send a wrong length, the response is 500 (docs/differences.md).
#[test]
fn requests_are_reframed_as_in_haproxy() {
    let (get, length, chunked) = (REQUESTS[0], REQUESTS[2], REQUESTS[4]);
    for (rule, request, lines, body) in [
        ("http-request del-header content-length", get, "", ""),
        ("http-request del-header content-length", length, "content-length: 0", ""),
        ("http-request del-header content- -m beg", length, "content-length: 0", ""),
        ("http-request del-header content-length", chunked, "transfer-encoding: chunked", "hello"),
        ("http-request del-header transfer-encoding", chunked, "content-length: 0", ""),
        ("http-request set-header content-length 5", length, "content-length: 5", "hello"),
        ("http-request set-header content-length 9", length, "500", ""),
        ("http-request set-header content-length 5", get, "500", ""),
        ("http-request add-header content-length 5", length, "content-length: 5", "hello"),
        ("http-request add-header content-length 9", length, "500", ""),
        ("http-request set-header content-length 9", chunked, "transfer-encoding: chunked", "hello"),
        ("http-request set-header content-length x", chunked, "500", ""),
        ("http-request set-header transfer-encoding chunked", get, "", ""),
        ("http-request set-header transfer-encoding chunked", length, "content-length: 5", "hello"),
        ("http-request add-header transfer-encoding chunked", chunked, "transfer-encoding: chunked", "hello"),
        ("http-request set-header transfer-encoding gzip", chunked, "transfer-encoding: chunked", "hello"),
        ("http-request set-method CONNECT", length, "500", ""),
    ] {
        assert_eq!(sent(rule, request), (lines.to_owned(), body.to_owned()), "{rule} with {request:?}");
    }
}
