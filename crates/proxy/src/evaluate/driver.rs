//! The one driver of all rule sets: runs a set, does on the way what its rules wait for, and
//! notices meanwhile that the client left, that the stream was killed and that the time for it is
//! over.

use std::time::Duration;

use rules::{Final, Outcome, RuleSet, Stage};
use runtime::timer::now_ms;

use super::about::{About, longest_head, wait_for_bytes, watches};
use super::hold::{self, Begun, Ended, Next};
use super::verdict::{self, Side};
use crate::client::Client;
use crate::exchange::sockets::Sockets;
use crate::exchange::{Exchange, Stop, Upgrade};
use crate::fault::Fault;
use crate::message::inspect;
use crate::message::upload;
use crate::message::wanted::Wanted;

/// Runs `rules` to their end.
///
/// # Errors
/// The message goes no further.
pub(super) async fn run(
    client: &mut Client,
    mut x: Option<&mut Exchange>,
    rules: &RuleSet,
    about: &mut About<'_>,
) -> Result<Ended, Stop> {
    let mut ended = Ended::default();
    let mut start = 0;
    while !rules.is_empty() {
        let (outcome, next) = step(client, x.as_deref_mut(), rules, start, about);
        start = next;
        let next = match outcome {
            Outcome::Done => break,
            Outcome::Accept => Next::Accept,
            Outcome::Final(verdict) => Next::Final(verdict),
            Outcome::Hold(hold) => {
                match (hold::begin(client, x.as_deref_mut(), about, &mut ended, hold), x.as_deref_mut()) {
                    (Begun::Done(next), _) => next,
                    (Begun::Waits(waiting), Some(x)) => {
                        Box::pin(hold::finish(client, x, about, waiting)).await?
                    }
                    // Without an exchange nothing waits.
                    (Begun::Waits(_), None) => Next::Rule,
                }
            }
            Outcome::Wait => {
                if let Some(x) = x.as_deref_mut() {
                    Box::pin(wait_for_more(client, x, about)).await?;
                    hold::note_wait(x, about);
                }
                Next::Rule
            }
        };
        match next {
            Next::Rule => {}
            Next::Accept => {
                ended.accepted = true;
                break;
            }
            Next::Final(verdict) => {
                conclude(client, x, about, verdict).await?;
                ended.accepted = true;
                break;
            }
        }
    }
    Ok(ended)
}

/// Runs `rules` from number `start` on, until something is to be done.
fn step(
    client: &Client,
    x: Option<&mut Exchange>,
    rules: &RuleSet,
    start: usize,
    about: &About<'_>,
) -> (Outcome, usize) {
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
        counts_requests: matches!(about, About::Request(_) | About::Response(..) | About::Cached(_)),
        now_ms,
    };
    let Some(x) = x else {
        let sockets = Sockets::of_client(client);
        stage.sockets = Some(&sockets);
        return rules.run(&mut stage, start);
    };
    let sockets = Sockets::of(client, x);
    stage.sockets = Some(&sockets);
    match about {
        About::Connection => {}
        About::Request(_)
        | About::Content { .. }
        | About::Response(..)
        | About::ResponseContent { .. }
        | About::Cached(_)
        | About::Reply { .. } => {
            stage.longest_head = longest_head(client, x, about);
            stage.request_bytes = &x.request_body.seen;
            stage.response_bytes = &x.response_body.seen;
            if let About::Content { until, .. } | About::ResponseContent { until, .. } = about {
                stage.complete = now_ms >= *until;
            }
        }
        About::Stream { until, complete, .. } => {
            stage.request_bytes = client.side.received();
            x.txn.look_at(stage.request_bytes);
            stage.complete = *complete || now_ms >= *until;
        }
        About::Answer { upstream, until, complete, .. } => {
            stage.response_bytes = upstream.received();
            stage.complete = *complete || now_ms >= *until;
        }
    }
    stage.transaction = Some(&mut x.txn);
    rules.run(&mut stage, start)
}

/// Waits for more of what a condition looks at.
async fn wait_for_more(client: &mut Client, x: &mut Exchange, about: &mut About<'_>) -> Result<(), Stop> {
    match about {
        // In HTTP mode all that can be waited for is the body.
        About::Request(proxy) | About::Response(proxy, _) => {
            hold::hold_body(client, x, proxy, Wanted::ALL, None).await?
        }
        About::Content { until, .. } => {
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
        About::ResponseContent { proxy, upstream, until } => {
            inspect::hold_more(client, x, proxy, upstream, until).await?;
        }
        About::Stream { .. } | About::Answer { .. } => wait_for_bytes(client, x, about).await?,
        // All that there is of these is here.
        About::Connection | About::Cached(_) | About::Reply { .. } => {}
    }
    Ok(())
}

/// Applies a final verdict to the message.
///
/// # Errors
/// It goes no further. Some verdicts end only the rule set.
async fn conclude(
    client: &mut Client,
    x: Option<&mut Exchange>,
    about: &mut About<'_>,
    verdict: Final,
) -> Result<(), Stop> {
    let Some(x) = x else {
        if let Final::SilentDrop { rst_ttl } = verdict {
            client.side.vanish(rst_ttl);
        }
        return Err(Stop::Close);
    };
    let stop = match about {
        // A stream of HTTP is there already.
        About::Request(_)
        | About::Content { .. }
        | About::Response(..)
        | About::Cached(_)
        | About::ResponseContent { .. }
            if matches!(verdict, Final::SwitchMode(_)) =>
        {
            return Ok(());
        }
        About::Stream { .. } if let Final::SwitchMode(spoken) = verdict => {
            Stop::Upgrade(Upgrade::ByRule(spoken))
        }
        About::Request(proxy) | About::Content { proxy, .. } => {
            Box::pin(verdict::conclude(client, x, proxy, verdict, Side::Request)).await
        }
        About::Response(proxy, _) | About::Cached(proxy) | About::ResponseContent { proxy, .. } => {
            Box::pin(verdict::conclude(client, x, proxy, verdict, Side::Response)).await
        }
        // These rules end the response only by failing.
        About::Reply { .. } if matches!(verdict, Final::Internal) => Stop::Fault(Fault::Internal),
        About::Reply { .. } => return Ok(()),
        About::Connection | About::Stream { .. } => verdict::close_stream(client, x, verdict),
        About::Answer { proxy, .. } => verdict::close_answer(client, x, proxy, &verdict),
    };
    Err(stop)
}
