//! Calls script filters, and gives them access to the exchange and to payload.

use std::cell::RefCell;

use lua::{Bridge, Callback, FilterRequest, Payload};
use rules::{Edit, Side};
use runtime::timer::{NEVER, now_ms};
use sample::Env;

use crate::client::Client;
use crate::exchange::lua::filtering::Filtering;
use crate::exchange::lua::scripting;
use crate::exchange::{Exchange, view};
use crate::fault::Fault;

/// Gives a filter function access to the exchange.
pub(super) struct FilterBridge<'a> {
    pub(super) client: &'a Client,
    pub(super) x: RefCell<&'a mut Exchange>,
    pub(super) filtering: RefCell<&'a mut Filtering>,
    /// The index of the filter.
    pub(super) place: usize,
    pub(super) callback: Callback,
}

impl FilterBridge<'_> {
    /// Whether the filter may change the head of this message.
    fn may_edit(&self, x: &Exchange, of_response: bool) -> bool {
        match self.callback {
            Callback::Start | Callback::Headers => x.txn.is_http && x.txn.has_response == of_response,
            _ => false,
        }
    }
}

impl Bridge for FilterBridge<'_> {
    fn view(&self, look: &mut dyn FnMut(&Env<'_>)) {
        view::with(self.client, &self.x.borrow(), |env| look(env));
    }

    fn edit(&self, edit: &Edit<'_>) -> Option<bool> {
        let mut x = self.x.borrow_mut();
        let tune = &self.client.worker.shared.plan.global.tune;
        let may = self.may_edit(&x, edit.side() == Side::Response);
        may.then(|| edit.make(&mut x.txn, tune.bufsize))
    }

    fn notes(&self, with: &mut dyn FnMut(&mut lua::Notes)) -> bool {
        with(&mut scripting::of(&mut self.x.borrow_mut()).notes);
        true
    }

    fn set(&self, setting: lua::Setting) {
        scripting::set(self.client, &mut self.x.borrow_mut(), setting);
    }

    fn payload(&self, of_response: bool, of_message: bool, with: &mut dyn FnMut(&mut Payload)) -> bool {
        if self.x.borrow().txn.is_http != of_message {
            return false;
        }
        let mut filtering = self.filtering.borrow_mut();
        let Some(own) = filtering.filters.get_mut(self.place) else { return false };
        with(&mut own.parts[usize::from(of_response)].payload);
        true
    }

    fn want(&self, wanted: FilterRequest) -> bool {
        let mut filtering = self.filtering.borrow_mut();
        let Some(own) = filtering.filters.get_mut(self.place) else { return false };
        match wanted {
            FilterRequest::Data { of_response, on } => own.parts[usize::from(of_response)].sees_data = on,
            FilterRequest::Wake(ms) => own.wake_at = now_ms().saturating_add(ms),
            FilterRequest::Length { of_response, length } => {
                if !self.may_edit(&self.x.borrow(), of_response) {
                    return false;
                }
                filtering.direction(of_response).length = Some(length);
            }
        }
        true
    }

    fn log(&self, level: u8, text: &[u8]) -> bool {
        scripting::log(self.client, &self.x.borrow(), level, text)
    }

    fn is_response(&self) -> bool {
        self.x.borrow().txn.has_response
    }
}

/// Calls a function of a filter, if the filter has it. Returns `None` if the function returned nothing.
///
/// # Errors
/// The function failed, or returned a negative number.
pub(super) fn call(
    client: &Client,
    x: &mut Exchange,
    filtering: &mut Filtering,
    place: usize,
    callback: Callback,
    of_response: bool,
) -> Result<Option<i64>, Fault> {
    let Some(own) = filtering.filters.get_mut(place) else { return Ok(None) };
    let is_unseen = callback == Callback::MessageEnd && !own.parts[usize::from(of_response)].sees_data;
    if is_unseen || !own.filter.has(callback) {
        return Ok(None);
    }
    own.wake_at = NEVER;
    // Cloned because the function may borrow the filter's entry.
    let filter = own.filter.clone();
    let seat =
        FilterBridge { client, x: RefCell::new(x), filtering: RefCell::new(filtering), place, callback };
    match filter.call(&seat, callback, of_response) {
        Ok(Some(number)) if number < 0 => Err(refused(of_response)),
        Ok(number) => Ok(number),
        Err(_) => Err(refused(of_response)),
    }
}

/// Returns the fault for a message that a filter refuses. As in HAProxy, the sender of the message is blamed.
pub(super) fn refused(of_response: bool) -> Fault {
    if of_response { Fault::BadResponseBody } else { Fault::BadRequestBody }
}
