//! Script functions as rule actions: starts them, resumes them after a wait, and applies their result to the message.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use lua::{Bridge, CallFailure, CallStep, Function, Payload, RunningCall, Wait, WaitAnswer};
use rules::{Edit, Final, Reply, ScriptCall, Side};
use runtime::timer;
use sample::{Cause, Env, Phase};

use crate::client::{Client, Watch};
use crate::evaluate::rule_context::{RuleContext, longest_head, wait_for_bytes, watches};
use crate::exchange::lua::scripting::{self, ScriptEnd};
use crate::exchange::{Exchange, Stop, view};

/// The return value of an action that wants to be called again (`act.YIELD`).
const AGAIN: i64 = 2;

/// The default delay before it is called again, in ms.
const UNSAID: u64 = 100;

/// The outcome of an action.
pub(in super::super) enum ActionVerdict {
    /// The next rule.
    Next,
    /// The rest of the rule set is skipped.
    Accept,
    /// Equivalent to the verdict of a rule.
    Final(Final),
    /// The message is not forwarded.
    Stop(Stop),
}

/// Gives an action access to its request.
struct ActionBridge<'a> {
    client: &'a Client,
    x: RefCell<&'a mut Exchange>,
    /// The maximum length of a head, in bytes.
    limit: usize,
    is_response: bool,
    /// The bytes received on a TCP stream.
    received: Option<&'a [u8]>,
    /// Whether no more bytes are expected.
    is_complete: bool,
}

impl<'a> ActionBridge<'a> {
    fn new(client: &'a Client, x: &'a mut Exchange, about: &'a RuleContext<'_>) -> Self {
        let (limit, is_response) = (longest_head(client, x, about), about.is_response());
        let (received, is_complete) = match about {
            RuleContext::Stream { complete, .. } => (Some(client.side.received()), *complete),
            RuleContext::Answer { upstream, complete, .. } => (Some(upstream.received()), *complete),
            _ => (None, true),
        };
        Self { client, x: RefCell::new(x), limit, is_response, received, is_complete }
    }
}

impl Bridge for ActionBridge<'_> {
    fn view(&self, look: &mut dyn FnMut(&Env<'_>)) {
        view::with(self.client, &self.x.borrow(), |env| look(env));
    }

    fn edit(&self, edit: &Edit<'_>) -> Option<bool> {
        let mut x = self.x.borrow_mut();
        let fits = x.txn.is_http && (edit.side() == Side::Response) == self.is_response;
        fits.then(|| edit.make(&mut x.txn, self.limit))
    }

    fn notes(&self, with: &mut dyn FnMut(&mut lua::Notes)) -> bool {
        with(&mut scripting::of(&mut self.x.borrow_mut()).notes);
        true
    }

    fn set(&self, setting: lua::Setting) {
        scripting::set(self.client, &mut self.x.borrow_mut(), setting);
    }

    fn end(&self, reply: Option<lua::ScriptReply>) {
        scripting::of(&mut self.x.borrow_mut()).ended =
            Some(reply.map_or(ScriptEnd::Closed, ScriptEnd::Answered));
    }

    fn payload(&self, of_response: bool, of_message: bool, with: &mut dyn FnMut(&mut Payload)) -> bool {
        let Some(received) = self.received.filter(|_| !of_message) else { return false };
        let tune = &self.client.worker.shared.plan.global.tune;
        let limit = tune.bufsize.saturating_sub(tune.maxrewrite).max(received.len());
        let mut x = self.x.borrow_mut();
        let scripting = scripting::of(&mut x);
        match (of_response, self.is_response) {
            (true, false) => with(scripting.replied.get_or_insert_with(|| Payload::new(limit))),
            // Nothing can be sent to the server after it has answered.
            (false, true) => return false,
            _ => {
                let is_ended = self.is_complete;
                let input = || received.to_vec();
                let begin = || Payload { input: input(), is_ended, waits: true, ..Payload::new(limit) };
                with(scripting.edited.get_or_insert_with(begin));
            }
        }
        true
    }

    fn log(&self, level: u8, text: &[u8]) -> bool {
        scripting::log(self.client, &self.x.borrow(), level, text)
    }

    fn is_response(&self) -> bool {
        self.is_response
    }
}

/// Returns the Lua function that the rule refers to.
pub(crate) fn function(call: &ScriptCall) -> Option<&Function> {
    let function: &dyn std::any::Any = &*call.function;
    function.downcast_ref()
}

/// Replaces the received bytes of a stream with the action's version. Bytes that the action forwarded are sent first.
#[inline]
pub(in super::super) fn put_back(client: &mut Client, x: &mut Exchange, about: &mut RuleContext<'_>) {
    let edited = x.scripting.as_mut().and_then(|scripting| scripting.edited.take());
    if let Some(edited) = edited {
        put_edited(client, x, about, edited);
    }
}

#[cold]
fn put_edited(client: &mut Client, x: &mut Exchange, about: &mut RuleContext<'_>, edited: Payload) {
    match about {
        RuleContext::Answer { upstream, .. } => {
            if upstream.received() != edited.input {
                upstream.replace_received(&edited.input);
                x.response_body.seen.clone_from(&edited.input);
            }
            x.download.staged.extend_from_slice(&edited.output);
        }
        _ => {
            if client.side.received() != edited.input {
                client.side.replace_received(&edited.input);
            }
            x.txn.bytes_in += edited.output.len() as u64;
            scripting::of(x).forwarded.extend_from_slice(&edited.output);
        }
    }
}

/// Whether an action has written data for the client.
#[inline]
pub(in super::super) fn has_reply(x: &Exchange) -> bool {
    x.scripting.as_ref().is_some_and(|scripting| scripting.replied.is_some())
}

/// Sends the client the bytes that an action wrote for it. This must happen before the action waits, because it may wait for the
/// client's answer.
///
/// # Errors
/// The client did not accept them in time.
#[inline]
pub(in super::super) async fn reply(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    match x.scripting.as_mut().and_then(|scripting| scripting.replied.take()) {
        Some(said) => Box::pin(send_reply(client, x, said)).await,
        None => Ok(()),
    }
}

async fn send_reply(client: &mut Client, x: &mut Exchange, said: Payload) -> Result<(), Stop> {
    let bytes = [said.output, said.input].concat();
    let timeout = client.frontend.timeouts.client;
    client.timer.set_after(timer::now_ms(), timeout);
    client.send_bytes(&bytes).await?;
    x.txn.bytes_out += bytes.len() as u64;
    Ok(())
}

/// Starts an action. Most actions complete at once.
#[inline(never)]
pub(in super::super) fn begin(
    client: &Client,
    x: &mut Exchange,
    about: &RuleContext<'_>,
    call: &ScriptCall,
) -> Result<ActionVerdict, (RunningCall, Wait)> {
    let Some(function) = function(call) else { return Ok(ActionVerdict::Next) };
    let mut running = function.call();
    let step = {
        let seat = ActionBridge::new(client, x, about);
        running.begin_action(&seat, function, &call.words)
    };
    take(client, x, about, call, running, step)
}

/// Runs a waiting action to its end.
#[cold]
pub(in super::super) async fn go_on(
    client: &mut Client,
    x: &mut Exchange,
    about: &mut RuleContext<'_>,
    call: &Arc<ScriptCall>,
    begun: (RunningCall, Wait),
) -> Result<ActionVerdict, Stop> {
    let (mut running, mut wait) = begun;
    loop {
        let leaving = watches(client, x, about);
        let anew = function(call).filter(|_| matches!(wait, Wait::Again(_)));
        let answer = match wait {
            Wait::Input(_) => {
                wait_for_bytes(client, x, about).await?;
                WaitAnswer::Nothing
            }
            wait => await_for(client, leaving, wait).await?,
        };
        let step = {
            let seat = ActionBridge::new(client, x, about);
            match anew {
                None => running.resume(&seat, answer),
                Some(function) => {
                    running = function.call();
                    running.begin_action(&seat, function, &call.words)
                }
            }
        };
        put_back(client, x, about);
        reply(client, x).await?;
        match take(client, x, about, call, running, step) {
            Ok(verdict) => return Ok(verdict),
            Err((still, next)) => (running, wait) = (still, next),
        }
    }
}

/// Returns the verdict of one step of an action. If the action waits, returns an error.
fn take(
    client: &Client,
    x: &mut Exchange,
    about: &RuleContext<'_>,
    call: &ScriptCall,
    running: RunningCall,
    step: CallStep,
) -> Result<ActionVerdict, (RunningCall, Wait)> {
    match step {
        CallStep::Done(values) if values.is_empty() => Ok(ActionVerdict::Next),
        CallStep::Done(values) if lua::number(&values) == AGAIN => {
            let pause = scripting::of(x).wake_in.take().unwrap_or(UNSAID);
            Err((running, Wait::Again(pause)))
        }
        CallStep::Done(values) => Ok(verdict(x, about, lua::number(&values))),
        CallStep::Wait(Wait::End) => Ok(ActionVerdict::Stop(ended(x, about))),
        CallStep::Wait(wait) => Err((running, wait)),
        CallStep::Failed(failure) => {
            // As in HAProxy, the message is forwarded as if the action had stopped at this point.
            log_failure(client, x, &running, call, "function", &failure);
            Ok(ActionVerdict::Next)
        }
    }
}

/// Logs that a call failed.
pub(crate) fn log_failure(
    client: &Client,
    x: &mut Exchange,
    running: &RunningCall,
    call: &ScriptCall,
    what: &str,
    failure: &CallFailure,
) {
    let name = function(call).map_or("", |function| &function.name);
    let seat = ActionBridge {
        client,
        x: RefCell::new(x),
        limit: 0,
        is_response: false,
        received: None,
        is_complete: true,
    };
    running.log(&seat, &format!("Lua {what} '{name}': {}.", failure.text()));
}

/// Translates an action's numeric result (`act`).
fn verdict(x: &mut Exchange, about: &RuleContext<'_>, number: i64) -> ActionVerdict {
    let deny = |status| ActionVerdict::Final(Final::Deny(Arc::new(Reply::page(status))));
    match number {
        1 => ActionVerdict::Accept,
        3 => ActionVerdict::Final(Final::Internal),
        4 => ActionVerdict::Stop(Stop::Close),
        5 => deny(if about.is_response() { 502 } else { 403 }),
        6 => deny(503),
        7 => {
            x.keep_alive = false;
            deny(400)
        }
        _ => ActionVerdict::Next,
    }
}

/// Ends the request as the action requested, with or without a response.
fn ended(x: &mut Exchange, about: &RuleContext<'_>) -> Stop {
    let phase = if about.is_response() { Phase::Headers } else { Phase::Request };
    x.txn.termination.set(Cause::Local, phase);
    match scripting::of(x).ended.take() {
        Some(ScriptEnd::Answered(reply)) if x.txn.is_http => {
            scripting::answer(x, reply);
            Stop::Reply
        }
        _ => Stop::Close,
    }
}

/// Waits for the event that a script requested.
///
/// # Errors
/// The reason why the wait ended.
pub(crate) async fn await_for(client: &mut Client, leaving: bool, wait: Wait) -> Result<WaitAnswer, Stop> {
    match wait {
        Wait::Turn | Wait::End => {
            tokio::task::yield_now().await;
            // This also detects between two steps that the client was killed.
            client.timer.set(timer::NEVER);
            let watch = Watch { leaving, ..Watch::KILL };
            client.wait(watch, |_, _| std::task::Poll::Ready(())).await?;
        }
        Wait::Change(..) | Wait::Socket(_) | Wait::Ask(_) | Wait::Command(..) => {
            client.timer.set(timer::NEVER);
            let watch = Watch { leaving, ..Watch::KILL };
            let mut done = (client.worker.shared.services.perform)(wait);
            return Ok(client.wait(watch, |_, context| done.as_mut().poll(context)).await?);
        }
        // Only services, and actions in other places, wait for these events.
        Wait::Start | Wait::Flush | Wait::Input(_) => {}
        Wait::Sleep(ms) | Wait::Again(ms) => client.pause(Duration::from_millis(ms), leaving).await?,
    }
    Ok(WaitAnswer::Nothing)
}
