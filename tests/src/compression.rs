//! Compression tests: the program in front of an origin with compressible bodies, and decoders that are independent of the
//! program's encoders.

use std::io::Read;

use crate::chunks::{chunked, unchunked};
use crate::client::{Client, Response};
use crate::{Origin, Weir, free_port};

const TEXT: &str = "text of which much comes again, and again, and again\n";

/// Returns a compressible body.
pub fn content(length: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for line in 0.. {
        if all.len() >= length {
            break;
        }
        all.extend_from_slice(format!("{line}: {TEXT}").as_bytes());
    }
    all.truncate(length);
    all
}

/// Decodes a complete body.
///
/// # Panics
/// The body is not valid in this coding, or is incomplete.
pub fn decoded(coding: &str, coded: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match coding {
        "gzip" => _ = flate2::read::GzDecoder::new(coded).read_to_end(&mut plain).expect("gzip"),
        "deflate" => _ = flate2::read::ZlibDecoder::new(coded).read_to_end(&mut plain).expect("deflate"),
        "raw-deflate" => {
            _ = flate2::read::DeflateDecoder::new(coded).read_to_end(&mut plain).expect("raw deflate")
        }
        "br" => _ = brotli::Decompressor::new(coded, 4096).read_to_end(&mut plain).expect("br"),
        "zstd" => {
            let mut context = zstd_safe::DCtx::create();
            let mut input = zstd_safe::InBuffer::around(coded);
            let mut scratch = vec![0; 64 * 1024];
            loop {
                let mut output = zstd_safe::OutBuffer::around(&mut scratch[..]);
                let left = context.decompress_stream(&mut output, &mut input).expect("zstd");
                plain.extend_from_slice(output.as_slice());
                if left == 0 {
                    break;
                }
                assert!(input.pos() < coded.len() || output.pos() > 0, "the frame has an end");
            }
        }
        _ => plain.extend_from_slice(coded),
    }
    plain
}

/// Decodes the beginning of a body.
pub fn so_far(coding: &str, coded: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut piece = [0; 4096];
    let mut read = |from: &mut dyn Read| {
        while let Ok(n @ 1..) = from.read(&mut piece) {
            plain.extend_from_slice(&piece[..n]);
        }
    };
    match coding {
        "gzip" => read(&mut flate2::read::GzDecoder::new(coded)),
        "deflate" => read(&mut flate2::read::ZlibDecoder::new(coded)),
        "br" => read(&mut brotli::Decompressor::new(coded, 4096)),
        _ => {
            let mut context = zstd_safe::DCtx::create();
            let mut input = zstd_safe::InBuffer::around(coded);
            let mut scratch = vec![0; 4096];
            let mut output = zstd_safe::OutBuffer::around(&mut scratch[..]);
            let _ = context.decompress_stream(&mut output, &mut input);
            plain.extend_from_slice(output.as_slice());
        }
    }
    plain
}

/// Returns the payload of a response, without chunk framing.
pub fn payload(response: &Response) -> Vec<u8> {
    match response.header("transfer-encoding") {
        Some(_) => unchunked(&response.body).0,
        None => response.body.clone(),
    }
}

/// Starts the program with these proxies, in which `PORT` stands for the address of the first listener; returns its port.
pub fn start(proxies: &str) -> (Weir, u16) {
    start_with("", proxies)
}

/// Starts the program with additional lines in `global`.
pub fn start_with(global: &str, proxies: &str) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n{global}\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n{}",
        proxies.replace("PORT", &format!("127.0.0.1:{port}"))
    );
    (Weir::start(&text, &[port]), port)
}

/// Starts an origin that answers with `content` and the fields in the path, separated by ampersands and with percent signs for
/// spaces. The words `status=…`, `old` (HTTP/1.0), `untyped`, `chunked`, `trailers` and `bodiless` in the path change the response.
pub fn origin(length: usize) -> Origin {
    Origin::start(move |head, _| {
        let body = content(length);
        let path = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
        let fields: String = path
            .split('&')
            .filter(|field| field.contains(':'))
            .map(|f| format!("{}\r\n", f.replace('%', " ")))
            .collect();
        let status = path.split('&').find_map(|word| word.strip_prefix("status=")).unwrap_or("200");
        let version = if path.contains("old") { "1.0" } else { "1.1" };
        let kind = if path.contains("untyped") { "" } else { "Content-Type: text/plain\r\n" };
        let mut answer = format!("HTTP/{version} {status} OK\r\n{kind}{fields}").into_bytes();
        if path.contains("chunked") {
            answer.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            let trailers = if path.contains("trailers") { "X-Behind: it\r\n" } else { "" };
            answer.extend_from_slice(&chunked(&body, 777, trailers));
        } else if path.contains("bodiless") {
            answer.extend_from_slice(b"\r\n");
        } else {
            answer.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            if !head.starts_with("HEAD") {
                answer.extend_from_slice(&body);
            }
        }
        answer
    })
}

/// Sends a GET with these fields, each with its line end.
pub fn ask(port: u16, path: &str, fields: &str) -> Response {
    Client::connect(port)
        .send(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
        .response()
        .expect("an answer")
}

/// Sends a GET that accepts these codings.
pub fn accepting(port: u16, path: &str, codings: &str) -> Response {
    ask(port, path, &format!("Accept-Encoding: {codings}\r\n"))
}
