//! Running the rule sets of a frontend and a backend, and doing what their verdicts ask of the connection.

use std::sync::Arc;
use std::time::Duration;

use config::plan::Proxy;
use config::plan::proxy::RestrictNames;
use rules::{Final, Hold, Outcome, RuleSet, Stage};
use runtime::timer::{self, now_ms};
use sample::transaction::TimeoutSlot;
use sample::value::Value;
use sample::{Cause, Phase};

use crate::assign;
use crate::connection::Connection;
use crate::envs;
use crate::exchange::{Exchange, Stop, Upgrade};
use crate::fault::Fault;
use crate::pool::Upstream;
use crate::route::holds;
use crate::sockets::Sockets;
use crate::{relay, report, respond, response, service, upload};

/// What rules on a connection that has no request yet say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TcpVerdict {
    Go(Expected),
    Refuse,
}

/// The headers that rules want before the first byte of a connection (`expect-proxy`, `expect-netscaler-cip`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Expected {
    pub proxy: bool,
    pub netscaler: bool,
}

/// `tcp-request connection`.
pub(crate) fn tcp_connection(client: &mut Connection) -> TcpVerdict {
    let frontend = client.frontend.clone();
    let verdict = on_connection(client, &frontend.tcp_connection);
    // At this point the connection itself is what `set-src` and `set-dst` change.
    client.session.forget_own();
    verdict
}

/// `tcp-request session`.
pub(crate) fn tcp_session(client: &mut Connection) -> TcpVerdict {
    let frontend = client.frontend.clone();
    on_connection(client, &frontend.tcp_session)
}

fn on_connection(client: &mut Connection, rules: &RuleSet) -> TcpVerdict {
    if rules.is_empty() {
        return TcpVerdict::Go(Expected::default());
    }
    let sockets = Sockets::of_client(client);
    let mut expected = Expected::default();
    let mut start = 0;
    loop {
        let mut stage = Stage {
            process: &client.worker.shared.process,
            session: &mut client.session,
            transaction: None,
            request_bytes: &[],
            response_bytes: &[],
            longest_head: usize::MAX,
            sockets: Some(&sockets),
            complete: true,
            now_ms: now_ms(),
        };
        let (outcome, next) = rules.run(&mut stage, start);
        start = next;
        match outcome {
            Outcome::Final(Final::SilentDrop { rst_ttl }) => {
                client.stream.vanish(rst_ttl);
                return TcpVerdict::Refuse;
            }
            Outcome::Final(_) => return TcpVerdict::Refuse,
            Outcome::Hold(Hold::ExpectProxy) => expected.proxy = true,
            Outcome::Hold(Hold::ExpectNetscaler) => expected.netscaler = true,
            Outcome::Hold(Hold::Tos(tos)) => client.stream.set_tos(tos),
            Outcome::Hold(Hold::Mark(mark)) => client.stream.set_mark(mark),
            Outcome::Hold(Hold::Log { origin, profile }) => {
                report::on_demand(client, None, origin, profile.as_deref());
            }
            Outcome::Hold(_) => {}
            Outcome::Done | Outcome::Accept | Outcome::Wait => return TcpVerdict::Go(expected),
        }
    }
}

/// All that a frontend says of a request: `tcp-request content`, `http-request`, `redirect`, statistics.
pub(crate) async fn of_frontend(client: &mut Connection, x: &mut Exchange) -> Result<(), Stop> {
    if has_nothing_to_ask(&client.frontend) {
        return Ok(());
    }
    let frontend = client.frontend.clone();
    if frontend.monitor_uri.is_some() {
        monitor(client, x, &frontend)?;
    }
    if frontend.options.http_buffer_request && upload::has_body(x) {
        hold_body(client, x, &frontend, usize::MAX, None).await?;
    }
    on_request(client, x, &frontend).await
}

/// Whether a proxy has no rule about requests: the usual case costs a look.
fn has_nothing_to_ask(proxy: &Proxy) -> bool {
    proxy.http_request.is_empty()
        && proxy.tcp_request.is_empty()
        && proxy.redirects.is_empty()
        && proxy.stats.is_none()
        && proxy.monitor_uri.is_none()
        && !proxy.options.http_buffer_request
        && proxy.options.restrict_header_names == RestrictNames::default()
}

/// All that the backend says, unless it is the frontend too.
pub(crate) async fn of_backend(
    client: &mut Connection,
    x: &mut Exchange,
    backend: &Proxy,
) -> Result<(), Stop> {
    if backend.index == client.frontend.index || has_nothing_to_ask(backend) {
        return Ok(());
    }
    on_request(client, x, backend).await
}

async fn on_request(client: &mut Connection, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    if client.worker.shared.plan.variables.wants_bodies() {
        upload::look(client, x);
    }
    let were_run = x.upgrade == Upgrade::ByRule && proxy.index == client.frontend.index;
    if !proxy.tcp_request.is_empty() && !were_run {
        let accepted = Box::pin(run(client, x, proxy, &proxy.tcp_request, None)).await;
        if accepted == Err(Stop::Close) && proxy.index == client.frontend.index {
            // These rules come before the request is looked at as one.
            x.txn.request_line = None;
            x.txn.times.request = 0;
        }
        accepted?;
    }
    restrict_names(client, x, proxy)?;
    if !proxy.http_request.is_empty() {
        run(client, x, proxy, &proxy.http_request, None).await?;
    }
    if !proxy.redirects.is_empty() {
        run(client, x, proxy, &proxy.redirects, None).await?;
    }
    if proxy.stats.is_some() {
        Box::pin(service::statistics(client, x, proxy)).await?;
    }
    Ok(())
}

/// `option http-restrict-req-hdr-names`: before the proxy's rules see the request.
fn restrict_names(client: &Connection, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    let policy = match proxy.options.restrict_header_names {
        RestrictNames::Reject => http::RestrictNames::Reject,
        RestrictNames::Delete => http::RestrictNames::Delete,
        _ => return Ok(()),
    };
    if x.txn.request.restrict_names(policy) {
        return Ok(());
    }
    count_denied_request(client, x);
    x.txn.termination.set(Cause::Proxy, Phase::Request);
    respond::error(client, x, 403);
    Err(Stop::Reply)
}

/// Which message a rule set is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Request,
    Response,
}

/// Runs one rule set to its end, doing on the way what its rules wait for. With `upstream` the set is about the
/// response that comes from there. Says whether a rule ended it by accepting.
pub(crate) async fn run(
    client: &mut Connection,
    x: &mut Exchange,
    proxy: &Proxy,
    rules: &RuleSet,
    mut upstream: Option<&mut Upstream>,
) -> Result<bool, Stop> {
    let side = if upstream.is_some() { Side::Response } else { Side::Request };
    let mut start = 0;
    loop {
        let held = match &upstream {
            Some(upstream) => &upstream.input,
            None => &client.input,
        };
        let held = held.as_ref().map_or(0, |input| input.filled().len());
        let (outcome, next) = step(client, x, rules, start, held);
        start = next;
        match outcome {
            Outcome::Done => return Ok(false),
            // A stream of HTTP is there already.
            Outcome::Accept | Outcome::Final(Final::SwitchMode) => return Ok(true),
            Outcome::Hold(Hold::Body { at_least, timeout_ms }) if upstream.is_some() => {
                if let Some(upstream) = &mut upstream {
                    let wanted = if at_least == 0 { usize::MAX } else { at_least };
                    Box::pin(response::hold(client, x, upstream, wanted, timeout_ms)).await?;
                }
            }
            Outcome::Wait => {
                // In HTTP mode all that can be waited for is the body.
                Box::pin(hold_body(client, x, proxy, usize::MAX, None)).await?;
            }
            Outcome::Hold(hold) => Box::pin(do_hold(client, x, proxy, hold)).await?,
            Outcome::Final(verdict) => return Err(Box::pin(conclude(client, x, proxy, verdict, side)).await),
        }
    }
}

/// Runs `rules` from number `start` on; `held` is how much of the body is in the message's buffer.
fn step(
    client: &mut Connection,
    x: &mut Exchange,
    rules: &RuleSet,
    start: usize,
    held: usize,
) -> (Outcome, usize) {
    let tune = &client.worker.shared.plan.global.tune;
    let head = if x.txn.has_response { &x.txn.response } else { &x.txn.request };
    let longest_head = (head.received_len() + tune.maxrewrite).max(tune.bufsize.saturating_sub(held));
    let sockets = Sockets::of(client, x);
    let mut stage = Stage {
        process: &client.worker.shared.process,
        session: &mut client.session,
        transaction: Some(&mut x.txn),
        request_bytes: &x.body,
        response_bytes: &x.response_bytes,
        longest_head,
        sockets: Some(&sockets),
        complete: true,
        now_ms: now_ms(),
    };
    rules.run(&mut stage, start)
}

pub(crate) async fn hold_body(
    client: &mut Connection,
    x: &mut Exchange,
    proxy: &Proxy,
    wanted: usize,
    time: Option<Duration>,
) -> Result<(), Stop> {
    let timeouts = &client.frontend.timeouts;
    let allowed = time.or(timeouts.http_request).or(proxy.timeouts.http_request).or(timeouts.client);
    upload::hold(client, x, wanted, allowed).await
}

async fn do_hold(client: &mut Connection, x: &mut Exchange, proxy: &Proxy, hold: Hold) -> Result<(), Stop> {
    match hold {
        Hold::Body { at_least, timeout_ms } => {
            let wanted = if at_least == 0 { usize::MAX } else { at_least };
            hold_body(client, x, proxy, wanted, Some(Duration::from_millis(timeout_ms))).await
        }
        Hold::Pause(ms) => {
            timer::sleep(Duration::from_millis(ms)).await;
            Ok(())
        }
        Hold::EarlyHint(head) => {
            if x.txn.request.version().is_11_or_above() {
                client.timer.set_after(now_ms(), client.frontend.timeouts.client);
                upload::write_all(client, &head).await?;
                x.txn.bytes_out += head.len() as u64;
            }
            Ok(())
        }
        Hold::Tos(tos) => {
            client.stream.set_tos(tos);
            Ok(())
        }
        Hold::Mark(mark) => {
            client.stream.set_mark(mark);
            Ok(())
        }
        Hold::Log { origin, profile } => {
            report::on_demand(client, Some(x), origin, profile.as_deref());
            Ok(())
        }
        Hold::Resolve { section, name, prefer, var } => {
            let found = (client.worker.shared.services.resolve)(&section, name, prefer).await;
            if let Some(address) = found {
                envs::with(client, x, |env| var.set(env, &Value::ip(address)));
            }
            Ok(())
        }
        Hold::ExpectProxy | Hold::ExpectNetscaler => Ok(()),
    }
}

/// What a final verdict makes of the request.
async fn conclude(
    client: &mut Connection,
    x: &mut Exchange,
    proxy: &Proxy,
    verdict: Final,
    side: Side,
) -> Stop {
    match verdict {
        Final::Deny(reply) if side == Side::Response => {
            count_denied_response(client, x, proxy);
            x.txn.termination.set(Cause::Proxy, Phase::Headers);
            x.txn.times.response = 0;
            answer(client, x, &reply)
        }
        Final::Reply(reply) if side == Side::Response => {
            x.txn.termination.set(Cause::Local, Phase::Headers);
            x.txn.times.response = 0;
            answer(client, x, &reply)
        }
        Final::Reject | Final::CloseServer if side == Side::Response => {
            x.txn.times.response = 0;
            x.txn.status = 0;
            if matches!(verdict, Final::Reject) {
                count_denied_response(client, x, proxy);
                x.txn.termination.set(Cause::Proxy, Phase::Data);
                return Stop::Close;
            }
            let server = x.txn.server.as_ref().map(|server| server.counters.mine());
            for counters in [Some(proxy.state.backend.mine()), server].into_iter().flatten() {
                counters.response_errors.add(1);
            }
            Stop::Fault(Fault::EmptyResponse)
        }
        Final::Deny(reply) => {
            count_denied_request(client, x);
            x.txn.termination.set(Cause::Proxy, Phase::Request);
            answer(client, x, &reply)
        }
        Final::Tarpit(reply) => {
            count_denied_request(client, x);
            let timeouts = &proxy.timeouts;
            let pause = x.timeout(TimeoutSlot::Tarpit, timeouts.tarpit.or(timeouts.connect));
            let waited = assign::pause(client, pause.unwrap_or_default(), true).await;
            // As HAProxy logs it: time spent in a queue, of a request that never was.
            (x.txn.times.request, x.txn.times.queued) = (0, timer::now_us());
            if let Err(fault) = waited {
                x.phase = Phase::Tarpit;
                return Stop::Fault(fault);
            }
            x.txn.termination.set(Cause::Proxy, Phase::Tarpit);
            answer(client, x, &reply)
        }
        Final::Reply(reply) => {
            x.txn.termination.set(Cause::Local, Phase::Request);
            answer(client, x, &reply)
        }
        Final::Reject => {
            count_denied_request(client, x);
            x.txn.termination.set(Cause::Proxy, Phase::Request);
            Stop::Close
        }
        Final::SilentDrop { rst_ttl } => {
            count_denied_request(client, x);
            x.txn.termination.set(Cause::Proxy, Phase::Request);
            client.stream.vanish(rst_ttl);
            Stop::Close
        }
        Final::Service(service) => service::run(client, x, service).await,
        Final::Internal | Final::SwitchMode | Final::CloseServer => Stop::Fault(Fault::Internal),
    }
}

fn count_denied_request(client: &Connection, x: &Exchange) {
    client.count(|traffic| traffic.denied_requests.add(1));
    if let Some(backend) = &x.backend {
        backend.state.backend.mine().traffic.denied_requests.add(1);
    }
}

pub(crate) fn count_denied_response(client: &Connection, x: &Exchange, proxy: &Proxy) {
    client.count(|traffic| traffic.denied_responses.add(1));
    proxy.state.backend.mine().traffic.denied_responses.add(1);
    if let Some(server) = &x.txn.server {
        server.counters.mine().traffic.denied_responses.add(1);
    }
}

/// The reply of a rule: its own, or the page of its status.
fn answer(client: &Connection, x: &mut Exchange, reply: &Arc<rules::Reply>) -> Stop {
    match (reply.bare_status(), &reply.content) {
        (Some(status), _) => respond::error(client, x, status),
        (_, rules::Content::Challenge(realm)) => {
            respond::error(client, x, reply.status);
            rules::challenge(reply.status, realm, &mut x.txn.response);
        }
        (_, rules::Content::Message(_)) => {
            respond::render(client, x, reply);
            // The file is sent as it is; logs and statistics tell what the rule says.
            x.error_status = reply.status;
        }
        _ => respond::render(client, x, reply),
    }
    Stop::Reply
}

/// `http-response` of the backend, then of the frontend; `tcp-response` before them.
pub(crate) async fn of_response(
    client: &mut Connection,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
) -> Result<(), Stop> {
    if client.worker.shared.plan.variables.wants_bodies() {
        response::look(x, upstream);
    }
    if !backend.tcp_response.is_empty() {
        Box::pin(run(client, x, backend, &backend.tcp_response, Some(upstream))).await?;
    }
    if !backend.http_response.is_empty() {
        run(client, x, backend, &backend.http_response, Some(upstream)).await?;
    }
    if client.frontend.index != backend.index && !client.frontend.http_response.is_empty() {
        let frontend = client.frontend.clone();
        run(client, x, &frontend, &frontend.http_response, Some(upstream)).await?;
    }
    let held = upstream.input.as_ref().map_or(0, |input| input.filled().len());
    after_response(client, x, held)?;
    Ok(())
}

/// `http-after-response` of the backend, then of the frontend: on every response, whoever made it, to a request that
/// was understood.
///
/// # Errors
/// A rewrite failed under `strict-mode on`.
pub(crate) fn after_response(client: &mut Connection, x: &mut Exchange, held: usize) -> Result<(), Fault> {
    let none = |proxy: &Proxy| proxy.http_after_response.is_empty();
    if none(&client.frontend) && x.backend.as_ref().is_none_or(|backend| none(backend))
        || x.txn.request.method().is_empty()
    {
        return Ok(());
    }
    let frontend = client.frontend.clone();
    let backend = x.backend.clone().filter(|backend| backend.index != frontend.index);
    for proxy in backend.iter().chain(Some(&frontend)) {
        if !proxy.http_after_response.is_empty() {
            after_response_of(client, x, &proxy.http_after_response, held)?;
        }
    }
    Ok(())
}

/// These rules change the response and log: they do not wait, and end it only by failing.
fn after_response_of(
    client: &mut Connection,
    x: &mut Exchange,
    rules: &RuleSet,
    held: usize,
) -> Result<(), Fault> {
    let mut start = 0;
    loop {
        match step(client, x, rules, start, held) {
            (Outcome::Hold(hold), next) => {
                start = next;
                if let Hold::Log { origin, profile } = hold {
                    report::on_demand(client, Some(x), origin, profile.as_deref());
                }
            }
            (Outcome::Final(Final::Internal), _) => return Err(Fault::Internal),
            _ => return Ok(()),
        }
    }
}

/// `monitor-uri` and `monitor fail`. The target matches as it came, or by its path when it is in absolute form.
fn monitor(client: &Connection, x: &mut Exchange, frontend: &Proxy) -> Result<(), Stop> {
    let target = x.txn.request.target();
    let wanted = frontend.monitor_uri.as_deref();
    if wanted != Some(target) && wanted != http::uri::split(target).pathq() {
        return Ok(());
    }
    let failed = envs::with(client, x, |env| {
        frontend.monitor_fail.iter().any(|condition| holds(Some(condition), env))
    });
    x.txn.termination.set(Cause::Local, Phase::Request);
    x.txn.log_level = Some(None);
    respond::error(client, x, if failed { 503 } else { 200 });
    Err(Stop::Reply)
}

/// `tcp-request content` of a TCP frontend, waiting up to `inspect-delay` for what its rules look at.
pub(crate) async fn of_tcp_frontend(client: &mut Connection, x: &mut Exchange) -> Result<(), Stop> {
    let frontend = client.frontend.clone();
    on_stream(client, x, &frontend).await
}

/// Likewise of the backend, unless it is the frontend too.
pub(crate) async fn of_tcp_backend(
    client: &mut Connection,
    x: &mut Exchange,
    backend: &Proxy,
) -> Result<(), Stop> {
    if backend.index == client.frontend.index { Ok(()) } else { on_stream(client, x, backend).await }
}

async fn on_stream(client: &mut Connection, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    if proxy.tcp_request.is_empty() {
        return Ok(());
    }
    let until = proxy.request_inspect_delay.map_or(0, |delay| now_ms() + delay.as_millis() as u64);
    let mut start = 0;
    let mut complete = false;
    loop {
        let bytes = client.input.as_ref().map_or(&[][..], |input| input.filled());
        let sockets = Sockets::of(client, x);
        let mut stage = Stage {
            process: &client.worker.shared.process,
            session: &mut client.session,
            transaction: Some(&mut x.txn),
            request_bytes: bytes,
            response_bytes: &[],
            longest_head: usize::MAX,
            sockets: Some(&sockets),
            complete: complete || now_ms() >= until,
            now_ms: now_ms(),
        };
        let (outcome, next) = proxy.tcp_request.run(&mut stage, start);
        start = next;
        match outcome {
            Outcome::Done | Outcome::Accept => return Ok(()),
            Outcome::Wait => complete = !Box::pin(relay::more(client, until)).await,
            Outcome::Final(Final::SwitchMode) => return Err(Stop::Upgrade(Upgrade::ByRule)),
            Outcome::Hold(hold) => Box::pin(do_hold(client, x, proxy, hold)).await?,
            Outcome::Final(verdict) => {
                count_denied_request(client, x);
                x.txn.termination.set(Cause::Proxy, Phase::Request);
                if let Final::SilentDrop { rst_ttl } = verdict {
                    client.stream.vanish(rst_ttl);
                }
                return Err(Stop::Close);
            }
        }
    }
}

/// `tcp-response content` of a TCP backend: looked at when the server's first bytes are there, and again with more
/// of them until `inspect-delay` is over.
pub(crate) async fn of_tcp_response(
    client: &mut Connection,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
) -> Result<(), Stop> {
    if backend.tcp_response.is_empty() {
        return Ok(());
    }
    // Nothing is looked at before the server says something.
    let patience = backend.timeouts.server.map_or(timer::NEVER, |time| now_ms() + time.as_millis() as u64);
    let mut complete = !Box::pin(response::more(client, x, upstream, patience)).await;
    let until = backend.response_inspect_delay.map_or(0, |delay| now_ms() + delay.as_millis() as u64);
    let mut start = 0;
    loop {
        let bytes = upstream.input.as_ref().map_or(&[][..], |input| input.filled());
        let sockets = Sockets::of(client, x);
        let mut stage = Stage {
            process: &client.worker.shared.process,
            session: &mut client.session,
            transaction: Some(&mut x.txn),
            request_bytes: &[],
            response_bytes: bytes,
            longest_head: usize::MAX,
            sockets: Some(&sockets),
            complete: complete || now_ms() >= until,
            now_ms: now_ms(),
        };
        let (outcome, next) = backend.tcp_response.run(&mut stage, start);
        start = next;
        match outcome {
            Outcome::Done | Outcome::Accept => return Ok(()),
            Outcome::Wait => complete = !Box::pin(response::more(client, x, upstream, until)).await,
            Outcome::Hold(hold) => Box::pin(do_hold(client, x, backend, hold)).await?,
            Outcome::Final(_) => {
                count_denied_response(client, x, backend);
                x.txn.termination.set(Cause::Proxy, Phase::Data);
                return Err(Stop::Close);
            }
        }
    }
}
