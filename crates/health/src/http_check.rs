//! `option httpchk`: the request, and what `http-check expect` makes of the answer.

use std::sync::atomic::Ordering::Relaxed;

use config::plan::server::{CheckKind, HttpExpect, HttpExpectWhat};
use http::{BodyLength, ChunkDecoder, ChunkEvent, Head, Method, ParseOptions, Status};
use state::Server;
use state::server::Operational;

use crate::probe::{Link, LinkError, Outcome, connect, error_text};
use crate::{Context, Subject};

/// Sends the request and judges the answer.
pub(crate) async fn run(subject: &Subject, context: &Context) -> Outcome {
    let CheckKind::Http { method, expect, .. } = &*subject.settings.kind else {
        return Outcome::new("SOCKERR", None, "");
    };
    let mut link = match connect(subject, None, subject.send_proxy, "").await {
        Ok(link) => link,
        Err(outcome) => return outcome,
    };
    let sent = link.write_all(&request(subject, context)).await;
    let answer = match sent {
        Ok(()) => {
            read_answer(&mut link, Method::from_bytes(method.as_bytes()), needs_body(expect), context).await
        }
        Err(error) => Err(error),
    };
    match answer {
        Ok(Some((head, body))) => judge(subject, &head, &body, expect),
        Ok(None) => Outcome::new("L7RSP", None, ""),
        Err(LinkError::Timeout) => Outcome::new("L7TOUT", None, ""),
        Err(LinkError::Io(error)) => Outcome::new("SOCKERR", None, error_text(&error)),
    }
}

fn needs_body(expect: &[HttpExpect]) -> bool {
    expect.iter().any(|rule| matches!(rule.what, HttpExpectWhat::Body(_) | HttpExpectWhat::BodyRegex(_)))
}

/// The request's bytes.
fn request(subject: &Subject, context: &Context) -> Vec<u8> {
    let CheckKind::Http { method, uri, version, headers, body, .. } = &*subject.settings.kind else {
        return Vec::new();
    };
    let mut out = format!("{method} {uri} {version}\r\n");
    for (name, value) in headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    if subject.settings.send_state {
        out.push_str(&format!("x-haproxy-server-state: {}\r\n", server_state(subject, context)));
    }
    if !body.is_empty() {
        out.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    let has = |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    if version.starts_with("HTTP/1.1") && !has("connection") {
        out.push_str("connection: close\r\n");
    }
    out.push_str("\r\n");
    let mut out = out.into_bytes();
    out.extend_from_slice(body);
    out
}

/// `UP 1/2; address=127.0.0.1; port=80; name=be/s1; node=n1; weight=1/7; scur=0/0; qcur=0` (manual,
/// `http-check send-state`).
fn server_state(subject: &Subject, context: &Context) -> String {
    let Subject { proxy, server, .. } = subject;
    let (word, level, of) = level(server);
    let address = match &**server.address.load() {
        state::server::ServerAddress::Ip(address) => {
            format!("address={}; port={}", address.ip(), address.port())
        }
        _ => "address=unix; port=unix".to_owned(),
    };
    let all: u32 = proxy.servers.load().iter().map(|server| server.served.0.load(Relaxed)).sum();
    format!(
        "{word} {level}/{of}; {address}; name={}/{}; node={}; weight={}/{}; scur={}/{all}; qcur={}",
        proxy.name,
        server.name,
        context.node,
        server.effective_weight(),
        proxy.total_weight(),
        server.served.0.load(Relaxed),
        server.queue.len()
    )
}

/// The word and the two numbers of a level: checks passed of those needed, or left of those that bring it down.
pub(crate) fn level(server: &Server) -> (&'static str, u32, u32) {
    let health = &server.health;
    let (level, rise, fall) =
        (health.level.load(Relaxed), health.rise.load(Relaxed), health.fall.load(Relaxed));
    if level < rise {
        return ("DOWN", level, rise);
    }
    let word = if server.operational() == Operational::Stopping { "NOLB" } else { "UP" };
    (word, level - rise + 1, fall)
}

/// The head, and the body if it is wanted, up to the buffer's size; `None` when it is no HTTP.
async fn read_answer(
    link: &mut Link,
    method: Method,
    body_wanted: bool,
    context: &Context,
) -> Result<Option<(Head, Vec<u8>)>, LinkError> {
    let options = ParseOptions { max_bytes: context.buffer, ..ParseOptions::default() };
    let (mut head, mut buffer) = (Head::new(), Vec::new());
    let mut skip = 0;
    loop {
        if link.read(&mut buffer).await? == 0 {
            return Ok(None);
        }
        loop {
            match http::parse_response(&buffer[skip..], &mut head, &options) {
                // Interim answers do not count.
                Ok(Status::Complete { len }) if head.status() < 200 && head.status() != 101 => skip += len,
                Ok(Status::Complete { len }) => {
                    let body = buffer.split_off(skip + len);
                    let body = if body_wanted {
                        read_body(link, head.response_body(method), body, context.buffer).await?
                    } else {
                        Some(body)
                    };
                    return Ok(body.map(|body| (head, body)));
                }
                Ok(Status::Partial) => break,
                Err(_) => return Ok(None),
            }
        }
    }
}

async fn read_body(
    link: &mut Link,
    length: BodyLength,
    mut raw: Vec<u8>,
    limit: usize,
) -> Result<Option<Vec<u8>>, LinkError> {
    let wanted = match length {
        BodyLength::None => return Ok(Some(Vec::new())),
        BodyLength::Length(length) => (length as usize).min(limit),
        BodyLength::Chunked | BodyLength::UntilClose => limit,
    };
    if length != BodyLength::Chunked {
        while raw.len() < wanted && link.read(&mut raw).await? > 0 {}
        raw.truncate(wanted);
        return Ok(Some(raw));
    }
    let (mut decoder, mut body, mut at) = (ChunkDecoder::new(), Vec::new(), 0);
    while body.len() < limit {
        match decoder.decode(&raw, at) {
            Ok(ChunkEvent::Data { range }) => {
                body.extend_from_slice(&raw[range.clone()]);
                at = range.end;
            }
            Ok(ChunkEvent::Done { .. }) => break,
            Ok(ChunkEvent::More) => {
                raw.clear();
                at = 0;
                if link.read(&mut raw).await? == 0 {
                    break;
                }
            }
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(body))
}

/// What an answer means. Without an `expect`, 2xx and 3xx are good.
pub(crate) fn judge(subject: &Subject, head: &Head, body: &[u8], expect: &[HttpExpect]) -> Outcome {
    let status = head.status();
    let code = Some(u32::from(status));
    let reason = String::from_utf8_lossy(head.reason()).into_owned();
    let running = subject.server.operational() != Operational::Stopped;
    if status == 404 && subject.settings.disable_on_404 && running {
        return Outcome::new("L7OKC", code, "");
    }
    if expect.is_empty() && !matches!(status, 200..=399) {
        return Outcome::new("L7STS", code, reason);
    }
    for rule in expect {
        let (matches, about_body) = match &rule.what {
            HttpExpectWhat::Status(ranges) => {
                (ranges.iter().any(|&(low, high)| (low..=high).contains(&status)), false)
            }
            HttpExpectWhat::StatusRegex(regex) => (regex.is_match(status.to_string().as_bytes()), false),
            HttpExpectWhat::Body(text) => (memchr::memmem::find(body, text).is_some(), true),
            HttpExpectWhat::BodyRegex(regex) => (regex.is_match(body), true),
        };
        if matches != rule.negate {
            continue;
        }
        return match (about_body, rule.negate) {
            (false, _) => Outcome::new("L7STS", code, reason),
            (true, false) => Outcome::new("L7RSP", None, "HTTP content check did not match"),
            (true, true) => Outcome::new("L7RSP", None, "HTTP check matched unwanted content"),
        };
    }
    Outcome::new("L7OK", code, "")
}
