//! Processes responses to an order's requests: the next step, a retry, or failure.

use std::time::Duration;

use super::{Answer, Engine, NONCES, Open, PAUSE_MAX, POLL_MAX, POLL_MIN, POLLS, Step, ToMeet, millis};
use crate::answers::{self, AcmeDirectory, Authorization, Malformed, OrderState, Ordered, Problem};

impl Engine {
    /// Processes the response to the last request.
    pub(crate) fn answered(&mut self, answer: Answer, now: u64) {
        if let Some(nonce) = answer.nonce.as_deref().and_then(|nonce| answers::word(nonce).ok()) {
            self.nonce = Some(nonce);
        }
        if !(200..300).contains(&answer.status) {
            return self.refused(&answer, now);
        }
        if self.asks_nonce {
            if self.nonce.is_none() {
                self.try_again("the server provided no nonce".to_owned(), None, now);
            }
            return;
        }
        self.nonces = 0;
        if let Err(what) = self.take(&answer, now) {
            let text = format!("the answer is malformed ({what}) when {}", self.purpose());
            self.fail(text, None);
        }
    }

    /// Processes a refusal of the last request.
    fn refused(&mut self, answer: &Answer, now: u64) {
        let problem = Problem::of(&answer.body);
        if problem.is("badNonce") && self.nonces < NONCES {
            self.nonces += 1;
            return;
        }
        if self.step == Step::FindAccount && !self.asks_nonce && problem.is("accountDoesNotExist") {
            return self.go(Step::MakeAccount);
        }
        let text =
            format!("{} (HTTP status code {}) when {}", described(&problem), answer.status, self.purpose());
        // Temporary errors are retried within the order. Refusals for a longer time are left to the next order.
        if answer.status >= 500
            && !problem.is("rateLimited")
            && answer.retry_after.is_none_or(|time| time <= PAUSE_MAX)
        {
            return self.try_again(text, answer.retry_after, now);
        }
        self.fail(text, answer.retry_after);
    }

    /// Processes the response of a step.
    fn take(&mut self, answer: &Answer, now: u64) -> Result<(), Malformed> {
        match self.step {
            Step::Directory => {
                self.directory = Some(AcmeDirectory::parse(&answer.body)?);
                self.go(Step::FindAccount);
            }
            Step::FindAccount | Step::MakeAccount => {
                self.account = Some(location(answer)?);
                self.go(Step::NewOrder);
            }
            Step::NewOrder => {
                let order = Ordered::parse(&answer.body)?;
                self.order = location(answer)?;
                self.authorizations.clone_from(&order.authorizations);
                self.finalize.clone_from(&order.finalize);
                if self.authorizations.is_empty() {
                    return Err("no authorizations");
                }
                self.go(Step::Authorize(0));
            }
            Step::Authorize(at) => self.authorization(at, answer)?,
            Step::Submit(at) => {
                let next = at + 1;
                self.go(if next < self.open.len() { Step::Submit(next) } else { Step::Validate(0) });
                // No authority validates immediately.
                self.not_before = now + if next < self.open.len() { 0 } else { millis(POLL_MIN) };
            }
            Step::Validate(at) => self.validated(at, answer, now)?,
            Step::Order => self.order_is(&Ordered::parse(&answer.body)?, answer.retry_after, now),
            Step::Finalize => {
                let order = Ordered::parse(&answer.body)?;
                self.go(Step::Order);
                self.order_is(&order, answer.retry_after, now);
            }
            Step::Download => {
                if !answer.body.starts_with(b"-----BEGIN CERTIFICATE-----") {
                    return Err("no certificate");
                }
                self.go(Step::Issued(answer.body.clone()));
            }
            Step::Meet | Step::Issued(_) | Step::Failed(_) => {}
        }
        Ok(())
    }

    fn authorization(&mut self, at: usize, answer: &Answer) -> Result<(), Malformed> {
        let kind = self.wanted.challenge.name();
        let read = Authorization::parse(&answer.body, kind)?;
        if !self.is_ours(&read) {
            return Err("unexpected authorization for another name");
        }
        match (read.status, read.challenge) {
            (OrderState::Valid, _) => {}
            (OrderState::Over, _) => {
                let why = described(&read.problem.unwrap_or_default());
                self.fail(format!("the authorization of {} is invalid: {why}", read.name), None);
                return Ok(());
            }
            (_, None) => {
                let text = format!("the server offers no {kind} challenge for {}", read.name);
                self.fail(text, None);
                return Ok(());
            }
            (_, Some(challenge)) => {
                if challenge.token.is_empty() && self.wanted.challenge != plan::acme::Challenge::DnsPersist {
                    return Err("a challenge without a token");
                }
                let meet = ToMeet {
                    name: read.name,
                    is_address: read.is_address,
                    authorization: self.key.authorization(&challenge.token),
                    token: challenge.token,
                    issuers: challenge.issuers,
                    body: answer.body.clone(),
                };
                let url = self.authorizations.get(at).cloned().unwrap_or_default();
                self.open.push(Open { url, challenge: challenge.url, meet });
            }
        }
        let next = at + 1;
        self.go(match next < self.authorizations.len() {
            true => Step::Authorize(next),
            false if self.open.is_empty() => Step::Order,
            false => Step::Meet,
        });
        Ok(())
    }

    /// Whether a name is among those ordered: an authority must not make Weir prove control of others.
    pub(super) fn is_ours(&self, read: &Authorization) -> bool {
        if read.is_address {
            return read.name.parse().is_ok_and(|address| self.wanted.addresses.contains(&address));
        }
        self.wanted.domains.iter().any(|name| match name.strip_prefix("*.") {
            Some(name) => read.is_wildcard && name.eq_ignore_ascii_case(&read.name),
            None => name.eq_ignore_ascii_case(&read.name),
        })
    }

    fn validated(&mut self, at: usize, answer: &Answer, now: u64) -> Result<(), Malformed> {
        let read = Authorization::parse(&answer.body, self.wanted.challenge.name())?;
        match read.status {
            OrderState::Valid => {
                let next = at + 1;
                self.go(if next < self.open.len() { Step::Validate(next) } else { Step::Order });
            }
            OrderState::Over => {
                let why = described(&read.problem.unwrap_or_default());
                let text = format!("challenge error: {why} (HTTP status code {})", answer.status);
                self.fail(text, None);
            }
            _ => self.poll_again(answer.retry_after, now),
        }
        Ok(())
    }

    fn order_is(&mut self, order: &Ordered, retry_after: Option<Duration>, now: u64) {
        match (order.status, &order.certificate) {
            (OrderState::Ready, _) => self.go(Step::Finalize),
            (OrderState::Valid, Some(certificate)) => {
                self.certificate.clone_from(certificate);
                self.go(Step::Download);
            }
            (OrderState::Over, _) => {
                let why = described(&order.problem.clone().unwrap_or_default());
                self.fail(format!("the order is invalid: {why}"), None);
            }
            _ => self.poll_again(retry_after, now),
        }
    }

    fn poll_again(&mut self, after: Option<Duration>, now: u64) {
        self.polls += 1;
        if self.polls >= POLLS {
            let text = format!("the server did not finish {} in time", self.purpose());
            return self.fail(text, None);
        }
        let own = (POLL_MIN * self.polls).min(POLL_MAX);
        self.not_before = now + millis(after.map_or(own, |time| time.clamp(POLL_MIN, PAUSE_MAX)));
    }
}

fn location(answer: &Answer) -> Result<String, Malformed> {
    answers::url(answer.location.as_deref().ok_or("missing Location header")?)
}

fn described(problem: &Problem) -> String {
    match (&*problem.detail, &*problem.kind) {
        ("", "") => "no reason given".to_owned(),
        (detail, "") => format!("\"{detail}\""),
        (detail, kind) => format!("\"{detail}\" ({kind})"),
    }
}
