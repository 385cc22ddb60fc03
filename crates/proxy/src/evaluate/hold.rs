//! Rule actions that must complete before the next rule runs. Each kind of [`Hold`] has its function. Called by
//! [`driver`](super::driver).

use std::sync::Arc;
use std::time::Duration;

use http::Head;
use lua::{RunningCall, Wait};
use plan::Proxy;
use rules::{Final, Hold, ScriptCall};
use runtime::timer::{self, now_ms};

use super::lua::action::{self, ActionVerdict};
use super::resolve::{ResolveQuestion, resolve};
use super::rule_context::{RuleContext, watches};
use super::spoe;
use crate::client::Client;
use crate::client::handshake::Expected;
use crate::exchange::cache::keep;
use crate::exchange::cache::lookup::{self, Looked};
use crate::exchange::{Exchange, Stop, report, tracing};
use crate::fault::Fault;
use crate::message::inspect;
use crate::message::upload::{self, Allowed};
use crate::message::wanted::BodyWait;

/// The result of a rule set that did not stop its message.
#[derive(Debug, Default)]
pub(super) struct RuleSetEnd {
    /// Whether a rule ended the set by accepting the message.
    pub(super) accepted: bool,
    /// The headers that connection rules require before any data is read.
    pub(super) expected: Expected,
    /// The server to which a rule attaches the connection.
    pub(super) attach: Option<Box<Attach>>,
}

/// The server to which a client's connection is attached (`attach-srv`).
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) server: Arc<state::Server>,
    /// The name to compare with requested names. May be empty.
    pub(crate) name: Box<[u8]>,
}

/// How a rule set continues after a rule has run.
pub(super) enum RuleFlow {
    /// Continue with the next rule.
    Rule,
    /// The set ends, and the message is forwarded.
    Accept,
    /// The set ends with this verdict.
    Final(Final),
}

/// The result of [`begin`].
pub(super) enum HoldProgress {
    /// The hold is complete.
    Done(RuleFlow),
    /// The remaining part has to wait.
    Waits(PendingHold),
}

/// The part of a hold that [`finish`] completes.
pub(super) enum PendingHold {
    Script(Arc<ScriptCall>, Result<ActionVerdict, (RunningCall, Wait)>),
    Cache { looked: Looked, of_frontend: bool, hints: bool },
    Hint(Box<[u8]>),
    Body { wanted: BodyWait, timeout_ms: u64 },
    Handshake,
    Pause(Duration),
    SpoeGroup(usize),
    Resolve(ResolveQuestion),
}

/// Performs as much of `hold` as possible without waiting: for most kinds, all of it. Without an exchange, only holds for
/// connections have an effect.
pub(super) fn begin(
    client: &mut Client,
    x: Option<&mut Exchange>,
    about: &mut RuleContext<'_>,
    ended: &mut RuleSetEnd,
    hold: Hold,
) -> HoldProgress {
    let waiting = match (hold, x) {
        (Hold::Script(call), Some(x)) => return begin_script(client, x, about, call),
        (Hold::UseCache { store, hints }, Some(x)) => {
            let of_frontend =
                matches!(about, RuleContext::Request(proxy) if proxy.index == client.frontend.index);
            let begun = tracing::clock(x);
            let looked = lookup::look_up(client, x, of_frontend, store, hints);
            if begun > 0 {
                tracing::cache(x, begun);
            }
            match looked {
                Looked::Done => return HoldProgress::Done(RuleFlow::Rule),
                looked => PendingHold::Cache { looked, of_frontend, hints },
            }
        }
        (Hold::EarlyHint(head), Some(_)) => PendingHold::Hint(head),
        (Hold::Body { at_least, timeout_ms, in_large }, Some(_)) => {
            let large = if in_large { client.worker.shared.plan.global.tune.large_bufsize } else { 0 };
            let bytes = if at_least == 0 { usize::MAX } else { at_least };
            PendingHold::Body { wanted: BodyWait { bytes, large }, timeout_ms }
        }
        (Hold::Handshake, Some(_)) => PendingHold::Handshake,
        (Hold::Pause(ms), Some(_)) => PendingHold::Pause(Duration::from_millis(ms)),
        (Hold::SendSpoeGroup(number), Some(_)) => PendingHold::SpoeGroup(number),
        (Hold::Resolve { section, name, prefer, var }, Some(_)) => {
            PendingHold::Resolve(ResolveQuestion { section, name, prefer, var })
        }
        (hold, x) => {
            perform(client, x, about, ended, hold);
            return HoldProgress::Done(RuleFlow::Rule);
        }
    };
    HoldProgress::Waits(waiting)
}

/// Performs a hold that never waits.
fn perform(
    client: &mut Client,
    x: Option<&mut Exchange>,
    about: &RuleContext<'_>,
    ended: &mut RuleSetEnd,
    hold: Hold,
) {
    match (hold, x) {
        (Hold::ExpectProxy, _) => ended.expected.proxy = true,
        (Hold::ExpectNetscaler, _) => ended.expected.netscaler = true,
        // As in HAProxy, the last such rule applies.
        (Hold::Attach { server, name }, _) => ended.attach = Some(Box::new(Attach { server, name })),
        (Hold::Tos(tos), _) => client.side.set_tos(tos),
        (Hold::Mark(mark), _) => client.side.set_mark(mark),
        (Hold::Log { origin, profile }, x) => {
            report::on_demand(client, x.as_deref(), origin, profile.as_deref());
        }
        (Hold::StoreInCache(store), Some(x)) => {
            if let RuleContext::Response(proxy, _) = about {
                keep::store(client, x, proxy, &store);
            }
        }
        (Hold::Mirror { backend, percent }, Some(x)) => note_mirror(client, x, &backend, percent),
        // These holds only apply to streams.
        (
            Hold::Script(_)
            | Hold::UseCache { .. }
            | Hold::StoreInCache(_)
            | Hold::Mirror { .. }
            | Hold::EarlyHint(_)
            | Hold::Body { .. }
            | Hold::Handshake
            | Hold::Pause(_)
            | Hold::SendSpoeGroup(_)
            | Hold::Resolve { .. },
            _,
        ) => {}
    }
}

/// Waits until a hold is complete.
///
/// # Errors
/// The message is not forwarded.
pub(super) async fn finish(
    client: &mut Client,
    x: &mut Exchange,
    about: &mut RuleContext<'_>,
    waiting: PendingHold,
) -> Result<RuleFlow, Stop> {
    match waiting {
        PendingHold::Script(call, begun) => return finish_script(client, x, about, &call, begun).await,
        PendingHold::Cache { looked, of_frontend, hints } => {
            return use_cache(client, x, about, looked, of_frontend, hints).await;
        }
        PendingHold::Hint(head) => {
            send_hint(client, x, &head).await?;
            return Ok(RuleFlow::Rule);
        }
        PendingHold::Body { wanted, timeout_ms } => {
            wait_for_body(client, x, about, wanted, timeout_ms).await?;
        }
        PendingHold::Handshake => {
            if !client.settle().await {
                return Err(Fault::ClientAborted.into());
            }
        }
        PendingHold::Pause(pause) => {
            let leaving = watches(client, x, about);
            client.pause(pause, leaving).await?;
        }
        PendingHold::SpoeGroup(number) => {
            if let Some(proxy) = about.proxy() {
                spoe::send(client, x, proxy, number).await?;
            }
        }
        PendingHold::Resolve(question) => {
            let leaving = watches(client, x, about);
            resolve(client, x, question, leaving).await?;
        }
    }
    note_wait(x, about);
    Ok(RuleFlow::Rule)
}

/// Adds the time that rules waited to the request time (manual, 8.4 `%TR`), or to the transfer time of the response.
pub(super) fn note_wait(x: &mut Exchange, about: &RuleContext<'_>) {
    match about {
        RuleContext::Request(_) | RuleContext::Content { .. } => x.txn.times.request = timer::now_us(),
        RuleContext::ResponseContent { .. } => x.txn.times.response = timer::now_us(),
        RuleContext::Response(..) | RuleContext::Cached(_) | RuleContext::Reply { .. } => {
            x.response_body.waited = true
        }
        RuleContext::Connection | RuleContext::Stream { .. } | RuleContext::Answer { .. } => {}
    }
}

/// `lua.name`: starts a script function.
fn begin_script(
    client: &mut Client,
    x: &mut Exchange,
    about: &mut RuleContext<'_>,
    call: Arc<ScriptCall>,
) -> HoldProgress {
    let started = tracing::clock(x);
    let begun = action::begin(client, x, about, &call);
    tracing::step(x, "lua", call.shown, started, matches!(begun, Ok(ActionVerdict::Stop(_))));
    action::put_back(client, x, about);
    match begun {
        Ok(ActionVerdict::Stop(_)) | Err(_) => HoldProgress::Waits(PendingHold::Script(call, begun)),
        Ok(_) if action::has_reply(x) => HoldProgress::Waits(PendingHold::Script(call, begun)),
        Ok(ActionVerdict::Next) => HoldProgress::Done(RuleFlow::Rule),
        Ok(ActionVerdict::Accept) => HoldProgress::Done(RuleFlow::Accept),
        Ok(ActionVerdict::Final(verdict)) => HoldProgress::Done(RuleFlow::Final(verdict)),
    }
}

/// Sends the function's output, and runs the function to its end.
async fn finish_script(
    client: &mut Client,
    x: &mut Exchange,
    about: &mut RuleContext<'_>,
    call: &Arc<ScriptCall>,
    begun: Result<ActionVerdict, (RunningCall, Wait)>,
) -> Result<RuleFlow, Stop> {
    action::reply(client, x).await?;
    let verdict = match begun {
        Ok(verdict) => verdict,
        Err(begun) => {
            let verdict = action::go_on(client, x, about, call, begun).await;
            tracing::extend(x, "lua", verdict.is_err());
            let verdict = verdict?;
            note_wait(x, about);
            verdict
        }
    };
    match verdict {
        ActionVerdict::Next => Ok(RuleFlow::Rule),
        ActionVerdict::Accept => Ok(RuleFlow::Accept),
        ActionVerdict::Stop(stop) => Err(stop),
        ActionVerdict::Final(verdict) => Ok(RuleFlow::Final(verdict)),
    }
}

/// `cache-use`: waits for a response that may be in a cache.
async fn use_cache(
    client: &mut Client,
    x: &mut Exchange,
    about: &RuleContext<'_>,
    mut looked: Looked,
    of_frontend: bool,
    hints: bool,
) -> Result<RuleFlow, Stop> {
    if let Looked::Read(loading) = looked {
        let leaving = watches(client, x, about);
        let read = lookup::read(client, x, of_frontend, leaving, loading, hints).await;
        tracing::extend(x, "cache", read.is_err());
        looked = read?;
        note_wait(x, about);
    }
    match looked {
        Looked::Done | Looked::Read(_) => {}
        Looked::Hint(hint) => send_hint(client, x, &hint).await?,
        Looked::Wait(follow) => {
            let leaving = watches(client, x, about);
            let waited = lookup::wait(client, x, of_frontend, leaving, follow).await;
            tracing::extend(x, "cache", waited.is_err());
            waited?;
            note_wait(x, about);
        }
    }
    Ok(RuleFlow::Rule)
}

/// `mirror`: marks `percent` of the requests for copying to a backend. Each backend gets one copy, even if several rules name it.
#[cold]
fn note_mirror(client: &Client, x: &mut Exchange, backend: &state::Proxy, percent: u8) {
    let index = client.worker.shared.plan.backends.get(&backend.name);
    let known = x.mirrors.as_deref().map_or(&[][..], |mirrors| &mirrors.targets);
    if let Some(index) = index.filter(|index| !known.contains(index))
        && (percent == 100 || fastrand::u8(..100) < percent)
    {
        // Allocated only here, so that other requests are not decoded.
        x.mirrors.get_or_insert_default().targets.push(index);
    }
}

/// `early-hint`: sends an interim response to clients that support it.
async fn send_hint(client: &mut Client, x: &mut Exchange, head: &[u8]) -> Result<(), Stop> {
    if x.txn.request.version().is_11_or_above() {
        client.timer.set_after(now_ms(), client.frontend.timeouts.client);
        let mut hint = Head::new();
        // The bytes were generated by Weir, so they are a valid head.
        let _ = http::parse_response(head, &mut hint, &http::ParseOptions::default());
        client.send_interim(&hint, &mut Vec::new()).await?;
        x.txn.bytes_out += head.len() as u64;
    }
    Ok(())
}

/// `wait-for-body`: waits for the body of the message.
async fn wait_for_body(
    client: &mut Client,
    x: &mut Exchange,
    about: &mut RuleContext<'_>,
    wanted: BodyWait,
    timeout_ms: u64,
) -> Result<(), Stop> {
    match about {
        RuleContext::Response(proxy, upstream) | RuleContext::ResponseContent { proxy, upstream, .. } => {
            inspect::hold(client, x, proxy, upstream, wanted, timeout_ms).await?;
        }
        RuleContext::Request(proxy) | RuleContext::Content { proxy, .. } => {
            hold_body(client, x, proxy, wanted, Some(Duration::from_millis(timeout_ms))).await?;
        }
        RuleContext::Connection
        | RuleContext::Stream { .. }
        | RuleContext::Answer { .. }
        | RuleContext::Cached(_)
        | RuleContext::Reply { .. } => {}
    }
    Ok(())
}

/// Waits for this many bytes of the request's body, for at most `time` or the configured timeout.
pub(crate) async fn hold_body(
    client: &mut Client,
    x: &mut Exchange,
    proxy: &Proxy,
    wanted: BodyWait,
    time: Option<Duration>,
) -> Result<(), Stop> {
    let allowed = time.map_or_else(|| Allowed::of(client, proxy), Allowed::InAll);
    upload::hold(client, x, wanted, allowed).await
}
