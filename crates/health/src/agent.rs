//! The agent of a server (configuration manual, 5.2 `agent-check`): a line of words that sets the server's weight, its connection
//! limit, its administrative state, and whether it is down.
//!
//! An agent that cannot be reached changes nothing, because the health check decides whether the server is up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::clock::now_ms;
use net::dial::Target;
use plan::check::AgentSettings;
use state::server::{Operational, ServerAddress};
use state::transition;
use state::{Admin, Server};

use crate::link::{CheckLink, ConnectError, LinkError, open_plain};
use crate::outcome::{CheckOutcome, CheckVerdict, connection_error};
use crate::verdict::{Prober, keep, logs, reason, report_check};
use crate::{CheckContext, CheckedServer, verdict};

/// An agent's response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report<'a> {
    /// A weight such as `75%`, or the value of `weight:`.
    pub(crate) weight: Option<&'a str>,
    /// The value of `maxconn:`.
    pub(crate) maxconn: Option<&'a str>,
    /// `ready`, `drain` or `maint`.
    pub(crate) admin: Option<&'static str>,
    /// `up`, `down`, `fail` or `stopped`, as written.
    pub(crate) state: Option<&'a str>,
    /// The text after a `#`.
    description: &'a str,
    /// The first unknown word.
    pub(crate) unknown: Option<&'a str>,
}

impl<'a> Report<'a> {
    /// Parses a line of words that are separated by spaces or commas. If several words are of the same kind, the last one
    /// applies.
    pub(crate) fn parse(line: &'a str) -> Self {
        let mut report = Report::default();
        let (words, description) = line.split_once('#').unwrap_or((line, ""));
        report.description = description.trim_start();
        for word in words.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
            report.word(word);
        }
        report
    }

    fn word(&mut self, word: &'a str) {
        let is = |known: &&&'static str| known.eq_ignore_ascii_case(word);
        let behind = |prefix: &str| match word.get(..prefix.len()) {
            Some(start) if start.eq_ignore_ascii_case(prefix) => Some(&word[prefix.len()..]),
            _ => None,
        };
        if ["up", "down", "stopped", "fail"].iter().any(|known| is(&known)) {
            self.state = Some(word);
        } else if let Some(known) = ["ready", "drain", "maint"].iter().find(is) {
            self.admin = Some(known);
        } else if word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('%') {
            self.weight = Some(word);
        } else if let Some(limit) = behind("maxconn:") {
            self.maxconn = Some(limit);
        } else if let Some(weight) = behind("weight:") {
            self.weight = Some(weight);
        } else {
            self.unknown = self.unknown.or(Some(word));
        }
    }

    /// Whether the agent reports the server as up or down, if it does.
    fn is_up(&self) -> Option<bool> {
        self.state.map(|state| state.eq_ignore_ascii_case("up"))
    }
}

/// Queries the agent once and applies its response.
pub(crate) async fn ask(peer: &CheckedServer, settings: &AgentSettings, context: &Arc<CheckContext>) {
    let (server, start) = (peer.server(), now_ms());
    server.agent.running.store(true, Relaxed);
    let answer = converse(peer, settings, context).await;
    server.agent.running.store(false, Relaxed);
    // A response that arrives while the agent is disabled is ignored.
    if !server.agent_checked.load(Relaxed) {
        return;
    }
    let took = Duration::from_millis(now_ms() - start);
    match answer {
        Ok((Some(line), _open)) => apply(peer, &line, took, context),
        // The agent's failure is reported. Nothing else changes, unless the agent never responded before.
        Ok((None, _)) => {
            let last = server.agent.last.load().clone();
            let status = if last.status.is_empty() { "L7TOUT" } else { last.status };
            let code = last.code.unwrap_or_default();
            let outcome = CheckOutcome {
                duration: took,
                ..CheckOutcome::new(status, code, "Ignoring incomplete line from agent")
            };
            if keep(&server.agent, &outcome) != status {
                report_check(peer, &CheckOutcome { info: String::new(), ..outcome }, Prober::Agent, context);
            }
        }
        Err(outcome) => {
            note(peer, outcome, took, context);
        }
    }
}

/// Stores a result, and reports it if it changed.
fn note(
    peer: &CheckedServer,
    outcome: CheckOutcome,
    took: Duration,
    context: &Arc<CheckContext>,
) -> CheckOutcome {
    let outcome = CheckOutcome { duration: took, ..outcome };
    let before = keep(&peer.server().agent, &outcome);
    if before != outcome.status && outcome.status != "CHECKED" {
        report_check(peer, &outcome, Prober::Agent, context);
    }
    outcome
}

/// Returns the first line of the agent's response, and the connection. The line is `None` if the connection ends before the line
/// does, or if the line is not valid text. The connection is closed after the response was applied, so an agent that sees the close
/// knows that it was.
async fn converse(
    peer: &CheckedServer,
    settings: &AgentSettings,
    context: &CheckContext,
) -> Result<(Option<String>, CheckLink<'static>), CheckOutcome> {
    let broken = |error: LinkError| match error {
        LinkError::Timeout => CheckOutcome::new("L7TOUT", 0, ""),
        LinkError::Io(error) => CheckOutcome::new("SOCKERR", 0, connection_error(&error)),
    };
    let target = target(peer.server()).ok_or_else(|| CheckOutcome::new("SOCKERR", 0, ""))?;
    let limit = settings.timeout.unwrap_or(settings.inter);
    let opened = open_plain(peer, context, &target, settings.connect_timeout, limit).await;
    let mut link = opened.map_err(|error| match error {
        ConnectError::Timeout => CheckOutcome::new("L4TOUT", 0, ""),
        ConnectError::Failed(error) => CheckOutcome::new("L4CON", 0, connection_error(&error)),
        ConnectError::Broken(error) => CheckOutcome::new("L4CON", 0, connection_error(&error)),
        ConnectError::Tls(text) => CheckOutcome::new("L6RSP", 0, text),
        ConnectError::TlsTimeout => CheckOutcome::new("L6TOUT", 0, ""),
        ConnectError::Unknown(text) => CheckOutcome::new("SOCKERR", 0, text),
    })?;
    let send = peer.server().agent.send.load_full();
    if let Some(send) = send {
        link.write_all(&send).await.map_err(broken)?;
    }
    let (mut line, most) = (Vec::new(), context.buffer);
    loop {
        if let Some(end) = line.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            let whole = line[end] != 0;
            line.truncate(end);
            return Ok((whole.then(|| String::from_utf8_lossy(&line).into_owned()), link));
        }
        if line.len() >= most || link.read(&mut line, most).await.map_err(broken)? == 0 {
            break;
        }
    }
    match line.is_empty() {
        true => Err(CheckOutcome::new("L7RSP", 0, "TCPCHK got an empty response at step 2")),
        false => Ok((None, link)),
    }
}

/// Returns the agent's address: the server's address and port unless it has its own.
fn target(server: &Server) -> Option<Target> {
    let own = match &**server.address.load() {
        ServerAddress::Ip(address) => Some(*address),
        _ => None,
    };
    let ip = server.agent.address.load().as_deref().copied().or(own.map(|own| own.ip()))?;
    let port = match server.agent.port.load(Relaxed) as u16 {
        0 => own.map_or(0, |own| own.port()),
        port => port,
    };
    Some(Target::Ip(SocketAddr::new(ip, port)))
}

/// Applies a response line.
fn apply(peer: &CheckedServer, line: &str, took: Duration, context: &Arc<CheckContext>) {
    let report = Report::parse(line);
    if let Some(state) = report.admin {
        administer(peer, state, context);
    }
    let mut warning = None;
    if let Some(weight) = report.weight {
        warning = set_weight(peer, weight).err();
    }
    if let Some(limit) = report.maxconn {
        warning = warning.or(set_maxconn(peer, limit).err());
    }
    let level = &peer.server().agent.level;
    match (report.state, report.is_up()) {
        (Some(word), Some(up)) => {
            let was = level.swap(u32::from(up), Relaxed);
            if !up && was > 0 {
                peer.server().agent.failed.fetch_add(1, Relaxed);
            }
            let detail = match report.description {
                "" if report.unknown.is_some() => report.unknown.unwrap_or_default(),
                _ if up && report.unknown.is_some() => report.unknown.unwrap_or_default(),
                description if description.is_empty() || up => warning.unwrap_or(description),
                description => description,
            };
            let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
            let status = if up { "L7OK" } else { "L7STS" };
            let outcome = CheckOutcome::new(status, 0, format!("via agent : {word}{detail}"));
            settle(peer, &note(peer, outcome, took, context), context);
        }
        _ => {
            let info = match (report.unknown, warning) {
                (Some(word), _) => format!("agent reports an error : {word}"),
                (None, Some(warning)) => format!("agent warns : {warning}"),
                (None, None) => String::new(),
            };
            note(peer, CheckOutcome::new("CHECKED", 0, info), took, context);
        }
    }
    if let Some((level, text)) = transition::refresh_backend(&peer.backend.state, now_ms()) {
        (context.notify)(&peer.backend.state, level, &text);
    }
}

/// Updates the server's state from the agent's response.
fn settle(peer: &CheckedServer, outcome: &CheckOutcome, context: &Arc<CheckContext>) {
    let server = peer.server();
    let why = if logs(peer) { String::new() } else { reason(outcome) };
    let stopped = server.operational() == Operational::Stopped;
    if outcome.verdict == CheckVerdict::Failed {
        if !stopped {
            verdict::go(peer, Operational::Stopped, &why, Prober::Agent, context);
        }
        return;
    }
    let level = server.health.level.load(Relaxed);
    let healthy = !server.checked.load(Relaxed) || level >= server.health.rise.load(Relaxed);
    if healthy && stopped {
        verdict::go(peer, Operational::Running, &why, Prober::Agent, context);
    }
}

/// Sets the weight to a share of the configured one, such as `50%`, or to a number. The error is the message about an invalid
/// value.
fn set_weight(peer: &CheckedServer, text: &str) -> Result<(), &'static str> {
    let server = peer.server();
    let weight = match text.split_once('%') {
        Some((digits, "")) => {
            let percent: u64 = digits.parse().map_err(|_| "Invalid weight")?;
            (u64::from(server.initial_weight()) * percent / 100).min(256) as u32
        }
        Some(_) => return Err("Trailing garbage in weight string"),
        None => {
            let weight = text.parse().map_err(|_| "Invalid weight")?;
            if weight > 256 {
                return Err("Absolute weight can only be between 0 and 256 inclusive.");
            }
            weight
        }
    };
    server.set_weight(weight);
    Ok(())
}

fn set_maxconn(peer: &CheckedServer, text: &str) -> Result<(), &'static str> {
    let limit = text.parse().map_err(|_| match text.as_bytes().first() {
        None => "Require <maxconn>.",
        Some(b'0'..=b'9') => "Trailing garbage in maxconn string",
        Some(_) => "maxconn string empty or preceded by garbage",
    })?;
    peer.server().set_maxconn(limit);
    // Requests queued for the backend may have room after this.
    peer.backend.state.queue.wake_first();
    Ok(())
}

/// Applies `ready`, `drain` or `maint`, as if an administrator had set it.
fn administer(peer: &CheckedServer, state: &str, context: &Arc<CheckContext>) {
    let server = peer.server();
    let (set, clear) = match state {
        "ready" => (0, Admin::FORCED_MAINT | Admin::FORCED_DRAIN),
        "drain" => (Admin::FORCED_DRAIN, Admin::FORCED_MAINT),
        _ => (Admin::FORCED_MAINT, Admin::FORCED_DRAIN),
    };
    let notify = |proxy: &state::Proxy, level, text: &str| (context.notify)(proxy, level, text);
    transition::administer(&peer.backend.state, server, set, clear, "", now_ms(), &notify);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_words_are_read_in_any_order() {
        #[rustfmt::skip]
        let cases = [
            ("75%,maxconn:30,maint,down",  Report { weight: Some("75%"), maxconn: Some("30"), admin: Some("maint"), state: Some("down"), ..Report::default() }),
            ("up ready weight:20",         Report { weight: Some("20"), admin: Some("ready"), state: Some("up"), ..Report::default() }),
            ("weight:50%\tDRAIN",          Report { weight: Some("50%"), admin: Some("drain"), ..Report::default() }),
            ("Fail # disk is full",        Report { state: Some("Fail"), description: "disk is full", ..Report::default() }),
            ("20 hello, up down",          Report { unknown: Some("20"), state: Some("down"), ..Report::default() }),
        ];
        for (line, report) in cases {
            assert_eq!(Report::parse(line), report, "{line:?}");
        }
    }
}
