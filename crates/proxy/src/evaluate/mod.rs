//! Runs the rule sets of a frontend and a backend, in the order in which they apply to a connection, a request and a response.
//!
//! [`driver`] runs all sets, and [`verdict`] applies their verdicts to a message.

mod driver;
mod hold;
pub(crate) mod lua;
pub(crate) mod quic_initial;
mod resolve;
mod rule_context;
pub(crate) mod spoe;
mod statistics;
mod verdict;

use plan::Proxy;
use plan::proxy::RestrictNames;
use plan::spoe::MessageEvent;
use runtime::timer::now_ms;
use sample::{Cause, Phase};

use crate::answers::page;
use crate::client::Client;
use crate::client::handshake::Expected;
use crate::exchange::cache::lookup;
use crate::exchange::trace;
use crate::exchange::view;
use crate::exchange::view::holds;
use crate::exchange::{Exchange, Stop, Upgrade};
use crate::fault::Fault;
use crate::flow::Analyser;
use crate::message::upload;
use crate::message::wanted::BodyWait;
use crate::message::{inspect, request};
use crate::server::Upstream;
use hold::RuleSetEnd;
use rule_context::RuleContext;
use verdict::count_denied_request;

pub(crate) use hold::{Attach, hold_body};
pub(crate) use verdict::count_denied_response;

/// `tcp-request connection`: returns the headers that rules expect before the first byte.
///
/// # Errors
/// The connection is refused.
pub(crate) async fn tcp_connection(client: &mut Client) -> Result<Expected, Stop> {
    let frontend = client.frontend.clone();
    let ended = driver::run(client, None, &frontend.tcp_connection, &mut RuleContext::Connection).await;
    // Here, `set-src` and `set-dst` change the connection itself.
    client.session.forget_own();
    Ok(ended?.expected)
}

/// `tcp-request session`. Returns the server to which a rule attaches the connection, if any.
///
/// # Errors
/// The connection is refused.
pub(crate) async fn tcp_session(client: &mut Client) -> Result<Option<Box<Attach>>, Stop> {
    let frontend = client.frontend.clone();
    let ended = driver::run(client, None, &frontend.tcp_session, &mut RuleContext::Connection).await?;
    Ok(ended.attach)
}

/// All request rules of a frontend: `tcp-request content`, `http-request`, `redirect`, statistics.
pub(crate) async fn of_frontend(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    if has_nothing_to_ask(&client.frontend) && x.trace.is_none() && x.engaged.is_none() {
        x.note_request(client);
        return Ok(());
    }
    let frontend = client.frontend.clone();
    trace::filter::enter(x, Analyser::InspectFrontend);
    if x.engaged.is_some() {
        spoe::on(client, x, MessageEvent::FrontendTcpRequest).await?;
    }
    on_content(client, x, &frontend).await?;
    x.note_request(client);
    trace::filter::leave(x, Analyser::InspectFrontend);
    trace::filter::enter(x, Analyser::WaitRequest);
    if frontend.monitor_uri.is_some() {
        monitor(client, x, &frontend)?;
    }
    let holds = frontend.options.http_buffer_request && x.has_body();
    trace::filter::received(x, holds);
    if holds {
        hold_body(client, x, &frontend, BodyWait::ALL, None).await?;
        trace::filter::leave(x, Analyser::RequestBody);
    }
    trace::filter::enter(x, Analyser::ProcessFrontend);
    if x.engaged.is_some() {
        spoe::on(client, x, MessageEvent::FrontendHttpRequest).await?;
    }
    on_request(client, x, &frontend).await?;
    trace::filter::leave(x, Analyser::ProcessFrontend);
    trace::filter::enter(x, Analyser::Switch);
    Ok(())
}

/// Whether a proxy has no request rules. This is the usual case, and it costs no more than this check.
fn has_nothing_to_ask(proxy: &Proxy) -> bool {
    proxy.http_request.is_empty()
        && proxy.tcp_request.is_empty()
        && proxy.redirects.is_empty()
        && proxy.stats.is_none()
        && proxy.monitor_uri.is_none()
        && !proxy.options.http_buffer_request
        && proxy.options.restrict_header_names == RestrictNames::default()
}

/// All request rules of the backend, unless the backend is the frontend itself.
pub(crate) async fn of_backend(client: &mut Client, x: &mut Exchange, backend: &Proxy) -> Result<(), Stop> {
    if backend.index == client.frontend.index
        || has_nothing_to_ask(backend) && x.trace.is_none() && x.engaged.is_none()
    {
        return Ok(());
    }
    trace::filter::enter(x, Analyser::InspectBackend);
    if x.engaged.is_some() {
        spoe::on(client, x, MessageEvent::BackendTcpRequest).await?;
    }
    on_content(client, x, backend).await?;
    x.txn.trackers.count_request(now_ms());
    trace::filter::leave(x, Analyser::InspectBackend);
    trace::filter::enter(x, Analyser::ProcessBackend);
    if x.engaged.is_some() {
        spoe::on(client, x, MessageEvent::BackendHttpRequest).await?;
    }
    on_request(client, x, backend).await?;
    trace::filter::leave(x, Analyser::ProcessBackend);
    Ok(())
}

/// `tcp-request content` in HTTP mode. Runs before the other rules.
async fn on_content(client: &mut Client, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    if client.worker.shared.plan.variables.wants_bodies() {
        upload::look(client, x);
    }
    let were_run = matches!(x.upgrade, Upgrade::ByRule(_)) && proxy.index == client.frontend.index;
    if proxy.tcp_request.is_empty() || were_run {
        return Ok(());
    }
    let until = proxy.request_inspect_delay.map_or(0, |delay| now_ms() + delay.as_millis() as u64);
    let about = &mut RuleContext::Content { proxy, until };
    let accepted = Box::pin(driver::run(client, Some(x), &proxy.tcp_request, about)).await;
    if matches!(accepted, Err(Stop::Close)) && proxy.index == client.frontend.index {
        x.txn.request_line = None;
        x.txn.times.request = 0;
    }
    accepted.map(drop)
}

async fn on_request(client: &mut Client, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    restrict_names(client, x, proxy)?;
    if !proxy.http_request.is_empty() {
        if client.worker.shared.plan.revalidates && x.original.is_none() {
            // If a background refresh repeats the request, the rules run again on this copy.
            x.original = Some(Box::new(x.txn.request.clone()));
        }
        of_http(client, x, proxy, &proxy.http_request).await?;
    }
    if !proxy.redirects.is_empty() {
        of_http(client, x, proxy, &proxy.redirects).await?;
    }
    if proxy.stats.is_some() {
        Box::pin(statistics::statistics(client, x, proxy)).await?;
    }
    if x.caching.is_some() && lookup::has_found(x) {
        // The rules that follow the one that found the response have already run.
        return Err(Stop::Cached);
    }
    Ok(())
}

/// `option http-restrict-req-hdr-names`, applied before the proxy's rules run.
fn restrict_names(client: &Client, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
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
    page::error(client, x, 403);
    Err(Stop::Reply)
}

/// Runs one rule set on a request. Returns whether a rule ended the set by accepting the request.
///
/// # Errors
/// The request is not forwarded.
pub(crate) async fn of_http(
    client: &mut Client,
    x: &mut Exchange,
    proxy: &Proxy,
    rules: &rules::RuleSet,
) -> Result<bool, Stop> {
    let RuleSetEnd { accepted, .. } =
        driver::run(client, Some(x), rules, &mut RuleContext::Request(proxy)).await?;
    Ok(accepted)
}

/// Runs the `tcp-response` rules, then the `http-response` rules of the backend and of the frontend.
pub(crate) async fn of_response(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
) -> Result<(), Stop> {
    if x.engaged.is_some() {
        spoe::on(client, x, MessageEvent::ServerSession).await?;
    }
    trace::filter::response(x, backend);
    if client.worker.shared.plan.variables.wants_bodies() {
        inspect::look(x, upstream);
    }
    if x.engaged.is_some() {
        spoe::on(client, x, MessageEvent::TcpResponse).await?;
    }
    if !backend.tcp_response.is_empty() {
        trace::filter::enter(x, Analyser::InspectResponse);
        let until = backend.response_inspect_delay.map_or(0, |delay| now_ms() + delay.as_millis() as u64);
        let about = &mut RuleContext::ResponseContent { proxy: backend, upstream, until };
        Box::pin(driver::run(client, Some(x), &backend.tcp_response, about)).await?;
        trace::filter::leave(x, Analyser::InspectResponse);
    }
    trace::filter::process_response(x);
    if x.engaged.is_some() {
        spoe::on(client, x, MessageEvent::HttpResponse).await?;
    }
    if !backend.http_response.is_empty() {
        let about = &mut RuleContext::Response(backend, upstream);
        driver::run(client, Some(x), &backend.http_response, about).await?;
    }
    if client.frontend.index != backend.index && !client.frontend.http_response.is_empty() {
        let frontend = client.frontend.clone();
        let about = &mut RuleContext::Response(&frontend, upstream);
        driver::run(client, Some(x), &frontend.http_response, about).await?;
    }
    Ok(())
}

/// Runs the `http-response` rules on a cached response, as on a server's response.
///
/// # Errors
/// The response is not sent to the client.
pub(crate) async fn of_cached(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    if x.engaged.is_some() {
        spoe::on(client, x, MessageEvent::HttpResponse).await?;
    }
    let frontend = client.frontend.clone();
    let backend = x.backend.clone().filter(|backend| backend.index != frontend.index);
    for proxy in backend.iter().chain(Some(&frontend)) {
        if !proxy.http_response.is_empty() {
            driver::run(client, Some(x), &proxy.http_response, &mut RuleContext::Cached(proxy)).await?;
        }
    }
    Ok(())
}

/// Runs the `http-after-response` rules on a server's response, which already has the persistence cookie.
///
/// # Errors
/// A rewrite failed under `strict-mode on`.
pub(crate) async fn after_response(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &Upstream,
) -> Result<(), Fault> {
    if has_after_response(client, x) {
        let held = upstream.received().len();
        Box::pin(run_after_response(client, x, held)).await?;
    }
    Ok(())
}

/// Runs the `http-after-response` rules on a response generated by the proxy.
///
/// # Errors
/// A rewrite failed under `strict-mode on`.
pub(crate) async fn of_reply(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    if has_after_response(client, x) {
        Box::pin(run_after_response(client, x, 0)).await?;
    }
    Ok(())
}

/// Whether `http-after-response` rules apply to the response. They apply to every response to a well-formed request, wherever the
/// response comes from.
fn has_after_response(client: &Client, x: &Exchange) -> bool {
    let has = |proxy: &Proxy| !proxy.http_after_response.is_empty();
    (has(&client.frontend) || x.backend.as_ref().is_some_and(|backend| has(backend)))
        && !x.txn.request.method().is_empty()
}

/// `http-after-response` of the backend, then of the frontend.
async fn run_after_response(client: &mut Client, x: &mut Exchange, held: usize) -> Result<(), Fault> {
    let frontend = client.frontend.clone();
    let backend = x.backend.clone().filter(|backend| backend.index != frontend.index);
    for proxy in backend.iter().chain(Some(&frontend)) {
        let rules = &proxy.http_after_response;
        if let Err(Stop::Fault(fault)) =
            driver::run(client, Some(x), rules, &mut RuleContext::Reply { held }).await
        {
            return Err(fault);
        }
    }
    Ok(())
}

/// `monitor-uri` and `monitor fail`. The request target must be identical to the configured URI; for a target in absolute form,
/// its path and query suffice.
fn monitor(client: &Client, x: &mut Exchange, frontend: &Proxy) -> Result<(), Stop> {
    let target = x.txn.request.target();
    let wanted = frontend.monitor_uri.as_deref();
    if wanted != Some(target) && wanted != http::uri::split(target).pathq() {
        return Ok(());
    }
    let failed = view::with(client, x, |env| {
        frontend.monitor_fail.iter().any(|condition| holds(Some(condition), env))
    });
    x.txn.termination.set(Cause::Local, Phase::Request);
    x.txn.log_level = Some(None);
    page::error(client, x, if failed { 503 } else { 200 });
    Err(Stop::Reply)
}

/// `tcp-request content` rules of a TCP frontend. Waits up to `inspect-delay` for the data that the rules inspect.
pub(crate) async fn of_tcp_frontend(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    let frontend = client.frontend.clone();
    trace::filter::enter(x, Analyser::InspectFrontend);
    if x.engaged.is_some() {
        spoe::on(client, x, MessageEvent::FrontendTcpRequest).await?;
    }
    on_stream(client, x, &frontend).await?;
    trace::filter::leave(x, Analyser::InspectFrontend);
    trace::filter::enter(x, Analyser::Switch);
    Ok(())
}

/// `tcp-request content` rules of a TCP backend, unless the backend is the frontend itself.
pub(crate) async fn of_tcp_backend(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
) -> Result<(), Stop> {
    if backend.index == client.frontend.index {
        return Ok(());
    }
    trace::filter::enter(x, Analyser::InspectBackend);
    if x.engaged.is_some() {
        spoe::on(client, x, MessageEvent::BackendTcpRequest).await?;
    }
    on_stream(client, x, backend).await?;
    trace::filter::leave(x, Analyser::InspectBackend);
    Ok(())
}

async fn on_stream(client: &mut Client, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    if proxy.tcp_request.is_empty() {
        return Ok(());
    }
    let until = proxy.request_inspect_delay.map_or(0, |delay| now_ms() + delay.as_millis() as u64);
    request::look(client).await;
    let about = &mut RuleContext::Stream { proxy, until, complete: false };
    driver::run(client, Some(x), &proxy.tcp_request, about).await.map(drop)
}

/// `tcp-response content` rules of a TCP backend. They are evaluated when the server's first bytes arrive, and again with more
/// bytes until `inspect-delay` is over.
pub(crate) async fn of_tcp_response(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
) -> Result<(), Stop> {
    if x.engaged.is_some() {
        if x.engaged.is_some() {
            spoe::on(client, x, MessageEvent::ServerSession).await?;
        }
        if x.engaged.is_some() {
            spoe::on(client, x, MessageEvent::TcpResponse).await?;
        }
    }
    if backend.tcp_response.is_empty() {
        trace::filter::response(x, backend);
        return Ok(());
    }
    inspect::send_first(client, x, upstream).await;
    // Without a delay, the rules run as soon as the connection is established, before any data can be inspected.
    let until = backend.response_inspect_delay.map_or(0, |delay| now_ms() + delay.as_millis() as u64);
    let complete = backend.response_inspect_delay.is_none();
    trace::filter::response(x, backend);
    trace::filter::enter(x, Analyser::InspectResponse);
    let about = &mut RuleContext::Answer { proxy: backend, upstream, until, complete };
    driver::run(client, Some(x), &backend.tcp_response, about).await?;
    trace::filter::leave(x, Analyser::InspectResponse);
    Ok(())
}
