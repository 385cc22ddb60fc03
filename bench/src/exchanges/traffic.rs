//! Random traffic: requests and responses, their framing, pace and faults.

use fastrand::Rng;

use crate::exchanges::case::{Answer, Step, When};
use crate::exchanges::random::{pick, seldom};

/// Pauses are long enough to be distinguished from the delays of a busy machine. Pauses of clients are multiples of 150 ms. Pauses
/// of servers (one or two of them in a row) and the timeouts (375 ms, 625 ms, 1125 ms, 2025 ms) lie in between, so that no two
/// events happen at the same time.
const CLIENT_PAUSES: &[u64] = &[300, 600];
const SERVER_PAUSES: &[u64] = &[200, 500];

fn pause(random: &mut Rng, lengths: &[u64]) -> Step {
    Step::Pause(lengths[random.usize(..lengths.len())])
}

/// Sends bytes in one piece, or in two or three with pauses.
fn pieces(random: &mut Rng, bytes: &[u8], pauses: &[u64], steps: &mut Vec<Step>) {
    let mut rest = bytes;
    for _ in 0..[0, 0, 0, 0, 0, 1, 2][random.usize(..7)] {
        if rest.len() > 1 {
            let (one, other) = rest.split_at(random.usize(1..rest.len()));
            steps.push(Step::Send(one.to_vec()));
            steps.push(pause(random, pauses));
            rest = other;
        }
    }
    steps.push(Step::Send(rest.to_vec()));
}

fn payload(random: &mut Rng) -> Vec<u8> {
    match random.usize(..10) {
        0 => Vec::new(),
        1 => b"evil words".to_vec(),
        2 => vec![b'x'; 20_000],
        3 => vec![b'y'; 3_000],
        _ => (0..random.usize(1..40)).map(|_| random.alphanumeric() as u8).collect(),
    }
}

/// Encodes a body in chunks of odd sizes, sometimes with extensions and trailers.
fn chunked(random: &mut Rng, mut body: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    while !body.is_empty() {
        let (one, rest) = body.split_at(random.usize(1..=body.len()));
        let extension = if seldom(random, 8) { ";name=value" } else { "" };
        let zeros = if seldom(random, 10) { "00" } else { "" };
        coded.extend_from_slice(format!("{zeros}{:X}{extension}\r\n", one.len()).as_bytes());
        coded.extend_from_slice(one);
        coded.extend_from_slice(b"\r\n");
        body = rest;
    }
    coded.extend_from_slice(b"0\r\n");
    if seldom(random, 5) {
        coded.extend_from_slice(b"X-Trailer: yes\r\n");
    }
    coded.extend_from_slice(b"\r\n");
    coded
}

fn target(random: &mut Rng) -> String {
    let path = pick(random, &["/", "/a", "/a/b", "/b", "/a//b", "/c%20d", "/long/path/to/somewhere.html"]);
    let query = pick(random, &["", "", "", "?q=1", "?q=2&r=3", "?"]);
    let authority = if seldom(random, 12) { "http://abs.test" } else { "" };
    format!("{authority}{path}{query}")
}

/// Returns a valid request with its body.
fn request(random: &mut Rng, place: usize) -> Vec<u8> {
    if seldom(random, 25) {
        return b"CONNECT host.test:443 HTTP/1.1\r\nHost: host.test:443\r\n\r\n".to_vec();
    }
    let method =
        pick(random, &["GET", "GET", "GET", "GET", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS"]);
    let version = if seldom(random, 10) { "1.0" } else { "1.1" };
    let mut text = format!("{method} {} HTTP/{version}\r\n", target(random));
    if version == "1.1" || random.bool() {
        text.push_str("Host: a.test\r\n");
    }
    text.push_str(&format!("X-Client: {place}\r\n"));
    let extras = [
        "X-A: one\r\n",
        "X-B: 1\r\nX-B: 2\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Connection: X-A\r\n",
        "Cookie: SRV=v0\r\n",
        "Cookie: A=1; SRV=v1; B=2\r\n",
        "Cookie: SRV=gone\r\n",
        "Cookie: SRV=v0~own; A=2\r\n",
        "Cookie: A=3\r\n",
        "Connection: upgrade\r\nUpgrade: echo\r\n",
        "Accept: */*\r\nUser-Agent: diff\r\n",
        "X-Forwarded-For: 10.0.0.1\r\n",
        "Cache-Control: no-cache\r\n",
        "x_under: 1\r\n",
        "Content-Type: text/plain\r\n",
        "Keep-Alive: 300\r\nProxy-Connection: keep-alive\r\n",
        "TE: trailers\r\n",
        "Authorization: Basic dTpw\r\n",
    ];
    for _ in 0..random.usize(..3) {
        text.push_str(pick(random, &extras));
    }
    let has_body = matches!(method, "POST" | "PUT") || seldom(random, 20);
    let mut bytes;
    if !has_body {
        text.push_str("\r\n");
        bytes = text.into_bytes();
    } else {
        if seldom(random, 10) && version == "1.1" {
            text.push_str("Expect: 100-continue\r\n");
        }
        let body = payload(random);
        if random.usize(..3) == 0 && version == "1.1" {
            text.push_str("Transfer-Encoding: chunked\r\n\r\n");
            bytes = text.into_bytes();
            bytes.extend(chunked(random, &body));
        } else {
            text.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
            bytes = text.into_bytes();
            bytes.extend(body);
        }
    }
    if seldom(random, 60) {
        // An empty line before a request is skipped.
        bytes.splice(0..0, *b"\r\n");
    }
    bytes
}

/// Returns a request that is refused.
fn bad_request(random: &mut Rng) -> Vec<u8> {
    let bad: &[&[u8]] = &[
        b"garbage\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/3.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nbad header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n",
        b"GET a.test HTTP/1.1\r\nHost: a\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x00\x10",
    ];
    bad[random.usize(..bad.len())].to_vec()
}

pub(crate) fn client(random: &mut Rng, place: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    if place > 0 {
        steps.push(Step::Pause(150 * place as u64));
    }
    match random.usize(..20) {
        0 => {
            // Several requests at once.
            let count = random.usize(2..4);
            let all: Vec<u8> = (0..count).flat_map(|_| request(random, place)).collect();
            steps.push(Step::Send(all));
            steps.push(Step::Await(count));
        }
        1 => {
            steps.push(Step::Send(bad_request(random)));
            steps.push(Step::Await(1));
        }
        2 => {
            // Sends half a request, and then leaves in one of several ways.
            let bytes = request(random, place);
            let cut = random.usize(..bytes.len());
            steps.push(Step::Send(bytes[..cut].to_vec()));
            match random.usize(..4) {
                0 => steps.extend([pause(random, CLIENT_PAUSES), Step::Reset]),
                1 => steps.extend([pause(random, CLIENT_PAUSES), Step::Shut, Step::Await(1)]),
                2 => steps.extend([pause(random, CLIENT_PAUSES), Step::Close]),
                _ => steps.push(Step::Await(1)),
            }
        }
        3 => {
            // Leaves before the response.
            let bytes = request(random, place);
            pieces(random, &bytes, CLIENT_PAUSES, &mut steps);
            match random.usize(..3) {
                0 => steps.extend([pause(random, CLIENT_PAUSES), Step::Close]),
                1 => steps.extend([pause(random, CLIENT_PAUSES), Step::Reset]),
                _ => steps.extend([Step::Shut, Step::Await(1)]),
            }
        }
        4 if place == 0 => {
            // Stays silent, before or after a request.
            if random.bool() {
                steps.extend([Step::Send(request(random, place)), Step::Await(1)]);
            }
            steps.push(Step::Pause(600));
            steps.extend([Step::Send(request(random, place)), Step::Await(2)]);
        }
        5..=9 => {
            for turn in 1..=random.usize(2..4) {
                let bytes = request(random, place);
                pieces(random, &bytes, CLIENT_PAUSES, &mut steps);
                steps.push(Step::Await(turn));
            }
        }
        _ => {
            let bytes = request(random, place);
            pieces(random, &bytes, CLIENT_PAUSES, &mut steps);
            steps.push(Step::Await(1));
        }
    }
    steps
}

/// Returns a valid response.
fn response(random: &mut Rng) -> Vec<u8> {
    let status = pick(
        random,
        &[
            "200 OK",
            "200 OK",
            "200 OK",
            "200 OK",
            "200 OK",
            "200 OK",
            "204 No Content",
            "304 Not Modified",
            "301 Moved",
            "404 Not Found",
            "500 Oops",
            "503 Busy",
            "401 Who",
            "206 Part",
            "101 Switching Protocols",
            "200",
        ],
    );
    let version = if seldom(random, 10) { "1.0" } else { "1.1" };
    let mut text = String::new();
    if seldom(random, 12) {
        text.push_str(pick(
            random,
            &[
                "HTTP/1.1 100 Continue\r\n\r\n",
                "HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n",
                "HTTP/1.1 102 Processing\r\n\r\n",
            ],
        ));
    }
    text.push_str(&format!("HTTP/{version} {status}\r\n"));
    let extras = [
        "X-R: one\r\n",
        "X-R: 1\r\nX-R: 2\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Set-Cookie: SRV=mine; path=/\r\n",
        "Set-Cookie: A=1\r\nSet-Cookie: B=2; HttpOnly\r\n",
        "Cache-Control: private\r\n",
        "Cache-Control: max-age=10\r\n",
        "Content-Type: text/html\r\n",
        "Location: http://a.test/x\r\n",
        "Server: origin\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "Expires: 0\r\nETag: \"x\"\r\n",
        "Keep-Alive: timeout=5\r\n",
        "Trailer: X-Trailer\r\n",
    ];
    for _ in 0..random.usize(..3) {
        text.push_str(pick(random, &extras));
    }
    if status.starts_with("101") {
        text.push_str("Connection: upgrade\r\nUpgrade: echo\r\n\r\nafter");
        return text.into_bytes();
    }
    if status.starts_with("204") || status.starts_with("304") {
        text.push_str("\r\n");
        return text.into_bytes();
    }
    let body = payload(random);
    let mut bytes;
    match random.usize(..6) {
        0 | 1 if version == "1.1" => {
            text.push_str("Transfer-Encoding: chunked\r\n\r\n");
            bytes = text.into_bytes();
            bytes.extend(chunked(random, &body));
        }
        2 => {
            text.push_str("\r\n");
            bytes = text.into_bytes();
            bytes.extend(body);
        }
        _ => {
            text.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
            bytes = text.into_bytes();
            bytes.extend(body);
        }
    }
    bytes
}

fn bad_response(random: &mut Rng) -> Vec<u8> {
    let bad: &[&[u8]] = &[
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nbad header: x\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    ];
    bad[random.usize(..bad.len())].to_vec()
}

/// Returns whether a response ends only with its connection.
fn ends_by_close(bytes: &[u8]) -> bool {
    let head = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes, |at| &bytes[..at]);
    let text = String::from_utf8_lossy(head).to_lowercase();
    !(text.contains("content-length")
        || text.contains("chunked")
        || text.contains(" 204 ")
        || text.contains(" 304 "))
        || text.contains("connection: close")
        || text.contains("http/1.0")
}

fn answer(random: &mut Rng) -> Answer {
    let mut when = When::Body;
    let mut steps = Vec::new();
    match random.usize(..24) {
        0 => steps.push(Step::Close),
        1 => steps.push(Step::Reset),
        2 => steps.extend([pause(random, SERVER_PAUSES), Step::Close]),
        3 => steps.push(Step::Pause(1730)),
        4 => steps.extend([Step::Send(bad_response(random)), Step::Pause(220), Step::Close]),
        5 => {
            let bytes = response(random);
            let cut = random.usize(..bytes.len());
            steps.push(Step::Send(bytes[..cut].to_vec()));
            steps.push(pause(random, SERVER_PAUSES));
            steps.push(if random.bool() { Step::Close } else { Step::Reset });
        }
        6 => {
            when = When::Head;
            steps.push(Step::Send(response(random)));
        }
        7 => {
            steps.push(pause(random, SERVER_PAUSES));
            steps.push(Step::Send(response(random)));
        }
        8 => {
            let bytes = response(random);
            steps.push(Step::Send(bytes));
            steps.push(if random.bool() { Step::Shut } else { Step::Close });
        }
        _ => {
            let bytes = response(random);
            pieces(random, &bytes, SERVER_PAUSES, &mut steps);
            if ends_by_close(&bytes) {
                steps.push(Step::Close);
            }
        }
    }
    Answer { when, steps }
}

pub(crate) fn answers(random: &mut Rng) -> Vec<Answer> {
    (0..random.usize(1..4)).map(|_| answer(random)).collect()
}
