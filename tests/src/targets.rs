//! The fuzz targets: each takes bytes and checks properties that must hold for any input. A violation is a panic.
//!
//! `fuzz/fuzz_targets` calls them with generated inputs, `tests/tests/config/seeds.rs` with the seeds in `fuzz/seeds`.

mod answers;
mod cache;
mod control;
mod discovery;
mod expressions;
mod fcgi;
mod h2;
mod h2_connection;
mod h3;
mod h3_connection;
mod payload;
mod peers;
mod qmux;
mod quic;
mod spop;
mod tls;

use std::net::SocketAddr;
use std::sync::OnceLock;

use config::{Boot, Loaded, Setting};
use diag::render::{self, Colour};
use http::{BodyLength, ChunkDecoder, ChunkEvent, Head, Normalized, ParseError, ParseOptions, ParseStatus};
use net::{netscaler, proxy_protocol};
use plan::Plan;
use sample::{Env, Transaction};

pub use self::answers::{acme_answers, agent_line, check_answer, check_protocols, dns_answer, mail_replies};
pub use self::cache::{cache_file, cache_key, cache_vary};
pub use self::control::{command_line, state_rows, statistics_page, stats_rows};
pub use self::discovery::discovery_documents;
pub use self::fcgi::fcgi_records;
pub use self::h2::{h2_request, h2_response, hpack};
pub use self::h2_connection::h2_connection;
pub use self::h3::{h3_request, qpack};
pub use self::h3_connection::h3_connection;
pub use self::payload::{encoded, first_bytes, payload};
pub use self::peers::peers_session;
pub use self::qmux::qmux_connection;
pub use self::quic::{quic_frames, quic_parameters};
pub use self::spop::spop_frames;
pub use self::tls::{ciphers, client_hello, crt_list, ocsp, pem, x509};
pub use expressions::{cookies, expression, json, jwt, url};

/// A target: its name, which is also that of its seed folder, and the function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("config", config),
    ("http1_request", http1_request),
    ("http1_response", http1_response),
    ("chunked", chunked),
    ("proxy_protocol", proxy_protocol),
    ("netscaler", netscaler),
    ("log_format", log_format),
    ("expression", expression),
    ("json", json),
    ("jwt", jwt),
    ("url", url),
    ("cookies", cookies),
    ("client_hello", client_hello),
    ("crt_list", crt_list),
    ("pem", pem),
    ("x509", x509),
    ("ocsp", ocsp),
    ("ciphers", ciphers),
    ("h2_connection", h2_connection),
    ("hpack", hpack),
    ("h2_request", h2_request),
    ("h2_response", h2_response),
    ("h3_connection", h3_connection),
    ("qpack", qpack),
    ("h3_request", h3_request),
    ("quic_frames", quic_frames),
    ("quic_parameters", quic_parameters),
    ("qmux_connection", qmux_connection),
    ("peers_session", peers_session),
    ("fcgi_records", fcgi_records),
    ("spop_frames", spop_frames),
    ("cache_file", cache_file),
    ("cache_key", cache_key),
    ("cache_vary", cache_vary),
    ("payload", payload),
    ("first_bytes", first_bytes),
    ("encoded", encoded),
    ("dns_answer", dns_answer),
    ("mail_replies", mail_replies),
    ("acme_answers", acme_answers),
    ("discovery_documents", discovery_documents),
    ("check_answer", check_answer),
    ("check_protocols", check_protocols),
    ("agent_line", agent_line),
    ("command_line", command_line),
    ("statistics_page", statistics_page),
    ("state_rows", state_rows),
    ("stats_rows", stats_rows),
];

/// Checks that a configuration yields a plan or at least one error, never both, and that every message can be rendered in both
/// forms.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // Files that a configuration names are read, and devices would never end.
    if text.contains("/dev") || text.contains("/proc") || text.contains("..") {
        return;
    }
    let Loaded { plan, diagnostics, sources } = load(&text);
    assert_eq!(plan.is_none(), diagnostics.has_errors(), "a plan and errors exclude each other");
    for one in diagnostics.iter() {
        let _ = (render::terminal(one, &sources, Colour::Never), render::line(one, &sources, 1));
    }
}

fn load(text: &str) -> Loaded {
    let setting = Setting { ignore_resolution_failures: true, ..Setting::default() };
    config::load_text("fuzz.cfg", text, &Boot { setting, ..Boot::default() })
}

/// Checks that a request is parsed the same in one piece and in many, and that its serialised form is parsed as the same request.
pub fn http1_request(bytes: &[u8]) {
    for options in [ParseOptions::default(), relaxed()] {
        message(bytes, &options, http::parse_request, |head| head.request_body());
    }
}

/// Like [`http1_request`], for responses.
pub fn http1_response(bytes: &[u8]) {
    for options in [ParseOptions::default(), relaxed()] {
        message(bytes, &options, http::parse_response, |head| head.response_body(http::Method::Get));
    }
}

fn relaxed() -> ParseOptions {
    ParseOptions { relaxed: true, any_method_payload: true, ..ParseOptions::default() }
}

type Parse = fn(&[u8], &mut Head, &ParseOptions) -> Result<ParseStatus, ParseError>;

fn message(bytes: &[u8], options: &ParseOptions, parse: Parse, body: fn(&Head) -> BodyLength) {
    let mut head = Head::new();
    let whole = parse(bytes, &mut head, options);
    let mut gradual = Head::new();
    let mut by_piece = Ok(ParseStatus::Partial);
    // For a long message, only some of the lengths are tried.
    let step = bytes.len().div_ceil(512).max(1);
    for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
        by_piece = parse(&bytes[..end], &mut gradual, options);
        if !matches!(by_piece, Ok(ParseStatus::Partial)) {
            break;
        }
    }
    match (whole, by_piece) {
        (Ok(one), Ok(other)) => assert_eq!(one, other, "one piece or many"),
        (Err(one), Err(other)) => assert_eq!(one.kind, other.kind, "one piece or many"),
        // An error in a long line is only detected once the end of the line has arrived.
        (Err(one), Ok(ParseStatus::Partial)) => {
            let ended = parse(&[bytes, b"\r\n\r\n"].concat(), &mut gradual, options);
            assert_eq!(ended.err().map(|other| other.kind), Some(one.kind), "one piece or many");
        }
        (one, other) => panic!("in one piece {one:?}, in many {other:?}"),
    }
    let Ok(ParseStatus::Complete { len }) = whole else { return };
    assert!(len <= bytes.len(), "{len} of {} bytes", bytes.len());
    let mut written = Vec::new();
    head.write_to(&mut written);
    let mut again = Head::new();
    let reread = parse(&written, &mut again, &ParseOptions { max_bytes: usize::MAX, ..options.clone() });
    assert_eq!(reread, Ok(ParseStatus::Complete { len: written.len() }), "{}", written.escape_ascii());
    assert_eq!(body(&head), body(&again), "the same body follows {}", written.escape_ascii());
    assert!(head.fields().eq(again.fields()), "the same fields in {}", written.escape_ascii());
}

/// Checks that a chunked body has the same payload and end however it is split, and that skipping it finds the same end as decoding
/// it.
pub fn chunked(bytes: &[u8]) {
    let whole = dechunk(&[bytes]);
    let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(whole, dechunk(&pieces), "in one piece and by bytes");
    let mut decoder = ChunkDecoder::new();
    match (decoder.track(bytes), &whole) {
        (Ok(length), Some((_, Some(end)))) => assert_eq!((length, decoder.is_done()), (*end, true)),
        (Ok(length), Some((_, None))) => assert_eq!((length, decoder.is_done()), (bytes.len(), false)),
        (tracked, None) => assert!(tracked.is_err(), "{tracked:?}"),
        (tracked, other) => panic!("followed {tracked:?}, taken apart {other:?}"),
    }
    let once = respell(bytes, bytes.len().max(1));
    assert_eq!(once, respell(bytes, 1), "in one piece and by bytes");
    if let (Some(spelled), Some((payload, Some(_)))) = (&once, &whole) {
        let again = dechunk(&[spelled]);
        assert_eq!(again, Some((payload.clone(), Some(spelled.len()))), "{}", spelled.escape_ascii());
        assert_eq!(respell(spelled, 1).as_ref(), Some(spelled), "one spelling is its own");
    }
}

/// Re-encodes a complete chunked body canonically; returns `None` if it is malformed or incomplete.
fn respell(bytes: &[u8], step: usize) -> Option<Vec<u8>> {
    let mut decoder = ChunkDecoder::new();
    let (mut out, mut pending) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(step) {
        pending.extend_from_slice(piece);
        let Normalized { used, kept } = decoder.normalize(&mut pending).ok()?;
        out.extend_from_slice(&pending[..kept]);
        pending.drain(..used);
        if decoder.is_done() {
            return Some(out);
        }
    }
    None
}

/// Returns the payload and, if the body is complete, where it ends; `None` if it is malformed.
fn dechunk(pieces: &[&[u8]]) -> Option<(Vec<u8>, Option<usize>)> {
    let mut decoder = ChunkDecoder::new();
    let mut payload = Vec::new();
    let mut before = 0;
    for piece in pieces {
        let mut at = 0;
        loop {
            match decoder.decode(piece, at).ok()? {
                ChunkEvent::Data { range } => {
                    at = range.end;
                    payload.extend_from_slice(&piece[range]);
                }
                ChunkEvent::More => break,
                ChunkEvent::Done { consumed } => return Some((payload, Some(before + consumed))),
            }
        }
        before += piece.len();
    }
    Some((payload, None))
}

/// Checks that a PROXY header consumes no more than the input, that it needs all consumed bytes, and that its addresses survive a
/// round trip; IPv4-mapped IPv6 addresses are written as IPv4.
pub fn proxy_protocol(bytes: &[u8]) {
    let Ok(Some(header)) = proxy_protocol::parse(bytes) else { return };
    assert!(header.length <= bytes.len());
    for end in 0..header.length {
        let cut = proxy_protocol::parse(&bytes[..end]);
        assert_eq!(cut, Ok(None), "{end} of {} bytes", header.length);
    }
    assert_eq!(proxy_protocol::parse(&bytes[..header.length]), Ok(Some(header.clone())));
    let tlvs = || header.tlvs.iter().map(|(kind, value)| (*kind, &**value));
    let mut written = Vec::new();
    proxy_protocol::write_v2(header.addresses, tlvs(), None, &mut written);
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let meant =
        |header: &proxy_protocol::ProxyHeader| header.addresses.map(|(from, to)| (plain(from), plain(to)));
    let survived = |written: &[u8]| {
        let again = proxy_protocol::parse(written);
        assert!(matches!(&again, Ok(Some(again)) if meant(again) == meant(&header)), "{again:?}");
    };
    survived(&written);
    if header.tlvs.is_empty() {
        written.clear();
        proxy_protocol::write_v1(header.addresses, &mut written);
        survived(&written);
    }
}

/// Checks a NetScaler Client IP header in the same way: the first four bytes are the agreed magic number.
pub fn netscaler(bytes: &[u8]) {
    let Some((magic, bytes)) = bytes.split_first_chunk() else { return };
    let magic = u32::from_be_bytes(*magic);
    let Ok(Some(header)) = netscaler::parse(bytes, magic) else { return };
    assert!(header.length <= bytes.len());
    for end in 0..header.length {
        assert_eq!(netscaler::parse(&bytes[..end], magic), Ok(None), "{end} of {} bytes", header.length);
    }
    assert_eq!(netscaler::parse(&bytes[..header.length], magic), Ok(Some(header)));
    assert_eq!(header.source.is_ipv4(), header.destination.is_ipv4());
}

/// Checks that a log format is refused or writes a line, and that a format that is all JSON writes JSON.
pub fn log_format(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Some(plan) = with_log_format(&quoted(&text)) else { return };
    let (process, transaction) = (state::Process::default(), Transaction::default());
    for format in plan.proxies.iter().filter_map(|proxy| proxy.log_format.as_ref()) {
        let mut line = Vec::new();
        format.render(&Env::new(&process, 0), &mut line);
        let with_request = Env { transaction: Some(&transaction), ..Env::new(&process, 1_000) };
        format.render(&with_request, &mut line);
        // A later `%o` may turn the encoding off again.
        if text.starts_with("%{+json}o") && text.matches("}o").count() == 1 {
            let objects: Vec<_> = serde_json::Deserializer::from_slice(&line).into_iter().collect();
            assert!(
                objects.len() == 2
                    && objects.iter().all(|one: &serde_json::Result<serde_json::Value>| one.is_ok()),
                "{}",
                line.escape_ascii()
            );
        }
    }
    // Compiling again must succeed, because nothing of a plan outlives it.
    static FIRST: OnceLock<bool> = OnceLock::new();
    assert!(*FIRST.get_or_init(|| with_log_format("%ci").is_some()), "a plain format is accepted");
}

/// Quotes `text` as one word of a configuration, without control characters.
fn quoted(text: &str) -> String {
    let literal: String = text.chars().filter(|one| !one.is_control()).collect();
    format!("'{}'", literal.replace('\'', r"'\''"))
}

fn with_log_format(quoted: &str) -> Option<Plan> {
    load(&format!(
        "frontend f\n mode http\n bind 127.0.0.1:1\n timeout client 1s\n log stdout local0\n log-format {quoted}\n"
    ))
    .plan
}
