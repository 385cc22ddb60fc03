//! The agent of a server (configuration manual, 5.2 `agent-check`): a line of words that sets its weight, its limit of
//! connections, its administrative state, and whether it is down.
//!
//! An agent that cannot be reached changes nothing: whether the server lives is the health check's business.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::clock::now_ms;
use config::plan::server::SendProxy;
use runtime::timer::Timer;
use state::Admin;
use state::server::{CheckResult, Operational};
use state::transition;

use crate::probe::{LinkError, Outcome, connect, error_text};
use crate::{Context, Subject, verdict};

/// What an agent said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report<'a> {
    weight: Option<Weight>,
    maxconn: Option<u32>,
    /// `ready`, `drain` or `maint`.
    admin: Option<&'a str>,
    /// `up`, `down`, `fail` or `stopped`.
    state: Option<&'a str>,
    /// What follows a sharp.
    description: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
enum Weight {
    Absolute(u32),
    Percent(u32),
}

impl<'a> Report<'a> {
    /// Reads the first line; words are apart by blanks or commas. Unknown words are passed over.
    fn parse(line: &'a str) -> Self {
        let mut report = Report::default();
        let line = line.split(['\r', '\n']).next().unwrap_or_default();
        let (words, description) = line.split_once('#').unwrap_or((line, ""));
        report.description = description.trim();
        for word in words.split([' ', '\t', ',']) {
            let bare = word.strip_prefix("weight:").unwrap_or(word);
            let lower = ["ready", "drain", "maint", "up", "down", "fail", "stopped"]
                .into_iter()
                .find(|known| known.eq_ignore_ascii_case(word));
            match lower {
                Some(known @ ("ready" | "drain" | "maint")) => report.admin = Some(known),
                Some(known) => report.state = Some(known),
                None => {
                    if let Some(percent) = bare.strip_suffix('%').and_then(|digits| digits.parse().ok()) {
                        report.weight = Some(Weight::Percent(percent));
                    } else if let (true, Ok(weight)) = (bare != word, bare.parse()) {
                        report.weight = Some(Weight::Absolute(weight));
                    } else if let Some(limit) = word.strip_prefix("maxconn:").and_then(|d| d.parse().ok()) {
                        report.maxconn = Some(limit);
                    }
                }
            }
        }
        report
    }
}

/// Asks the agent of `subject` for as long as the task lives; first after `delay`.
pub(crate) async fn watch(subject: Subject, send: Box<[u8]>, context: Rc<Context>, delay: Duration) {
    let timer = Timer::new();
    timer.set_after(now_ms(), Some(delay));
    loop {
        timer.expired().await;
        if subject.server.agent_checked.load(Relaxed) {
            let start = now_ms();
            subject.server.agent.running.store(true, Relaxed);
            let answer = ask(&subject, &send, &context).await;
            subject.server.agent.running.store(false, Relaxed);
            let took = now_ms() - start;
            match answer {
                Ok(line) if subject.server.agent_checked.load(Relaxed) => {
                    apply(&subject, &line, took, &context)
                }
                Ok(_) => {}
                Err(outcome) => keep(&subject, outcome.status, took, outcome.info),
            }
        }
        timer.set_after(now_ms(), Some(subject.settings.inter));
    }
}

/// The longest line taken from an agent.
const MAX_LINE: usize = 1024;

async fn ask(subject: &Subject, send: &[u8], context: &Context) -> Result<String, Outcome> {
    let broken = |error: LinkError| match error {
        LinkError::Timeout => Outcome::new("L7TOUT", None, ""),
        LinkError::Io(error) => Outcome::new("SOCKERR", None, error_text(&error)),
    };
    let mut link = connect(subject, subject.settings.port, SendProxy::None, "").await?;
    if !send.is_empty() {
        link.write_all(send).await.map_err(broken)?;
    }
    let mut line = Vec::new();
    while !line.iter().any(|b| matches!(b, b'\r' | b'\n')) && line.len() < MAX_LINE.min(context.buffer) {
        if link.read(&mut line).await.map_err(broken)? == 0 {
            break;
        }
    }
    if line.is_empty() {
        return Err(Outcome::new("L7RSP", None, "Agent check got no answer"));
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Keeps a result for the statistics.
fn keep(subject: &Subject, status: &'static str, took: u64, description: String) {
    let result = CheckResult { status, code: None, duration_ms: took, description };
    subject.server.agent.last.store(Arc::new(result));
}

/// Does what a line says.
fn apply(subject: &Subject, line: &str, took: u64, context: &Rc<Context>) {
    let report = Report::parse(line);
    let server = &subject.server;
    match report.weight {
        Some(Weight::Absolute(weight)) if weight <= 256 => server.set_weight(weight),
        Some(Weight::Percent(percent)) => {
            server.set_weight((u64::from(server.initial_weight) * u64::from(percent) / 100).min(256) as u32);
        }
        _ => {}
    }
    if let Some(limit) = report.maxconn {
        server.set_maxconn(limit);
    }
    if let Some(state) = report.admin {
        administer(subject, state, context);
    }
    let said = line.split(['\r', '\n']).next().unwrap_or_default();
    match report.state {
        Some("up") => {
            keep(subject, "L7OK", took, said.to_owned());
            server.agent.level.store(1, Relaxed);
            let level = server.health.level.load(Relaxed);
            let healthy = !server.checked.load(Relaxed) || level >= server.health.rise.load(Relaxed);
            if healthy && server.operational() == Operational::Stopped {
                verdict::go(subject, Operational::Running, ", agent reports up", context);
            }
        }
        Some(word) => {
            keep(subject, "L7STS", took, said.to_owned());
            if server.agent.level.swap(0, Relaxed) > 0 {
                server.agent.failed.fetch_add(1, Relaxed);
            }
            let description = if report.description.is_empty() {
                String::new()
            } else {
                format!(" ({})", report.description)
            };
            let why = format!(", reason: Layer7 wrong status, info: \"agent reports {word}{description}\"");
            verdict::go(subject, Operational::Stopped, &why, context);
        }
        None => keep(subject, "L7OK", took, said.to_owned()),
    }
    if let Some((level, text)) = transition::refresh_backend(&subject.proxy, now_ms()) {
        (context.notify)(&subject.proxy, level, &text);
    }
}

/// `ready`, `drain`, `maint`: as an administrator would set it.
fn administer(subject: &Subject, state: &str, context: &Rc<Context>) {
    let server = &subject.server;
    let (set, clear) = match state {
        "ready" => (0, Admin::FORCED_MAINT | Admin::FORCED_DRAIN),
        "drain" => (Admin::FORCED_DRAIN, Admin::FORCED_MAINT),
        _ => (Admin::FORCED_MAINT, 0),
    };
    let before = server.admin();
    let was_down = server.operational() == Operational::Stopped;
    let requeued = server.queue.len();
    if !server.change_admin(set, clear, now_ms()) {
        return;
    }
    let change = transition::Administrative { before, after: server.admin(), was_down, requeued, via: "" };
    if let Some((level, text)) = transition::administrative(&subject.proxy, server, &change) {
        (context.notify)(&subject.proxy, level, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_words_are_read_in_any_order() {
        #[rustfmt::skip]
        let cases = [
            ("75%,maxconn:30,maint,down\n", Report { weight: Some(Weight::Percent(75)), maxconn: Some(30), admin: Some("maint"), state: Some("down"), description: "" }),
            ("up ready weight:20\r\nignored", Report { weight: Some(Weight::Absolute(20)), admin: Some("ready"), state: Some("up"), ..Report::default() }),
            ("weight:50% DRAIN",           Report { weight: Some(Weight::Percent(50)), admin: Some("drain"), ..Report::default() }),
            ("fail # disk is full",        Report { state: Some("fail"), description: "disk is full", ..Report::default() }),
            ("20 hello maxconn:x",         Report::default()),
        ];
        for (line, report) in cases {
            assert_eq!(Report::parse(line), report, "{line:?}");
        }
    }
}
