//! Evaluates received data against an `expect` step.

use plan::check::{CompareMethod, Expect, HeaderMatcher, Matcher, Pattern};

use crate::check_env::CheckEnv;
use crate::grpc;
use crate::protocol::{self, AnswerReading};
use crate::request::text;

/// The result for a step.
#[derive(Debug)]
pub(crate) enum Judgement {
    /// More data is needed.
    Wait,
    /// The response is as expected.
    Passed,
    /// The response is as expected, and contains a message.
    PassedSaying(Vec<u8>),
    /// The response is not as expected.
    Failed(ExpectFailure),
}

/// Why a response is not as expected.
#[derive(Debug, Default)]
pub(crate) struct ExpectFailure {
    /// The status, unless the step overrides it.
    pub(crate) status: &'static str,
    /// Whether the step's `error-status` does not apply.
    pub(crate) fixed: bool,
    /// The message; empty for the step's default.
    pub(crate) info: Vec<u8>,
    /// A code from the response.
    pub(crate) code: Option<i32>,
    /// Whether a negated pattern matched.
    pub(crate) matched: bool,
}

const EMPTY_FORMAT: &[u8] = b"log-format string evaluated to an empty string";

fn fixed(info: &[u8]) -> Judgement {
    Judgement::Failed(ExpectFailure {
        status: "L7RSP",
        fixed: true,
        info: info.to_vec(),
        ..ExpectFailure::default()
    })
}

/// Evaluates raw bytes. `complete` means that no more data will arrive or fit.
pub(crate) fn judge_bytes(expect: &Expect, facts: &CheckEnv, complete: bool) -> Judgement {
    let received = &facts.received[..];
    if received.is_empty() {
        let wait = !complete;
        let matched = matches!(expect.what, Matcher::Mysql { .. } | Matcher::LdapBind | Matcher::SpopHello);
        return if wait { Judgement::Wait } else { decide(expect, matched && expect.negate, "L7RSP", b"") };
    }
    let least = match &expect.what {
        Matcher::Bytes(bytes, _) => bytes.len(),
        _ => 0,
    };
    if !complete && received.len() < least.max(expect.min_recv.unwrap_or(0)) {
        return Judgement::Wait;
    }
    let matched = match &expect.what {
        Matcher::Bytes(bytes, _) => contains(received, bytes),
        Matcher::Regex(regex) => regex.is_match(received),
        Matcher::HexRegex(regex) => regex.is_match(&hexadecimal(received)),
        Matcher::Format(format) => {
            let wanted = facts.render(format);
            match (wanted.is_empty(), complete || received.len() >= wanted.len()) {
                (true, _) => return fixed(EMPTY_FORMAT),
                (false, false) => return Judgement::Wait,
                (false, true) => contains(received, &wanted),
            }
        }
        Matcher::HexFormat(format) => {
            let digits = facts.render(format);
            if digits.is_empty() {
                return fixed(EMPTY_FORMAT);
            }
            let Some(wanted) = binary(&digits) else {
                return fixed(b"Failed to parse hexastring resulting of eval of a log-format string");
            };
            if !complete && received.len() < wanted.len() {
                return Judgement::Wait;
            }
            contains(received, &wanted)
        }
        Matcher::Mysql { after_greeting } => {
            return reading(protocol::mysql(received, *after_greeting), complete);
        }
        Matcher::LdapBind => return reading(protocol::ldap_bind(received), complete),
        Matcher::SpopHello => return reading(protocol::spop_hello(received), complete),
        _ => false,
    };
    if !matched && !complete && expect.min_recv.is_none() {
        return Judgement::Wait;
    }
    decide(expect, matched, "L7RSP", b"")
}

fn reading(reading: AnswerReading<'_>, complete: bool) -> Judgement {
    match reading {
        AnswerReading::Short if !complete => Judgement::Wait,
        AnswerReading::Short => {
            Judgement::Failed(ExpectFailure { status: "L7RSP", fixed: true, ..ExpectFailure::default() })
        }
        AnswerReading::Good(info) => Judgement::PassedSaying(info.to_vec()),
        AnswerReading::Bad(status, code, info) => Judgement::Failed(ExpectFailure {
            status,
            fixed: true,
            info: info.to_vec(),
            code: Some(code),
            matched: false,
        }),
    }
}

fn decide(expect: &Expect, matched: bool, status: &'static str, info: &[u8]) -> Judgement {
    if matched != expect.negate {
        return Judgement::Passed;
    }
    let info = if expect.on_error.is_some() { Vec::new() } else { info.to_vec() };
    Judgement::Failed(ExpectFailure { status, info, matched, ..ExpectFailure::default() })
}

/// Evaluates an HTTP response with a complete head.
pub(crate) fn judge_http(expect: &Expect, facts: &CheckEnv, complete: bool) -> Judgement {
    let head = &facts.transaction.response;
    let status = head.status();
    match &expect.what {
        Matcher::Status(ranges) => {
            let matched = ranges.iter().any(|&(low, high)| (low..=high).contains(&status));
            decide(expect, matched, "L7STS", head.reason())
        }
        Matcher::StatusRegex(regex) => {
            decide(expect, regex.is_match(status.to_string().as_bytes()), "L7STS", head.reason())
        }
        Matcher::Header(matcher) => match header(matcher, facts) {
            Some(matched) => decide(expect, matched, "L7STS", head.reason()),
            None => fixed(EMPTY_FORMAT),
        },
        Matcher::Body(bytes) => body(expect, facts, complete, bytes.len(), |body| contains(body, bytes)),
        Matcher::BodyRegex(regex) => body(expect, facts, complete, 0, |body| regex.is_match(body)),
        Matcher::BodyFormat(format) => {
            let wanted = facts.render(format);
            if wanted.is_empty() && !facts.received.is_empty() {
                return fixed(EMPTY_FORMAT);
            }
            body(expect, facts, complete, wanted.len(), |body| contains(body, &wanted))
        }
        Matcher::GrpcServing => match complete {
            true => reading(grpc::serving(head, &facts.trailers, &facts.received), true),
            false => Judgement::Wait,
        },
        _ => decide(expect, false, "L7RSP", b""),
    }
}

fn body(
    expect: &Expect,
    facts: &CheckEnv,
    complete: bool,
    least: usize,
    matches: impl Fn(&[u8]) -> bool,
) -> Judgement {
    let body = &facts.received[..];
    if body.is_empty() {
        let info = b"HTTP content check could not find a response body";
        let info = if expect.on_error.is_some() { Vec::new() } else { info.to_vec() };
        let failure = ExpectFailure { status: "L7RSP", info, ..ExpectFailure::default() };
        return if complete { Judgement::Failed(failure) } else { Judgement::Wait };
    }
    if !complete && body.len() < least.max(expect.min_recv.unwrap_or(0)) {
        return Judgement::Wait;
    }
    let matched = matches(body);
    if !matched && !complete && expect.min_recv.is_none() {
        return Judgement::Wait;
    }
    let info: &[u8] = match expect.negate {
        true => b"HTTP check matched unwanted content",
        false => b"HTTP content check did not match",
    };
    decide(expect, matched, "L7RSP", info)
}

/// Whether there is a header with a matching name and value, or `None` if a format is empty.
fn header(matcher: &HeaderMatcher, facts: &CheckEnv) -> Option<bool> {
    let name = ExpectedPattern::new(&matcher.name, facts)?;
    let value = match &matcher.value {
        Some(value) => Some(ExpectedPattern::new(value, facts)?),
        None => None,
    };
    let fields = facts.transaction.response.fields();
    Some(fields.filter(|(own, _)| name.matches(own, true)).any(|(_, line)| match &value {
        None => true,
        Some(value) if matcher.full => value.matches(line, false),
        Some(value) => http::list_values(line).any(|one| value.matches(one, false)),
    }))
}

/// A pattern with its text computed.
enum ExpectedPattern<'a> {
    Text(CompareMethod, Vec<u8>),
    Regex(&'a sample::regex::Regex),
}

impl<'a> ExpectedPattern<'a> {
    fn new(pattern: &'a Pattern, facts: &CheckEnv) -> Option<Self> {
        match pattern {
            Pattern::Regex(regex) => Some(Self::Regex(regex)),
            Pattern::Text(method, wanted) => {
                Some(Self::Text(*method, text(wanted, facts))).filter(|wanted| !wanted.is_empty())
            }
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Text(_, text) if text.is_empty())
    }

    fn matches(&self, own: &[u8], ignore_case: bool) -> bool {
        let same = |own: &[u8], wanted: &[u8]| match ignore_case {
            true => own.eq_ignore_ascii_case(wanted),
            false => own == wanted,
        };
        match self {
            Self::Regex(regex) => regex.is_match(own),
            Self::Text(_, wanted) if own.len() < wanted.len() => false,
            Self::Text(CompareMethod::Exact, wanted) => same(own, wanted),
            Self::Text(CompareMethod::Begin, wanted) => same(&own[..wanted.len()], wanted),
            Self::Text(CompareMethod::End, wanted) => same(&own[own.len() - wanted.len()..], wanted),
            Self::Text(CompareMethod::Inside, wanted) => {
                own.windows(wanted.len().max(1)).any(|part| same(part, wanted))
            }
        }
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    memchr::memmem::find(bytes, wanted).is_some()
}

fn hexadecimal(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

/// Decodes an even number of hexadecimal digits.
pub(crate) fn binary(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits.chunks(2).map(|pair| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8)).collect()
}
