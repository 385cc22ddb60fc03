//! `tcp-check`: connections, bytes sent and bytes expected, step by step.

use config::plan::server::{CheckStep, ExpectBytes, SendProxy};

use crate::probe::{Link, LinkError, Outcome, connect, error_text};
use crate::{Context, Subject};

/// Where a script stands, for messages.
struct Place<'a> {
    number: usize,
    what: String,
    comment: Option<&'a str>,
}

impl Place<'_> {
    /// ` at step 2 of tcp-check (expect string 'nope')`.
    fn suffix(&self) -> String {
        let comment = self.comment.map(|text| format!(" comment: '{text}'")).unwrap_or_default();
        format!(" at step {} of tcp-check ({}){comment}", self.number, self.what)
    }
}

/// Runs the steps in order. Without a leading `connect` the server's own address is connected to first.
pub(crate) async fn run(subject: &Subject, context: &Context, steps: &[CheckStep]) -> Outcome {
    let connects = steps.iter().find(|step| !matches!(step, CheckStep::Comment(_)));
    let mut link = None;
    if !matches!(connects, Some(CheckStep::Connect { .. })) {
        match connect(subject, None, subject.send_proxy, "").await {
            Ok(opened) => link = Some(opened),
            Err(outcome) => return outcome,
        }
    }
    let mut received = Vec::new();
    let mut place = Place { number: 0, what: String::new(), comment: None };
    let mut talked = false;
    let mut report = None;
    for step in steps {
        if let CheckStep::Comment(text) = step {
            place.comment = Some(text);
            continue;
        }
        if let CheckStep::Report { pattern, text } = step {
            report = Some(reported(pattern, text, &received));
            continue;
        }
        place.number += 1;
        place.what = describe(step);
        let done = match (step, &mut link) {
            (CheckStep::Connect { port, send_proxy }, link) => {
                received.clear();
                let header = match (*send_proxy, subject.send_proxy) {
                    (false, _) => SendProxy::None,
                    (true, SendProxy::None) => SendProxy::V1,
                    (true, version) => version,
                };
                // The former connection ends before the next begins.
                *link = None;
                connect(subject, *port, header, &place.suffix()).await.map(|opened| *link = Some(opened))
            }
            (CheckStep::Send(bytes), Some(link)) => {
                // What is expected next is looked for in what comes from now on.
                received.clear();
                talked = true;
                link.write_all(bytes).await.map_err(|error| broken(&error, &place))
            }
            (CheckStep::Expect { negate, min_recv, what }, Some(link)) => {
                talked = true;
                let rule = Rule { negate: *negate, least: *min_recv, what };
                expect(link, &rule, &mut received, context.buffer, &place).await
            }
            _ => Err(Outcome::new("SOCKERR", None, place.suffix())),
        };
        if let Err(outcome) = done {
            return outcome;
        }
    }
    if let Some((code, text)) = report {
        return Outcome::new("L7OK", Some(code), text);
    }
    if talked { Outcome::new("L7OK", Some(0), "(tcp-check)") } else { Outcome::new("L4OK", None, "") }
}

fn describe(step: &CheckStep) -> String {
    match step {
        CheckStep::Connect { port: Some(port), .. } => format!("connect port {port}"),
        CheckStep::Connect { port: None, .. } => "connect".into(),
        CheckStep::Send(_) => "send".into(),
        CheckStep::Expect { what: ExpectBytes::Bytes(bytes), .. } => {
            format!("expect string '{}'", String::from_utf8_lossy(bytes))
        }
        CheckStep::Expect { what: ExpectBytes::Regex(regex), .. } => format!("expect regex '{regex}'"),
        CheckStep::Comment(_) | CheckStep::Report { .. } => String::new(),
    }
}

/// The code and the information that a passed check reports.
fn reported(pattern: &regex::bytes::Regex, text: &str, received: &[u8]) -> (u32, String) {
    let found = pattern.captures(received);
    let group = |number| {
        found.as_ref().and_then(|found| Some(String::from_utf8_lossy(found.get(number)?.as_bytes())))
    };
    let code = group(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, group(2).map_or_else(|| text.to_owned(), std::borrow::Cow::into_owned))
}

fn broken(error: &LinkError, place: &Place<'_>) -> Outcome {
    match error {
        LinkError::Timeout => Outcome::new("L7TOUT", None, place.suffix()),
        LinkError::Io(error) => Outcome::new("SOCKERR", None, error_text(error) + &place.suffix()),
    }
}

struct Rule<'a> {
    negate: bool,
    /// `min-recv`: with it, a mismatch is conclusive once so many bytes are there; without it only at the end.
    least: Option<usize>,
    what: &'a ExpectBytes,
}

impl Rule<'_> {
    fn matches(&self, received: &[u8]) -> bool {
        match self.what {
            ExpectBytes::Bytes(bytes) => memchr::memmem::find(received, bytes).is_some(),
            ExpectBytes::Regex(regex) => regex.is_match(received),
        }
    }
}

/// Reads until the rule is decided: it matched, a mismatch is conclusive, the peer closed, or the buffer is full.
async fn expect(
    link: &mut Link,
    rule: &Rule<'_>,
    received: &mut Vec<u8>,
    limit: usize,
    place: &Place<'_>,
) -> Result<(), Outcome> {
    let mut ended = false;
    loop {
        let full = received.len() >= limit;
        if ended || full || (!received.is_empty() && received.len() >= rule.least.unwrap_or(1)) {
            let matched = rule.matches(received);
            if matched || ended || full || rule.least.is_some() {
                return if matched != rule.negate { Ok(()) } else { Err(mismatch(rule, place)) };
            }
        }
        match link.read(received).await {
            Ok(0) if received.is_empty() => {
                let text = format!("TCPCHK got an empty response at step {}", place.number);
                return Err(Outcome::new("L7RSP", None, text));
            }
            // Nothing more will come: what there is decides, however short.
            Ok(0) => ended = true,
            Ok(_) => {}
            Err(error) => return Err(broken(&error, place)),
        }
    }
}

fn mismatch(rule: &Rule<'_>, place: &Place<'_>) -> Outcome {
    let comment = place.comment.map(|text| format!(" comment: '{text}'")).unwrap_or_default();
    let verb = if rule.negate { "matched unwanted content" } else { "did not match content" };
    let what = match rule.what {
        ExpectBytes::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        ExpectBytes::Regex(regex) => regex.to_string(),
    };
    Outcome::new("L7RSP", None, format!("TCPCHK {verb} '{what}' at step {}{comment}", place.number))
}
