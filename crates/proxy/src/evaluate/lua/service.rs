//! Script services (`use-service`): runs them step by step, with their access to the request and their input and output. Callers
//! do the I/O.

use std::cell::RefCell;

use lua::{Bridge, CallStep, TakenBytes, WaitAnswer};
use sample::Env;

use super::action;
use crate::client::Client;
use crate::exchange::lua::scripting::{self, ScriptService};
use crate::exchange::{Exchange, view};

/// The maximum number of unsent output bytes. When it is exceeded, the script waits until they are sent.
const PORTION: usize = 16 * 1024;

/// Gives a service access to its request.
struct ServiceBridge<'a> {
    client: &'a Client,
    x: RefCell<&'a mut Exchange>,
}

impl ServiceBridge<'_> {
    fn service<R>(&self, with: impl FnOnce(&mut ScriptService) -> R) -> Option<R> {
        scripting::of(&mut self.x.borrow_mut()).service.as_mut().map(with)
    }
}

impl Bridge for ServiceBridge<'_> {
    fn view(&self, look: &mut dyn FnMut(&Env<'_>)) {
        view::with(self.client, &self.x.borrow(), |env| look(env));
    }

    fn notes(&self, with: &mut dyn FnMut(&mut lua::Notes)) -> bool {
        with(&mut scripting::of(&mut self.x.borrow_mut()).notes);
        true
    }

    fn respond(&self, reply: lua::ScriptReply) {
        self.service(|service| service.head = Some(reply));
    }

    fn send(&self, bytes: &[u8]) -> Option<bool> {
        self.service(|service| {
            service.output.extend_from_slice(bytes);
            service.output.len() >= PORTION
        })
    }

    fn take(&self, most: usize, is_line: bool) -> TakenBytes {
        let limit = self.client.worker.shared.plan.global.tune.bufsize;
        self.service(|service| take(service, most, is_line, limit)).unwrap_or(TakenBytes::End)
    }

    fn log(&self, level: u8, text: &[u8]) -> bool {
        scripting::log(self.client, &self.x.borrow(), level, text)
    }
}

/// Takes up to `most` bytes of input, or one line. An unfinished line is returned in parts of `limit` bytes.
fn take(service: &mut ScriptService, most: usize, is_line: bool, limit: usize) -> TakenBytes {
    let input = &mut service.input;
    if input.is_empty() {
        return if service.is_ended { TakenBytes::End } else { TakenBytes::Nothing };
    }
    let length = match input.iter().position(|byte| *byte == b'\n') {
        _ if !is_line => input.len(),
        Some(end) => end + 1,
        None if service.is_ended || input.len() >= limit => input.len(),
        None => return TakenBytes::Nothing,
    };
    TakenBytes::Bytes(input.drain(..length.min(most)).collect())
}

/// Starts or resumes the service.
pub(crate) fn step(client: &Client, x: &mut Exchange, answer: Option<WaitAnswer>) -> Option<CallStep> {
    let service = scripting::of(x).service.as_mut()?;
    let (call, running) = (service.call.clone(), service.running.take());
    let function = action::function(&call)?;
    let seat = ServiceBridge { client, x: RefCell::new(x) };
    let (running, step) = match running {
        Some(mut running) => {
            let step = running.resume(&seat, answer.unwrap_or_default());
            (running, step)
        }
        None => {
            let mut running = function.call();
            let step = running.begin_service(&seat, function);
            (running, step)
        }
    };
    let x = seat.x.into_inner();
    if let CallStep::Failed(failure) = &step {
        let what = if x.txn.is_http { "applet http" } else { "applet tcp" };
        action::log_failure(client, x, &running, &call, what, failure);
    }
    if let CallStep::Wait(_) = step {
        scripting::of(x).service.as_mut()?.running = Some(running);
    }
    Some(step)
}
