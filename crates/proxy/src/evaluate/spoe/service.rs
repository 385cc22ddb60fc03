//! Runs a script in place of an agent. A service that a rule of the agents' backend names (`use-service`) reads the query, and
//! its first output is the answer. As in HAProxy, the service reads the frame type before the messages, but writes only the
//! actions.

use std::sync::Arc;
use std::task::Poll;

use lua::{CallStep, Wait, WaitAnswer};
use rules::ScriptCall;
use runtime::timer::now_ms;

use super::backend::AgentQuery;
use super::failure::SpoeFailure;
use crate::client::{Client, Watch};
use crate::evaluate::lua::{action, service};
use crate::exchange::Exchange;
use crate::exchange::lua::scripting::{self, ScriptService};
use crate::fault::Fault;

/// Runs the service until it answers.
///
/// # Errors
/// The service ended without an answer, or waited for data that will never arrive.
pub(super) async fn answer(
    client: &mut Client,
    own: &mut Exchange,
    asked: AgentQuery<'_>,
    call: Arc<ScriptCall>,
) -> Result<Vec<u8>, SpoeFailure> {
    let mut service = ScriptService::new(call);
    service.input.extend_from_slice(&own.request_body.seen);
    scripting::of(own).service = Some(service);
    // The service reads and writes a TCP stream.
    own.txn.is_http = false;
    let mut answer = WaitAnswer::Nothing;
    loop {
        let step = service::step(client, own, Some(answer));
        let service = scripting::of(own).service.as_mut();
        let sent = service.map(|service| std::mem::take(&mut service.output)).unwrap_or_default();
        if !sent.is_empty() {
            return Ok(sent);
        }
        answer = match step {
            Some(CallStep::Wait(Wait::Input(time))) => wait_for_timeout(client, asked, time).await?,
            Some(CallStep::Wait(wait)) => {
                let waited = action::await_for(client, asked.leaving, wait);
                waited.await.map_err(SpoeFailure::of_stop)?
            }
            Some(CallStep::Done(_) | CallStep::Failed(_)) | None => return Err(SpoeFailure::BROKEN),
        };
    }
}

/// Waits until the timeout for a service that asks for more input although it has the whole query.
///
/// # Errors
/// The wait would exceed the server timeout.
async fn wait_for_timeout(
    client: &mut Client,
    asked: AgentQuery<'_>,
    time: Option<u64>,
) -> Result<WaitAnswer, SpoeFailure> {
    client.timer.set_after(now_ms(), asked.backend.timeouts.server);
    if let Some(time) = time {
        client.timer.set(now_ms().saturating_add(time));
    }
    let watch = Watch { leaving: asked.leaving, late: Fault::ServerTimeout };
    let waited: Result<(), Fault> = client.wait(watch, |_, _| Poll::Pending).await;
    match waited {
        Err(Fault::ServerTimeout) if time.is_some() => Ok(WaitAnswer::Nothing),
        Err(fault) => Err(SpoeFailure::of_fault(fault)),
        Ok(()) => Ok(WaitAnswer::Nothing),
    }
}
