//! Malformed and ambiguous HTTP/1 messages, sent byte by byte through Weir and through the machine's `haproxy`, if it is installed.
//!
//! For requests three things are compared: the status, whether the connection was closed, and what reached the server.
//! [`DIFFERENCES`] lists where the two differ and why; an entry that no longer differs fails the test too. For responses the
//! requirement is absolute: a truncated or invalid response never looks complete to the client.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_tests::{Haproxy, Origin, PATIENCE, Weir, free_port};

/// Requests: a name, and the bytes. Each target contains `/name`, which identifies it at the server.
#[rustfmt::skip]
const REQUESTS: &[(&str, &str)] = &[
    // Line ends.
    ("lf_everywhere",         "GET @ HTTP/1.1\nHost: a\n\n"),
    ("lf_after_start_line",   "GET @ HTTP/1.1\nHost: a\r\n\r\n"),
    ("lf_after_field",        "GET @ HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"),
    ("lf_ends_head",          "GET @ HTTP/1.1\r\nHost: a\r\n\n"),
    ("lf_first",              "\nGET @ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("crlf_first",            "\r\nGET @ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("crlf_twice_first",      "\r\n\r\nGET @ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("cr_in_value",           "GET @ HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"),
    ("cr_cr_lf",              "GET @ HTTP/1.1\r\nHost: a\r\r\n\r\n"),
    ("cr_in_start_line",      "GET @\r HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("cr_in_name",            "GET @ HTTP/1.1\r\nHost: a\r\nX\rY: b\r\n\r\n"),
    ("lf_smuggles_field",     "GET @ HTTP/1.1\r\nHost: a\r\nX: y\nContent-Length: 5\r\n\r\n"),
    // The start line.
    ("space_first",           " GET @ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("two_spaces",            "GET  @  HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("tab_for_space",         "GET\t@\tHTTP/1.1\r\nHost: a\r\n\r\n"),
    ("space_last",            "GET @ HTTP/1.1 \r\nHost: a\r\n\r\n"),
    ("no_version",            "GET @\r\n\r\n"),
    ("no_target",             "GET HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("lower_version",         "GET @ http/1.1\r\nHost: a\r\n\r\n"),
    ("version_1_2",           "GET @ HTTP/1.2\r\nHost: a\r\n\r\n"),
    ("version_2_0",           "GET @ HTTP/2.0\r\nHost: a\r\n\r\n"),
    ("version_0_9",           "GET @ HTTP/0.9\r\nHost: a\r\n\r\n"),
    ("version_1",             "GET @ HTTP/1\r\nHost: a\r\n\r\n"),
    ("version_1_10",          "GET @ HTTP/1.10\r\nHost: a\r\n\r\n"),
    ("version_other",         "GET @ RTSP/1.0\r\nHost: a\r\n\r\n"),
    ("lower_method",          "get @ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("unknown_method",        "BREW @ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("method_not_token",      "G(T @ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("method_nul",            "G\0T @ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target_control",        "GET @\u{1} HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target_del",            "GET @\u{7f} HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target_utf8",           "GET @é HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target_nul",            "GET @\0 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target_fragment",       "GET @#x HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target_space",          "GET @ b HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target_relative",       "GET x@ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target_dots",           "GET @/../../x HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target_bad_percent",    "GET @%zz HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("asterisk_get",          "GET * HTTP/1.1\r\nHost: a\r\nX: @\r\n\r\n"),
    // Fields.
    ("space_before_colon",    "GET @ HTTP/1.1\r\nHost : a\r\n\r\n"),
    ("tab_before_colon",      "GET @ HTTP/1.1\r\nHost: a\r\nX\t: b\r\n\r\n"),
    ("no_colon",              "GET @ HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"),
    ("empty_name",            "GET @ HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n"),
    ("name_not_token",        "GET @ HTTP/1.1\r\nHost: a\r\nX(Y: b\r\n\r\n"),
    ("name_nul",              "GET @ HTTP/1.1\r\nHost: a\r\nX\0Y: b\r\n\r\n"),
    ("name_utf8",             "GET @ HTTP/1.1\r\nHost: a\r\nXé: b\r\n\r\n"),
    ("value_nul",             "GET @ HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"),
    ("value_control",         "GET @ HTTP/1.1\r\nHost: a\r\nX: a\u{1}b\r\n\r\n"),
    ("value_empty",           "GET @ HTTP/1.1\r\nHost: a\r\nX:\r\n\r\n"),
    ("first_field_folded",    "GET @ HTTP/1.1\r\n Host: a\r\n\r\n"),
    ("folded",                "GET @ HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),
    ("folded_by_tab",         "GET @ HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\n\r\n"),
    ("folded_length",         "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n 5\r\n\r\nhello"),
    ("no_host",               "GET @ HTTP/1.1\r\n\r\n"),
    ("two_hosts",             "GET @ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    ("same_host_twice",       "GET @ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
    ("host_contradicts",      "GET http://b@ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("host_space",             "GET @ HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ("host_list",              "GET @ HTTP/1.1\r\nHost: a,b\r\n\r\n"),
    ("host_path",              "GET @ HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    ("host_user",              "GET @ HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    ("host_bracket",           "GET @ HTTP/1.1\r\nHost: [::1\r\n\r\n"),
    ("host_v6",                "GET @ HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
    ("host_odd",               "GET @ HTTP/1.1\r\nHost: a_b;c\r\n\r\n"),
    // Lengths.
    ("length_empty",          "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"),
    ("length_negative",       "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello"),
    ("length_plus",           "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello"),
    ("length_hex",            "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello"),
    ("length_words",          "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: five\r\n\r\nhello"),
    ("length_space_inside",   "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\nhello"),
    ("length_overflow",       "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\nhello"),
    ("length_leading_zero",   "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: 05\r\n\r\nhello"),
    ("length_list_equal",     "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello"),
    ("length_list_differs",   "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\nhello"),
    ("length_list_open",      "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: 5,\r\n\r\nhello"),
    ("length_twice_equal",    "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    ("length_twice_differs",  "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
    ("length_on_get",         "GET @ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"),
    ("length_on_old_get",     "GET @ HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"),
    // Codings.
    ("both_lengths",          "POST @ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ("both_lengths_reversed", "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ("coding_unknown",        "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: cow\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ("coding_identity",       "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello"),
    ("coding_gzip_chunked",   "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ("coding_chunked_gzip",   "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ("coding_twice",          "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ("coding_quoted",         "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ("coding_xchunked",       "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ("coding_parameter",      "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ("coding_empty",          "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\nContent-Length: 5\r\n\r\nhello"),
    ("coding_case",           "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ("coding_space_colon",    "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\nhello"),
    ("coding_vertical_tab",   "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \u{b}chunked\r\nContent-Length: 5\r\n\r\nhello"),
    ("coding_old_version",    "POST @ HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    // Chunks.
    ("chunk_empty_size",      "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n"),
    ("chunk_not_hex",         "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5g\r\nhello\r\n0\r\n\r\n"),
    ("chunk_0x",              "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n"),
    ("chunk_negative",        "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n"),
    ("chunk_space_first",     "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n"),
    ("chunk_overflow",        "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n"),
    ("chunk_lf",              "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n"),
    ("chunk_data_lf",         "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n"),
    ("chunk_too_long",        "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n"),
    ("chunk_cr_only",         "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\rhello\r\n0\r\n\r\n"),
    ("chunk_extension",       "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n"),
    ("chunk_extension_lf",    "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n"),
    ("chunk_leading_zeros",   "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0005\r\nhello\r\n0\r\n\r\n"),
    ("chunk_trailers",        "POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n"),
];

/// The differences between Weir and HAProxy: the request, Weir's result, and the reason.
#[rustfmt::skip]
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("lf_everywhere",       "400 closed []", LF),
    ("lf_after_start_line", "400 closed []", LF),
    ("lf_after_field",      "400 closed []", LF),
    ("lf_ends_head",        "400 closed []", LF),
    ("lf_first",            "400 closed []", LF),
    ("lf_smuggles_field",   "400 closed []", LF),
    ("folded",              "400 closed []", FOLD),
    ("folded_by_tab",       "400 closed []", FOLD),
    ("folded_length",       "400 closed []", FOLD),
];

/// The differences between Weir and HAProxy 2.6 where HAProxy 3.5 agrees with Weir. How versions in between behave is not known.
#[rustfmt::skip]
const OLD_DIFFERENCES: &[(&str, &str, &str)] = &[
    ("asterisk_get",        "400 closed []", ASTERISK),
    ("value_nul",           "400 closed []", NUL),
    ("host_space",           "400 closed []", HOST),
    ("host_list",            "400 closed []", HOST),
    ("host_path",            "400 closed []", HOST),
    ("host_user",            "400 closed []", HOST),
    ("host_bracket",         "400 closed []", HOST),
    ("chunk_lf",            "400 closed []", CHUNK),
    ("chunk_data_lf",       "400 closed []", CHUNK),
];

const LF: &str = "a lone LF ends a line for some readers and is part of a value for others: what hides a field from one of them is refused, \
    as RFC 9112 section 2.2 leaves open; `option accept-unsafe-violations-in-http-request` brings it back";
const FOLD: &str = "RFC 9112 section 5.2 asks to refuse folded lines or to unfold them, and readers behind disagree on what was folded";
const NUL: &str = "RFC 9110 section 5.5 calls NUL in a value dangerous";
const HOST: &str = "RFC 9110 section 7.2 has a name or an address and a port there: readers behind disagree on which part of anything else is the host";
const CHUNK: &str = "RFC 9112 section 7.1 knows CRLF only within chunked bodies, and lone LFs there were used to smuggle requests";
const ASTERISK: &str = "RFC 9112 section 3.2.4 keeps the asterisk for OPTIONS";

/// Responses that must not look complete: a name and the bytes, after which the server closes.
#[rustfmt::skip]
const RESPONSES: &[(&str, &str)] = &[
    ("nothing",            ""),
    ("no_head",            "hello\r\n\r\n"),
    ("head_cut",           "HTTP/1.1 200 OK\r\nContent-Le"),
    ("head_unfinished",    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"),
    ("status_word",        "HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n"),
    ("status_two_digits",  "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"),
    ("version_missing",    "200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("body_cut",           "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"),
    ("two_lengths",        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
    ("length_negative",    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
    ("length_word",        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello"),
    ("chunk_cut",          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhello"),
    ("chunk_end_missing",  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
    ("chunk_last_cut",     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"),
    ("chunk_size_bad",     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n0\r\n\r\n"),
    ("chunk_too_long",     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n"),
    ("chunk_overflow",     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff5\r\nhello\r\n0\r\n\r\n"),
    ("coding_unknown",     "HTTP/1.1 200 OK\r\nTransfer-Encoding: cow\r\nContent-Length: 5\r\n\r\nhello"),
    ("field_no_colon",     "HTTP/1.1 200 OK\r\nBroken\r\nContent-Length: 5\r\n\r\nhello"),
    ("only_interim",       "HTTP/1.1 100 Continue\r\n\r\n"),
];

/// The result of a request through one proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    status: u16,
    kept: bool,
    reached: Vec<String>,
}

impl Outcome {
    fn text(&self) -> String {
        let kept = if self.kept { "kept" } else { "closed" };
        format!("{} {kept} [{}]", self.status, self.reached.join(", "))
    }
}

type Record = Arc<Mutex<Vec<String>>>;

/// Starts a server that answers `200` and records every complete request: method, target, body.
fn recorder() -> (Origin, Record) {
    let record = Record::default();
    let notes = Arc::clone(&record);
    let origin = Origin::raw(move |mut stream| {
        let mut bytes = Vec::new();
        while let Some(note) = next_request(&mut stream, &mut bytes) {
            notes.lock().expect("no test panics here").push(note);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    (origin, record)
}

/// Reads until `found` returns an end, and removes everything up to there from `bytes`.
fn take(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    found: impl Fn(&[u8]) -> Option<usize>,
) -> Option<Vec<u8>> {
    loop {
        if let Some(end) = found(bytes) {
            return Some(bytes.drain(..end).collect());
        }
        let mut part = [0; 4096];
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
}

fn after(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what).map(|at| at + what.len())
}

fn next_request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<String> {
    let head = take(stream, bytes, |bytes| after(bytes, b"\r\n\r\n"))?;
    let head = String::from_utf8_lossy(&head).to_string();
    let lower = head.to_ascii_lowercase();
    let length = lower.split("\r\ncontent-length:").nth(1).and_then(|rest| rest.lines().next());
    let body = if lower.contains("\r\ntransfer-encoding:") {
        let mut body = Vec::new();
        loop {
            let line = take(stream, bytes, |bytes| after(bytes, b"\r\n"))?;
            let line = String::from_utf8_lossy(&line).to_string();
            let size = usize::from_str_radix(line.trim_end().split(';').next()?, 16).ok()?;
            if size == 0 {
                while take(stream, bytes, |bytes| after(bytes, b"\r\n"))? != b"\r\n" {}
                break body;
            }
            let chunk = take(stream, bytes, |bytes| (bytes.len() >= size + 2).then_some(size + 2))?;
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        let length = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        take(stream, bytes, |bytes| (bytes.len() >= length).then_some(length))?
    };
    let line = head.lines().next()?.rsplit_once(' ')?.0;
    Some(format!("{line} {}", String::from_utf8_lossy(&body)).trim_end().to_owned())
}

fn configuration(port: u16, origin: u16) -> String {
    format!(
        "defaults\n  mode http\n  timeout client 2s\n  timeout connect 5s\n  timeout server 5s\n  retries 0\n\
         listen l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:{origin}\n"
    )
}

/// Sends the request, and after the first response (or a while without one) a second request. This shows whether the connection was
/// kept, and whether the proxy still knows where messages begin.
fn send(port: u16, number: usize, bytes: &str, record: &Record) -> Outcome {
    let target = format!("/case{number:03}");
    let second = format!("{target}second");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the proxy takes connections");
    let _ = stream.write_all(bytes.replace('@', &target).as_bytes());
    let mut answer = Vec::new();
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("the timeout is not zero");
    let mut part = [0; 4096];
    if let Ok(count) = stream.read(&mut part) {
        answer.extend_from_slice(&part[..count]);
    }
    let _ =
        stream.write_all(format!("GET {second} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes());
    stream.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let _ = stream.read_to_end(&mut answer);
    let notes = record.lock().expect("no test panics here");
    let mine: Vec<&String> = notes.iter().filter(|note| note.contains(&target)).collect();
    Outcome {
        status: status(&answer),
        kept: mine.iter().any(|note| **note == format!("GET {second}")),
        reached: mine
            .into_iter()
            .filter(|note| !note.contains(&second))
            .map(|note| note.replace(&target, "@"))
            .collect(),
    }
}

fn status(answer: &[u8]) -> u16 {
    let text = String::from_utf8_lossy(answer);
    text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// Sends all requests, several at a time.
fn run(port: u16, record: &Record) -> Vec<Outcome> {
    let next = Mutex::new(0..REQUESTS.len());
    let outcomes = Mutex::new(HashMap::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let Some(number) = next.lock().expect("no panic").next() else { return };
                    let outcome = send(port, number, REQUESTS[number].1, record);
                    outcomes.lock().expect("no panic").insert(number, outcome);
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no panic");
    (0..REQUESTS.len()).map(|number| outcomes.remove(&number).expect("every request was sent")).collect()
}

#[test]
fn malformed_requests_are_handled_as_in_haproxy_or_better() {
    let (origin, record) = recorder();
    let port = free_port();
    let weir = Weir::start(&configuration(port, origin.port()), &[port]);
    let ours = run(port, &record);
    let mut wrong = Vec::new();
    for (name, expected, why) in DIFFERENCES.iter().chain(OLD_DIFFERENCES) {
        let number = REQUESTS.iter().position(|(own, _)| own == name).expect("differences name requests");
        if ours[number].text() != *expected {
            wrong.push(format!("{name}: expected {expected} ({why}), got {}", ours[number].text()));
        }
    }
    let (origin, record) = recorder();
    let port = free_port();
    let _running = Haproxy::start(&configuration(port, origin.port()), port);
    let theirs = run(port, &record);
    let version = Haproxy::version();
    for (((name, _), own), other) in REQUESTS.iter().zip(&ours).zip(&theirs) {
        let old = OLD_DIFFERENCES.iter().any(|(known, ..)| known == name);
        if old && version > (2, 6) && version < (3, 5) {
            continue;
        }
        let argued = DIFFERENCES.iter().any(|(known, ..)| known == name) || old && version <= (2, 6);
        match (own == other, argued) {
            (false, false) => {
                wrong.push(format!("{name}: weir {} haproxy {}", own.text(), other.text()));
            }
            (true, true) => wrong.push(format!("{name}: no difference any more")),
            _ => {}
        }
    }
    assert!(!weir.messages().contains("panicked"), "{}", weir.messages());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns whether a client would take this for a complete `200`.
fn looks_complete(answer: &[u8]) -> bool {
    let Some(end) = after(answer, b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let body = &answer[end..];
    if status(answer) != 200 {
        return false;
    }
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with(b"\r\n0\r\n\r\n") || body == b"0\r\n\r\n";
    }
    let length =
        head.split("\r\ncontent-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
    length.is_none_or(|length| body.len() == length)
}

#[test]
fn malformed_responses_never_look_complete() {
    for (name, bytes) in RESPONSES {
        let origin = Origin::raw(move |mut stream| {
            let mut request = Vec::new();
            let _ = take(&mut stream, &mut request, |bytes| after(bytes, b"\r\n\r\n"));
            let _ = stream.write_all(bytes.as_bytes());
            let _ = stream.shutdown(Shutdown::Both);
        });
        let port = free_port();
        let weir = Weir::start(&configuration(port, origin.port()), &[port]);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("weir takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let begun = Instant::now();
        let _ = stream.read_to_end(&mut answer);
        assert!(begun.elapsed() < PATIENCE, "{name}: the connection was left open");
        assert!(!looks_complete(&answer), "{name}: {}", String::from_utf8_lossy(&answer));
        assert!(!weir.messages().contains("panicked"), "{name}: {}", weir.messages());
    }
}

#[test]
fn non_http_response_is_not_waited_for() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"no");
        // Silent from this point: the received bytes have no line end.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let port = free_port();
    // Without a server timeout, a hanging test would wait forever.
    let text = configuration(port, origin.port()).replace("timeout server", "# timeout server");
    let _weir = Weir::start(&text, &[port]);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the port takes connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it takes bytes");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert_eq!(status(&answer), 502);
}
