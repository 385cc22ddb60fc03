//! The driver of all rule sets. It runs a set and performs the waits that its rules require. A wait ends early if the client
//! leaves, the stream is killed or a timeout expires.

use std::time::Duration;

use rules::{Final, RuleOutcome, RuleSet, Stage};
use runtime::timer::now_ms;
use runtime::trace::TraceSource;

use super::hold::{self, HoldProgress, RuleFlow, RuleSetEnd};
use super::rule_context::{RuleContext, longest_head, wait_for_bytes, watches};
use super::verdict::{self, MessageSide};
use crate::client::Client;
use crate::exchange::sockets::StreamSockets;
use crate::exchange::trace;
use crate::exchange::{Exchange, Stop, Upgrade};
use crate::fault::Fault;
use crate::message::inspect;
use crate::message::upload;
use crate::message::wanted::BodyWait;

/// Runs `rules` to the end.
///
/// # Errors
/// The message is not forwarded.
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
        let next = match outcome {
            RuleOutcome::Done => break,
            RuleOutcome::Accept => RuleFlow::Accept,
            RuleOutcome::Final(verdict) => RuleFlow::Final(verdict),
            RuleOutcome::Hold(hold) => {
                match (hold::begin(client, x.as_deref_mut(), about, &mut ended, hold), x.as_deref_mut()) {
                    (HoldProgress::Done(next), _) => next,
                    (HoldProgress::Waits(waiting), Some(x)) => {
                        Box::pin(hold::finish(client, x, about, waiting)).await?
                    }
                    // Without an exchange, rules cannot wait.
                    (HoldProgress::Waits(_), None) => RuleFlow::Rule,
                }
            }
            RuleOutcome::Wait => {
                if let Some(x) = x.as_deref_mut() {
                    Box::pin(wait_for_more(client, x, about)).await?;
                    hold::note_wait(x, about);
                }
                RuleFlow::Rule
            }
        };
        match next {
            RuleFlow::Rule => {}
            RuleFlow::Accept => {
                ended.accepted = true;
                break;
            }
            RuleFlow::Final(verdict) => {
                conclude(client, x, about, verdict).await?;
                ended.accepted = true;
                break;
            }
        }
    }
    Ok(ended)
}

/// Runs `rules` from index `start` until an action is required.
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
        return run_on(client, rules, &mut stage, start);
    };
    let sockets = StreamSockets::of(client, &x.server_socket);
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
    run_on(client, rules, &mut stage, start)
}

/// Runs `rules`. If they are traced, reports each rule.
#[inline]
fn run_on(client: &Client, rules: &RuleSet, stage: &mut Stage<'_>, start: usize) -> (RuleOutcome, usize) {
    if !runtime::trace::is_on(TraceSource::Rules) {
        return rules.run(stage, start);
    }
    trace::rules::run(client, rules, stage, start)
}

/// Waits for more of the data that a condition inspects.
async fn wait_for_more(
    client: &mut Client,
    x: &mut Exchange,
    about: &mut RuleContext<'_>,
) -> Result<(), Stop> {
    match about {
        // In HTTP mode, only the body can be waited for.
        RuleContext::Request(proxy) | RuleContext::Response(proxy, _) => {
            hold::hold_body(client, x, proxy, BodyWait::ALL, None).await?
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
        // In these contexts, no more data can arrive.
        RuleContext::Connection | RuleContext::Cached(_) | RuleContext::Reply { .. } => {}
    }
    Ok(())
}

/// Applies a final verdict to the message.
///
/// # Errors
/// The message is not forwarded. Some verdicts end only the rule set.
async fn conclude(
    client: &mut Client,
    x: Option<&mut Exchange>,
    about: &mut RuleContext<'_>,
    verdict: Final,
) -> Result<(), Stop> {
    let Some(x) = x else {
        if let Final::SilentDrop { rst_ttl } = verdict {
            client.side.vanish(rst_ttl);
        }
        return Err(Stop::Close);
    };
    let stop = match about {
        // The HTTP stream exists already.
        RuleContext::Request(_)
        | RuleContext::Content { .. }
        | RuleContext::Response(..)
        | RuleContext::Cached(_)
        | RuleContext::ResponseContent { .. }
            if matches!(verdict, Final::SwitchMode(_)) =>
        {
            return Ok(());
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
        // These rules can stop the response only with an error.
        RuleContext::Reply { .. } if matches!(verdict, Final::Internal) => Stop::Fault(Fault::Internal),
        RuleContext::Reply { .. } => return Ok(()),
        RuleContext::Connection | RuleContext::Stream { .. } => verdict::close_stream(client, x, verdict),
        RuleContext::Answer { proxy, .. } => verdict::close_answer(client, x, proxy, &verdict),
    };
    Err(stop)
}
