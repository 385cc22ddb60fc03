//! A check script: runs its steps in order, and reports the step at which it ended.

use std::io;

use plan::check::{
    CheckAction, CheckRequest, CheckScript, CheckStep, Connect, Expect, Family, Matcher, Protocol, Send,
    Spelling, ValueSource,
};
use sample::value::Value;
use state::server::Operational;

use crate::answer::{CheckAnswer, ProbeExchange};
use crate::check_env::CheckEnv;
use crate::expect::{ExpectFailure, Judgement, binary, judge_bytes, judge_http};
use crate::link::{CheckLink, ConnectError, LinkError, obtain};
use crate::outcome::{CheckOutcome, connection_error};
use crate::{CheckContext, Subject, fastcgi, idle, multiplexed, request};

/// The state of a conversation.
struct Conversation<'a> {
    subject: &'a Subject,
    context: &'a CheckContext,
    script: &'a CheckScript,
    facts: CheckEnv,
    link: Option<CheckLink<'a>>,
    answer: Option<CheckAnswer>,
    /// Whether the connection persists after the last request.
    persistent: bool,
    /// The protocol for HTTP requests.
    protocol: Protocol,
    /// Whether nothing was received since the last send: data must be read before it is evaluated.
    must_read: bool,
    /// Whether no more data will arrive.
    ended: bool,
    /// The code reported with the result.
    code: i32,
    /// The message in the last response.
    failure_text: Option<Vec<u8>>,
}

/// Runs the steps in order. Returns the connection and the outcome. The connection is closed only after the consequences were
/// applied, so a server that sees the close can rely on them.
pub(crate) async fn run<'a>(
    subject: &'a Subject,
    context: &'a CheckContext,
    script: &'a CheckScript,
) -> (CheckOutcome, Option<CheckLink<'a>>) {
    let mut talk = Conversation {
        subject,
        context,
        script,
        facts: CheckEnv::new(subject, &context.process),
        link: None,
        answer: None,
        persistent: false,
        protocol: Protocol::Http1,
        must_read: true,
        ended: false,
        code: 0,
        failure_text: None,
    };
    let mut last = None;
    for step in &script.steps {
        match talk.step(step).await {
            Ok(true) => last = Some(step),
            Ok(false) => {}
            Err(outcome) => {
                talk.settle();
                return (outcome, talk.link);
            }
        }
    }
    talk.settle();
    (talk.passed(last), talk.link)
}

impl Conversation<'_> {
    /// Performs one step. Returns whether it involved I/O.
    async fn step(&mut self, step: &CheckStep) -> Result<bool, CheckOutcome> {
        if matches!(step.action, CheckAction::SetVar(..) | CheckAction::UnsetVar(_)) {
            self.variable(&step.action);
            return Ok(false);
        }
        self.code = 0;
        match &step.action {
            CheckAction::Connect(connect) => self.connect(connect, step).await?,
            CheckAction::Send(send) => self.send(send, step).await?,
            CheckAction::Request(own) => {
                let message = request::make(own, self.script, &self.facts, self.subject, self.context);
                self.persistent = message.persistent;
                let Some(bytes) = self.ask(own, &message) else {
                    return Err(self.broken(&no_link(), step));
                };
                self.write(&bytes, step).await?;
            }
            CheckAction::Expect(expect) => self.expect(expect, step).await?,
            CheckAction::SetVar(..) | CheckAction::UnsetVar(_) => {}
        }
        Ok(true)
    }

    /// Returns the bytes to send for a request, and prepares for its response. Returns `None` if the protocol cannot express the
    /// request because its parameters are too long, or if the backend has no application (only `check-proto fcgi`).
    fn ask(&mut self, own: &CheckRequest, message: &request::CheckMessage<'_>) -> Option<Vec<u8>> {
        let limit = self.context.buffer;
        let mut exchange = match self.protocol {
            Protocol::Http2 => ProbeExchange::Http2(Box::new(multiplexed::MultiplexedProbe::begin(
                &self.context.multiplexing,
                message,
            ))),
            Protocol::FastCgi => {
                let ends = self.link.as_mut().and_then(CheckLink::ends);
                let app = self.subject.backend().fcgi.as_deref()?;
                ProbeExchange::FastCgi(Box::new(fastcgi::FastcgiProbe::begin(app, message, ends, limit)?))
            }
            Protocol::Http1 | Protocol::Bytes | Protocol::Spop | Protocol::Quic | Protocol::Qmux => {
                self.answer = Some(CheckAnswer::new(&own.method, limit));
                return Some(message.bytes());
            }
        };
        let bytes = exchange.take_output();
        self.answer = Some(CheckAnswer::of_exchange(exchange, limit));
        Some(bytes)
    }

    fn variable(&self, action: &CheckAction) {
        let env = self.facts.env();
        match action {
            CheckAction::UnsetVar(var) => var.unset(&env),
            CheckAction::SetVar(var, conditions, source) => {
                let text;
                let value = match source {
                    ValueSource::Expression(expression) => expression.eval(&env),
                    ValueSource::Format(format) => {
                        text = self.facts.render(format);
                        Some(Value::str(&text))
                    }
                };
                if let Some(value) = value.filter(|value| conditions.allow(&env, var, value)) {
                    var.set(&env, &value);
                }
            }
            _ => {}
        }
    }

    /// Returns the connection to the pool if it was shared with requests and is idle.
    fn settle(&mut self) {
        let whole = self.answer.as_ref().is_some_and(|answer| answer.leaves_open(&self.facts));
        if let Some(link) = &mut self.link
            && self.persistent
            && !self.ended
            && whole
        {
            link.settle();
        }
    }

    /// Discards the received data.
    fn reset_received(&mut self) {
        self.facts.received.clear();
        self.facts.trailers.clear();
        self.facts.transaction.response.clear();
        self.facts.transaction.has_response = false;
        (self.must_read, self.ended, self.failure_text) = (true, false, None);
    }

    async fn connect(&mut self, connect: &Connect, step: &CheckStep) -> Result<(), CheckOutcome> {
        // The previous connection is closed before the next one is opened.
        self.settle();
        self.link = None;
        self.persistent = false;
        self.reset_received();
        let home = idle::home(self.subject, self.context, self.script, connect);
        let (status, error) = match obtain(self.subject, self.context, connect, &self.facts, home).await {
            Ok(mut link) => {
                // Asking the system for them has a cost.
                if self.script.evaluates {
                    self.facts.connected(link.ends(), link.tls());
                }
                let usual = self.subject.settings.protocol.filter(|_| connect.default || connect.implied);
                self.protocol = match connect.protocol.or(usual) {
                    _ if link.is_bridged => Protocol::Http1,
                    Some(protocol) => protocol,
                    None if link.agreed_on_h2() => Protocol::Http2,
                    None => Protocol::Http1,
                };
                self.link = Some(link);
                return Ok(());
            }
            Err(ConnectError::Unknown(text)) => ("SOCKERR", text.to_owned()),
            Err(ConnectError::Failed(error)) => ("L4CON", connection_error(&error)),
            Err(ConnectError::Timeout) => ("L4TOUT", String::new()),
            Err(ConnectError::Broken(error)) => ("L4CON", connection_error(&error)),
            Err(ConnectError::Tls(text)) => ("L6RSP", text.to_owned()),
            Err(ConnectError::TlsTimeout) => ("L6TOUT", String::new()),
        };
        Err(CheckOutcome::new(status, 0, error + &self.place(step)))
    }

    async fn send(&mut self, send: &Send, step: &CheckStep) -> Result<(), CheckOutcome> {
        let made;
        let bytes: &[u8] = match send {
            Send::Bytes(bytes) => bytes,
            Send::Format(format) => {
                made = self.facts.render(format);
                &made
            }
            Send::Hex(format) => match binary(&self.facts.render(format)) {
                Some(bytes) => {
                    made = bytes;
                    &made
                }
                None => return Err(self.unsent("failed to build log-format string".to_owned(), step)),
            },
        };
        if bytes.len() > self.context.buffer {
            let sizes = format!("({}) for buffer size ({})", bytes.len(), self.context.buffer);
            return Err(self.unsent(format!("string too large {sizes}"), step));
        }
        self.write(bytes, step).await
    }

    fn unsent(&self, what: String, step: &CheckStep) -> CheckOutcome {
        let comment = comment(step);
        CheckOutcome::new("L7RSP", 0, format!("tcp-check send : {what} at step {}{comment}", step.number))
    }

    async fn write(&mut self, bytes: &[u8], step: &CheckStep) -> Result<(), CheckOutcome> {
        // The next `expect` uses only data that is received after this.
        self.reset_received();
        let Some(link) = &mut self.link else { return Err(self.broken(&no_link(), step)) };
        match link.write_all(bytes).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.broken(&error, step)),
        }
    }

    fn broken(&self, error: &LinkError, step: &CheckStep) -> CheckOutcome {
        let place = self.place(step);
        match (error, &step.action) {
            (LinkError::Timeout, CheckAction::Expect(expect)) => {
                CheckOutcome::new(expect.timeout_status.unwrap_or("L7TOUT"), 0, place)
            }
            (LinkError::Timeout, _) => CheckOutcome::new("L7TOUT", 0, place),
            (LinkError::Io(error), _) => CheckOutcome::new("SOCKERR", 0, connection_error(error) + &place),
        }
    }

    /// Reads until the step is decided: the data matches or cannot match any more, the peer has closed, or the buffer is full.
    async fn expect(&mut self, expect: &Expect, step: &CheckStep) -> Result<(), CheckOutcome> {
        loop {
            if self.must_read {
                self.read(step).await?;
            }
            let judgement = match &self.answer {
                Some(answer) if answer.has_head() => {
                    self.code = i32::from(self.facts.transaction.response.status());
                    if self.is_gentle_stop() {
                        return Ok(());
                    }
                    let complete = self.ended || answer.is_complete(&self.facts);
                    judge_http(expect, &self.facts, complete)
                }
                // The head arrived, but the body is malformed.
                Some(answer) if answer.is_broken() && self.facts.transaction.has_response => {
                    Judgement::Failed(ExpectFailure {
                        status: "L7RSP",
                        fixed: true,
                        ..ExpectFailure::default()
                    })
                }
                Some(answer) if self.ended || answer.is_broken() => {
                    return Err(CheckOutcome::new("SOCKERR", 0, ""));
                }
                Some(_) => Judgement::Wait,
                None => {
                    let full = self.facts.received.len() >= self.context.buffer;
                    judge_bytes(expect, &self.facts, self.ended || full)
                }
            };
            match judgement {
                Judgement::Wait => self.must_read = true,
                Judgement::Passed => return Ok(()),
                Judgement::PassedSaying(info) => {
                    self.failure_text = Some(info);
                    return Ok(());
                }
                Judgement::Failed(failure) => return Err(self.failed(expect, step, failure)),
            }
        }
    }

    /// `http-check disable-on-404`, which takes precedence over the expected result.
    fn is_gentle_stop(&self) -> bool {
        let running = self.subject.server().operational() != Operational::Stopped;
        self.script.disable_on_404 && self.code == 404 && running
    }

    async fn read(&mut self, step: &CheckStep) -> Result<(), CheckOutcome> {
        self.must_read = false;
        let limit = self.context.buffer;
        let Some(link) = &mut self.link else { return Err(self.broken(&no_link(), step)) };
        let read = match &mut self.answer {
            Some(answer) => {
                // Parsed bytes have been removed from the buffer.
                let limit = limit.max(answer.raw.len() + 1);
                link.read(&mut answer.raw, limit).await
            }
            None => link.read(&mut self.facts.received, limit).await,
        };
        match read {
            Ok(0) => {
                self.ended = true;
                if let Some(answer) = &mut self.answer {
                    answer.end();
                }
            }
            Ok(_) => {}
            // Data received before a reset is evaluated; without any, the check fails.
            Err(LinkError::Io(_)) if self.has_something() => self.ended = true,
            Err(error) => return Err(self.broken(&error, step)),
        }
        if let Some(answer) = &mut self.answer {
            answer.advance(&mut self.facts);
            let output = answer.take_output();
            if let Some(link) = &mut self.link
                && !output.is_empty()
                && !self.ended
            {
                // A server that has responded and closed does not need the rest.
                let _ = link.write_all(&output).await;
            }
        }
        Ok(())
    }

    fn has_something(&self) -> bool {
        !self.facts.received.is_empty() || self.facts.transaction.has_response
    }

    fn failed(&mut self, expect: &Expect, step: &CheckStep, failure: ExpectFailure) -> CheckOutcome {
        let status = match expect.error_status {
            Some(status) if !failure.fixed => status,
            _ => failure.status,
        };
        let mut code = failure.code.unwrap_or(self.code);
        let mut info = failure.info.clone();
        if !info.is_empty() {
            info.extend_from_slice(comment(step).as_bytes());
        } else if let Some(format) = &expect.on_error {
            info = self.facts.render(format);
            info.extend_from_slice(comment(step).as_bytes());
        } else {
            info.extend_from_slice(self.usual_failure(expect, step, failure.matched).as_bytes());
        }
        if let Some(number) = expect.code.as_ref().and_then(|expression| self.facts.number(expression)) {
            code = number as i32;
        }
        CheckOutcome::new(status, code, info)
    }

    /// Returns the default message if neither the step nor the response has one.
    fn usual_failure(&self, expect: &Expect, step: &CheckStep, matched: bool) -> String {
        let (number, comment) = (step.number, comment(step));
        if !self.has_something() {
            return format!("TCPCHK got an empty response at step {number}{comment}");
        }
        if self.script.family == Family::Protocol {
            return comment;
        }
        let verb = if matched { "matched unwanted content" } else { "did not match content" };
        let what = match &expect.what {
            Matcher::Status(_) => "(status codes)".to_owned(),
            Matcher::Bytes(bytes, Spelling::Text) | Matcher::Body(bytes) => {
                format!(" '{}'", String::from_utf8_lossy(bytes))
            }
            Matcher::Bytes(_, Spelling::Hex) => " (binary)".to_owned(),
            Matcher::Regex(_) | Matcher::StatusRegex(_) | Matcher::BodyRegex(_) => " (regex)".to_owned(),
            Matcher::HexRegex(_) => " (binary regex)".to_owned(),
            Matcher::Format(_) | Matcher::BodyFormat(_) => " (log-format string)".to_owned(),
            Matcher::HexFormat(_) => " (log-format binary)".to_owned(),
            Matcher::Header(_) => " (header pattern)".to_owned(),
            Matcher::Mysql { .. } | Matcher::LdapBind | Matcher::SpopHello | Matcher::GrpcServing => {
                " (custom function)".to_owned()
            }
        };
        format!("TCPCHK {verb}{what} at step {number}{comment}")
    }

    /// Returns the outcome if everything was as expected.
    fn passed(&self, last: Option<&CheckStep>) -> CheckOutcome {
        match last.map(|step| &step.action) {
            Some(CheckAction::Expect(expect)) => {
                let mut code = self.code;
                if self.answer.is_some() && self.is_gentle_stop() {
                    return CheckOutcome::new("L7OKC", code, "");
                }
                let status = expect.ok_status.unwrap_or("L7OK");
                if let Some(info) = &self.failure_text {
                    return CheckOutcome::new(status, code, info);
                }
                let info = match &expect.on_success {
                    Some(format) => self.facts.render(format),
                    None if self.script.family == Family::Tcp => b"(tcp-check)".to_vec(),
                    None => Vec::new(),
                };
                if let Some(number) = expect.code.as_ref().and_then(|code| self.facts.number(code)) {
                    code = number as i32;
                }
                CheckOutcome::new(status, code, info)
            }
            Some(CheckAction::Connect(Connect { implied: true, .. })) => {
                let tls = self.subject.own().tls.as_ref().and_then(|tls| tls.check.as_ref());
                CheckOutcome::new(if tls.is_some() { "L6OK" } else { "L4OK" }, 0, "")
            }
            Some(CheckAction::Connect(step)) => {
                let tls = self.subject.own().tls.as_ref().and_then(|tls| tls.of_step(step));
                CheckOutcome::new(if tls.is_some() { "L6OK" } else { "L4OK" }, 0, "(tcp-check)")
            }
            _ => CheckOutcome::new("L7OK", 0, "(tcp-check)"),
        }
    }

    /// Returns how messages describe the step: ` at step 2 of tcp-check (expect string 'nope')`. Only for `option tcp-check`.
    fn place(&self, step: &CheckStep) -> String {
        if self.script.family != Family::Tcp {
            return String::new();
        }
        if step.number == 0 {
            return " at initial connection step of tcp-check".to_owned();
        }
        let what = match &step.action {
            CheckAction::Connect(Connect { port: Some(plan::check::Port::Fixed(port)), .. }) => {
                format!(" (connect port {port})")
            }
            CheckAction::Connect(_) => " (connect)".to_owned(),
            CheckAction::Send(_) | CheckAction::Request(_) => " (send)".to_owned(),
            CheckAction::Expect(expect) => match &expect.what {
                Matcher::Bytes(bytes, Spelling::Text) => {
                    format!(" (expect string '{}')", String::from_utf8_lossy(bytes))
                }
                Matcher::Bytes(bytes, Spelling::Hex) => {
                    let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
                    format!(" (expect binary '{digits}')")
                }
                Matcher::Regex(_) => " (expect regex)".to_owned(),
                Matcher::HexRegex(_) => " (expect binary regex)".to_owned(),
                Matcher::Format(_) => " (expect log-format string)".to_owned(),
                Matcher::HexFormat(_) => " (expect log-format binary)".to_owned(),
                _ => " (expect custom function)".to_owned(),
            },
            CheckAction::SetVar(..) | CheckAction::UnsetVar(_) => String::new(),
        };
        let comment = step.comment.as_ref().map(|text| format!(" comment: '{text}'")).unwrap_or_default();
        format!(" at step {} of tcp-check{what}{comment}", step.number)
    }
}

/// Returns a step's comment for appending to a message.
fn comment(step: &CheckStep) -> String {
    step.comment.as_ref().map(|text| format!(" comment: {text}")).unwrap_or_default()
}

/// Returns the error for a step without a connection: a script must begin with a connection.
fn no_link() -> LinkError {
    LinkError::Io(io::ErrorKind::NotConnected.into())
}
