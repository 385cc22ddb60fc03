//! The one driver of all rule sets: runs a set, does on the way what its rules wait for, and
//! notices meanwhile that the client left, that the stream was killed and that the time for it is
//! over.

use std::sync::Arc;
use std::time::Duration;

use http::Head;
use plan::Proxy;
use rules::{Final, Hold, RuleOutcome, RuleSet, Stage};
use runtime::timer::{self, now_ms};

use super::resolve::{ResolveQuestion, resolve};
use super::rule_context::{RuleContext, longest_head, wait_for_bytes, watches};
use super::script::{self, ActionVerdict};
use super::spoe;
use super::verdict::{self, MessageSide};
use crate::client::Client;
use crate::client::handshake::Expected;
use crate::exchange::report;
use crate::exchange::sockets::StreamSockets;
use crate::exchange::{Exchange, Stop, Upgrade};
use crate::fault::Fault;
use crate::message::caching::{self, Looked};
use crate::message::inspect;
use crate::message::upload::{self, Allowed};
use crate::message::wanted::BodyWait;

/// How a set ended that lets its message pass.
#[derive(Debug, Default)]
pub(super) struct RuleSetEnd {
    /// Whether a rule ended it by accepting.
    pub(super) accepted: bool,
    /// The headers that rules on a connection want to come first.
    pub(super) expected: Expected,
    /// Whose connection a rule makes of it.
    pub(super) attach: Option<Box<Attach>>,
}

/// Whose connection a client's is to become (`attach-srv`).
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) server: Arc<state::Server>,
    /// The name that requests ask for; empty for none.
    pub(crate) name: Box<[u8]>,
}

/// Runs `rules` to their end.
///
/// # Errors
/// What the set is about goes no further.
pub(super) async fn run(
    client: &mut Client,
    mut x: Option<&mut Exchange>,
    rules: &RuleSet,
    about: &mut RuleContext<'_>,
) -> Result<RuleSetEnd, Stop> {
    let mut ended = RuleSetEnd::default();
    let mut start = 0;
    while !rules.is_empty() {
        let (outcome, next) = step(client, x.as_deref_mut(), rules, start, about);
        start = next;
        match outcome {
            RuleOutcome::Done => break,
            RuleOutcome::Accept => {
                ended.accepted = true;
                break;
            }
            RuleOutcome::Wait => {
                Box::pin(wait_for_more(client, x.as_deref_mut(), about)).await?;
                note_wait(x.as_deref_mut(), about);
            }
            RuleOutcome::Hold(Hold::ExpectProxy) => ended.expected.proxy = true,
            RuleOutcome::Hold(Hold::ExpectNetscaler) => ended.expected.netscaler = true,
            // As in HAProxy, the last one counts.
            RuleOutcome::Hold(Hold::Attach { server, name }) => {
                ended.attach = Some(Box::new(Attach { server, name }));
            }
            RuleOutcome::Hold(Hold::Script(call)) => {
                let Some(own) = x.as_deref_mut() else { continue };
                let begun = script::begin(client, own, about, &call);
                script::put_back(client, own, about);
                script::reply(client, own).await?;
                let verdict = match begun {
                    Ok(verdict) => verdict,
                    Err(begun) => {
                        let verdict = Box::pin(script::go_on(client, own, about, &call, begun)).await?;
                        note_wait(Some(own), about);
                        verdict
                    }
                };
                match verdict {
                    ActionVerdict::Next => {}
                    ActionVerdict::Accept => {
                        ended.accepted = true;
                        break;
                    }
                    ActionVerdict::Stop(stop) => return Err(stop),
                    ActionVerdict::Final(verdict) => {
                        if conclude(client, x, about, verdict).await? {
                            ended.accepted = true;
                        }
                        break;
                    }
                }
            }
            RuleOutcome::Hold(Hold::UseCache { store, hints }) => {
                let Some(x) = x.as_deref_mut() else { continue };
                let of_frontend = is_of_frontend(client, about);
                let mut looked = caching::look_up(client, x, of_frontend, store, hints);
                if let Looked::Read(loading) = looked {
                    let leaving = watches(client, x, about);
                    let read = caching::read(client, x, of_frontend, leaving, loading, hints);
                    looked = Box::pin(read).await?;
                    note_wait(Some(x), about);
                }
                match looked {
                    Looked::Done | Looked::Read(_) => {}
                    Looked::Hint(hint) => {
                        Box::pin(do_hold(client, Some(x), about, Hold::EarlyHint(hint))).await?;
                    }
                    Looked::Wait(follow) => {
                        let leaving = watches(client, x, about);
                        Box::pin(caching::wait(client, x, of_frontend, leaving, follow)).await?;
                        note_wait(Some(x), about);
                    }
                }
            }
            RuleOutcome::Hold(Hold::Mirror { backend, percent }) => {
                if let Some(x) = x.as_deref_mut() {
                    note_mirror(client, x, &backend, percent);
                }
            }
            RuleOutcome::Hold(Hold::StoreInCache(store)) => {
                if let (Some(x), RuleContext::Response(proxy, _)) = (x.as_deref_mut(), &about) {
                    caching::store(client, x, proxy, &store);
                }
            }
            RuleOutcome::Hold(hold) => {
                let waits = matches!(
                    hold,
                    Hold::Body { .. }
                        | Hold::Handshake
                        | Hold::Pause(_)
                        | Hold::Resolve { .. }
                        | Hold::SendSpoeGroup(_)
                );
                Box::pin(do_hold(client, x.as_deref_mut(), about, hold)).await?;
                if waits {
                    note_wait(x.as_deref_mut(), about);
                }
            }
            RuleOutcome::Final(verdict) => {
                if conclude(client, x, about, verdict).await? {
                    ended.accepted = true;
                }
                break;
            }
        }
    }
    Ok(ended)
}

/// Notes that a backend is to get a copy of the request, in so many cases of a hundred. One copy goes
/// to each, however many rules name it.
#[cold]
fn note_mirror(client: &Client, x: &mut Exchange, backend: &state::Proxy, percent: u8) {
    let index = client.worker.shared.plan.backends.get(&backend.name);
    let known = x.mirrors.as_deref().map_or(&[][..], |mirrors| &mirrors.targets);
    if let Some(index) = index.filter(|index| !known.contains(index))
        && (percent == 100 || fastrand::u8(..100) < percent)
    {
        // Only then: a request that is not of the sample has nothing decoded.
        x.mirrors.get_or_insert_default().targets.push(index);
    }
}

/// Whether it is the frontend that asks about a request.
fn is_of_frontend(client: &Client, about: &RuleContext<'_>) -> bool {
    matches!(about, RuleContext::Request(proxy) if proxy.index == client.frontend.index)
}

/// Runs `rules` from number `start` on, until something is to be done.
fn step(
    client: &Client,
    x: Option<&mut Exchange>,
    rules: &RuleSet,
    start: usize,
    about: &RuleContext<'_>,
) -> (RuleOutcome, usize) {
    let now_ms = now_ms();
    let mut stage = Stage {
        process: &client.worker.shared.process,
        session: &client.session,
        transaction: None,
        request_bytes: &[],
        response_bytes: &[],
        longest_head: usize::MAX,
        sockets: None,
        complete: true,
        counts_requests: matches!(
            about,
            RuleContext::Request(_) | RuleContext::Response(..) | RuleContext::Cached(_)
        ),
        now_ms,
    };
    let Some(x) = x else {
        let sockets = StreamSockets::of_client(client);
        stage.sockets = Some(&sockets);
        return rules.run(&mut stage, start);
    };
    let sockets = StreamSockets::of(client, x);
    stage.sockets = Some(&sockets);
    match about {
        RuleContext::Connection => {}
        RuleContext::Request(_)
        | RuleContext::Content { .. }
        | RuleContext::Response(..)
        | RuleContext::ResponseContent { .. }
        | RuleContext::Cached(_)
        | RuleContext::Reply { .. } => {
            stage.longest_head = longest_head(client, x, about);
            stage.request_bytes = &x.request_body.seen;
            stage.response_bytes = &x.response_body.seen;
            if let RuleContext::Content { until, .. } | RuleContext::ResponseContent { until, .. } = about {
                stage.complete = now_ms >= *until;
            }
        }
        RuleContext::Stream { until, complete, .. } => {
            stage.request_bytes = client.side.received();
            x.txn.look_at(stage.request_bytes);
            stage.complete = *complete || now_ms >= *until;
        }
        RuleContext::Answer { upstream, until, complete, .. } => {
            stage.response_bytes = upstream.received();
            stage.complete = *complete || now_ms >= *until;
        }
    }
    stage.transaction = Some(&mut x.txn);
    rules.run(&mut stage, start)
}

/// Waits for more of what a condition looks at.
async fn wait_for_more(
    client: &mut Client,
    x: Option<&mut Exchange>,
    about: &mut RuleContext<'_>,
) -> Result<(), Stop> {
    let Some(x) = x else { return Ok(()) };
    match about {
        // In HTTP mode all that can be waited for is the body.
        RuleContext::Request(proxy) | RuleContext::Response(proxy, _) => {
            hold_body(client, x, proxy, BodyWait::ALL, None).await?
        }
        RuleContext::Content { until, .. } => {
            let left = Duration::from_millis(until.saturating_sub(now_ms()));
            if x.has_body() && !x.request_body.is_complete && !x.request_body.is_cut {
                upload::hold_more(client, x, left).await?;
                if x.request_body.is_late {
                    *until = 0;
                }
            } else {
                let leaving = watches(client, x, about);
                client.pause(left, leaving).await?;
            }
        }
        RuleContext::ResponseContent { proxy, upstream, until } => {
            inspect::hold_more(client, x, proxy, upstream, until).await?;
        }
        RuleContext::Stream { .. } | RuleContext::Answer { .. } => wait_for_bytes(client, x, about).await?,
        // All that there is of these is here.
        RuleContext::Connection | RuleContext::Cached(_) | RuleContext::Reply { .. } => {}
    }
    Ok(())
}

/// Time that rules wait is part of the request's (manual, 8.4 `%TR`) or of the response's transfer.
fn note_wait(x: Option<&mut Exchange>, about: &RuleContext<'_>) {
    let Some(x) = x else { return };
    match about {
        RuleContext::Request(_) | RuleContext::Content { .. } => x.txn.times.request = timer::now_us(),
        RuleContext::ResponseContent { .. } => x.txn.times.response = timer::now_us(),
        RuleContext::Response(..) | RuleContext::Cached(_) | RuleContext::Reply { .. } => {
            x.response_body.waited = true
        }
        RuleContext::Connection | RuleContext::Stream { .. } | RuleContext::Answer { .. } => {}
    }
}

/// Waits until so much of the request's body is there, for `time` or as long as the configuration
/// says.
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

/// Does what a rule asks for before the next one is looked at.
async fn do_hold(
    client: &mut Client,
    x: Option<&mut Exchange>,
    about: &mut RuleContext<'_>,
    hold: Hold,
) -> Result<(), Stop> {
    match (hold, x) {
        (Hold::Tos(tos), _) => client.side.set_tos(tos),
        (Hold::Mark(mark), _) => client.side.set_mark(mark),
        (Hold::Log { origin, profile }, x) => {
            report::on_demand(client, x.as_deref(), origin, profile.as_deref());
        }
        // The others are for streams.
        (
            Hold::ExpectProxy
            | Hold::ExpectNetscaler
            | Hold::Attach { .. }
            | Hold::Script(_)
            | Hold::UseCache { .. }
            | Hold::StoreInCache(_)
            | Hold::Mirror { .. },
            _,
        )
        | (_, None) => {}
        (Hold::Body { at_least, timeout_ms, in_large }, Some(x)) => {
            let large = if in_large { client.worker.shared.plan.global.tune.large_bufsize } else { 0 };
            let wanted = BodyWait { bytes: if at_least == 0 { usize::MAX } else { at_least }, large };
            match about {
                RuleContext::Response(proxy, upstream)
                | RuleContext::ResponseContent { proxy, upstream, .. } => {
                    inspect::hold(client, x, proxy, upstream, wanted, timeout_ms).await?;
                }
                RuleContext::Request(proxy) | RuleContext::Content { proxy, .. } => {
                    hold_body(client, x, proxy, wanted, Some(Duration::from_millis(timeout_ms))).await?;
                }
                _ => {}
            }
        }
        (Hold::Handshake, Some(_)) => {
            if !client.settle().await {
                return Err(Fault::ClientAborted.into());
            }
        }
        (Hold::Pause(ms), Some(x)) => {
            let leaving = watches(client, x, about);
            client.pause(Duration::from_millis(ms), leaving).await?;
        }
        (Hold::EarlyHint(head), Some(x)) => {
            if x.txn.request.version().is_11_or_above() {
                client.timer.set_after(now_ms(), client.frontend.timeouts.client);
                let mut hint = Head::new();
                // It was written here: it is a head.
                let _ = http::parse_response(&head, &mut hint, &http::ParseOptions::default());
                client.send_interim(&hint, &mut Vec::new()).await?;
                x.txn.bytes_out += head.len() as u64;
            }
        }
        (Hold::SendSpoeGroup(number), Some(x)) => {
            if let Some(proxy) = about.proxy() {
                spoe::send(client, x, proxy, number).await?;
            }
        }
        (Hold::Resolve { section, name, prefer, var }, Some(x)) => {
            let leaving = watches(client, x, about);
            resolve(client, x, ResolveQuestion { section, name, prefer, var }, leaving).await?;
        }
    }
    Ok(())
}

/// What a final verdict makes of what the set is about; says whether it passes all the same.
async fn conclude(
    client: &mut Client,
    x: Option<&mut Exchange>,
    about: &mut RuleContext<'_>,
    verdict: Final,
) -> Result<bool, Stop> {
    let Some(x) = x else {
        if let Final::SilentDrop { rst_ttl } = verdict {
            client.side.vanish(rst_ttl);
        }
        return Err(Stop::Close);
    };
    let stop = match about {
        // A stream of HTTP is there already.
        RuleContext::Request(_)
        | RuleContext::Content { .. }
        | RuleContext::Response(..)
        | RuleContext::Cached(_)
        | RuleContext::ResponseContent { .. }
            if matches!(verdict, Final::SwitchMode(_)) =>
        {
            return Ok(true);
        }
        RuleContext::Stream { .. } if let Final::SwitchMode(spoken) = verdict => {
            Stop::Upgrade(Upgrade::ByRule(spoken))
        }
        RuleContext::Request(proxy) | RuleContext::Content { proxy, .. } => {
            Box::pin(verdict::conclude(client, x, proxy, verdict, MessageSide::Request)).await
        }
        RuleContext::Response(proxy, _)
        | RuleContext::Cached(proxy)
        | RuleContext::ResponseContent { proxy, .. } => {
            Box::pin(verdict::conclude(client, x, proxy, verdict, MessageSide::Response)).await
        }
        // These rules end the response only by failing.
        RuleContext::Reply { .. } if matches!(verdict, Final::Internal) => Stop::Fault(Fault::Internal),
        RuleContext::Reply { .. } => return Ok(true),
        RuleContext::Connection | RuleContext::Stream { .. } => verdict::close_stream(client, x, verdict),
        RuleContext::Answer { proxy, .. } => verdict::close_answer(client, x, proxy, &verdict),
    };
    Err(stop)
}
