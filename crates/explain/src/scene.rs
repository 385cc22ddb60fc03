//! A connection and a request that exist only for the explanation.

use plan::Plan;
use plan::proxy::Proxy;
use rules::{RuleOutcome, RuleSet, Stage};
use runtime::Local;
use runtime::timer::{now_ms, now_us};
use sample::{Accepted, Endpoint, Ends, Env, Session, Transaction};
use state::{Mode, Process};
use std::sync::Arc;

use crate::entry::{self, Entry};
use crate::question::Question;
use crate::report::Explanation;

/// The request, with the configuration and state that apply to it.
pub(crate) struct Scene<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) process: &'a Process,
    pub(crate) frontend: &'a Proxy,
    pub(crate) session: Session,
    pub(crate) transaction: Transaction,
}

impl<'a> Scene<'a> {
    /// Creates the connection and the request.
    ///
    /// # Errors
    /// The method or a header is invalid.
    pub(crate) fn new(
        plan: &'a Plan,
        process: &'a Process,
        question: &Question,
        (index, bind): Entry,
    ) -> Result<Self, String> {
        let frontend: &Proxy = &plan.proxies[index];
        let bind = bind.map(|number| &frontend.binds[number]);
        let listener = match bind {
            Some(bind) => bind.listener.clone(),
            None => Arc::new(state::Listener::new(0, "".into(), "".into(), 0)),
        };
        let destination = bind.and_then(entry::destination).map_or(Endpoint::Local, Endpoint::Ip);
        let now = now_us();
        let session = Session::new(Accepted {
            ends: Ends { source: Endpoint::Ip(question.source), destination },
            wall_us: base::clock::WallTime::now().since_1970_us(),
            us: now,
            frontend: Local::new(frontend.state.clone()),
            listener: Local::new(listener),
            id: 0,
        });
        session.http_major.set(1);
        session.requests.set(1);
        let is_tls = question.is_tls.unwrap_or_else(|| bind.is_some_and(entry::uses_tls));
        if is_tls {
            let sni = Some(question.host.as_str()).filter(|host| !host.is_empty()).map(Into::into);
            // TLS 1.3.
            session.set_tls(Arc::new(tls::Details { version: 0x304, sni, ..tls::Details::default() }));
        }
        let mut transaction = Transaction { is_http: frontend.mode == Mode::Http, ..Transaction::default() };
        transaction.times.started = now;
        transaction.times.request = now;
        compose(question, &mut transaction)?;
        Ok(Self { plan, process, frontend, session, transaction })
    }

    /// The view of the request for expressions.
    pub(crate) fn env(&self) -> Env<'_> {
        Env::of(self.process, &self.session, &self.transaction, now_ms())
    }

    /// Runs a rule set and reports its rules. Returns the end of the request, if a rule ends it. Before there is a request
    /// (`has_request`), rules only see the connection.
    pub(crate) fn run(
        &mut self,
        set: &RuleSet,
        has_request: bool,
        title: &str,
        report: &mut Explanation<'_>,
    ) -> Option<String> {
        if set.is_empty() {
            return None;
        }
        report.heading(title);
        let mut stage = Stage::of_session(self.process, &self.session, now_ms());
        stage.transaction = has_request.then_some(&mut self.transaction);
        let outcome = set.explain(&mut stage, &mut |rule| report.rule(&rule));
        match outcome {
            RuleOutcome::Final(_) => Some(report.end_of_last_rule()),
            RuleOutcome::Done | RuleOutcome::Accept | RuleOutcome::Wait | RuleOutcome::Hold(_) => None,
        }
    }

    /// Whether the request's target or its path and query equal `target`.
    pub(crate) fn is_target(&self, target: &[u8]) -> bool {
        let own = self.transaction.request.target();
        own == target || http::uri::split(own).pathq() == Some(target)
    }

    /// Whether the request's path begins with `prefix`.
    pub(crate) fn begins_with(&self, prefix: &[u8]) -> bool {
        let own = self.transaction.request.target();
        http::uri::split(own).pathq().is_some_and(|path| path.starts_with(prefix))
    }

    /// Reports the request and its frontend.
    pub(crate) fn describe(&self, question: &Question, report: &mut Explanation<'_>) {
        let request = &self.transaction.request;
        let host = request.get_known(http::KnownName::Host).unwrap_or_default();
        let tls = if self.session.tls().is_some() { " over TLS" } else { "" };
        report.fact(
            "request",
            &format!(
                "{} {} for host `{}`, from {}{tls}",
                question.method,
                question.path,
                String::from_utf8_lossy(host),
                question.source.ip()
            ),
        );
        report.fact("frontend", &report.place_of("frontend", &self.frontend.state.name));
    }
}

/// Makes the request head.
fn compose(question: &Question, transaction: &mut Transaction) -> Result<(), String> {
    let head = &mut transaction.request;
    if !http::is_token(question.method.as_bytes()) {
        return Err(format!("`{}` is not a valid method.", question.method));
    }
    head.start_request(question.method.as_bytes(), question.path.as_bytes());
    let is_host = |name: &str| name.eq_ignore_ascii_case("host");
    if !question.headers.iter().any(|(name, _)| is_host(name)) && !question.host.is_empty() {
        let port = question.port.map_or_else(String::new, |port| format!(":{port}"));
        head.append(b"host", format!("{}{port}", question.host).as_bytes());
    }
    for (name, value) in &question.headers {
        if !head.append(name.as_bytes(), value.as_bytes()) {
            return Err(format!("The header `{name}` is invalid or too long."));
        }
    }
    Ok(())
}
