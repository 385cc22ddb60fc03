//! Actions on stick tables: tracking, counters, tags.

use std::rc::Rc;
use std::sync::Arc;

use sample::expression::Expression;
use sample::track::{self, CountedEvent, Element};
use sample::{Scratch, Value};
use state::table::{Table, Tracked};

use crate::action::{TableChange, TrackedCounter};
use crate::stage::Stage;

/// The result of a tracking rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// Finished.
    Done,
    /// The key may still arrive.
    Early,
}

/// The stick table entry for a shared bandwidth limit.
pub(crate) fn shared_entry(stage: &Stage<'_>, key: &Expression, table: &Arc<Table>) -> Option<Rc<Tracked>> {
    let env = stage.env();
    let tracked =
        track::with_key(key.eval(&env)?, table.settings.kind, |key| Tracked::get(table, key, stage.now_ms));
    let tracked = tracked.flatten()?;
    tracked.view().touch(stage.now_ms);
    Some(Rc::new(tracked))
}

/// Tracks the entry of a key, unless the request or its connection already uses the counter. The entry is tracked for the request,
/// or for the connection if there is no request yet.
pub(crate) fn track(stage: &mut Stage<'_>, counter: u8, key: &Expression, table: &Arc<Table>) -> Tracking {
    let number = usize::from(counter);
    let of_request = stage.transaction.as_ref().is_some_and(|own| own.trackers.get(number).is_some());
    if of_request || stage.session.trackers().is_some_and(|held| held.borrow().get(number).is_some()) {
        return Tracking::Done;
    }
    let mut bytes = Scratch::new();
    {
        let env = stage.env();
        let value = key.eval(&env);
        if value.is_none() && env.may_change.get() && !env.complete {
            return Tracking::Early;
        }
        let written = value.and_then(|value: Value<'_>| {
            track::with_key(value, table.settings.kind, |key| bytes.extend_from_slice(key))
        });
        if written.is_none() {
            return Tracking::Done;
        }
    }
    let now = stage.now_ms;
    let Some(transaction) = &mut stage.transaction else {
        stage.session.trackers_to_change().borrow_mut().begin(number, table, &bytes, now);
        return Tracking::Done;
    };
    let (is_http, status) = (transaction.is_http, transaction.response.status());
    let has_response = transaction.has_response;
    let counts = is_http && stage.counts_requests;
    if let Some(view) = transaction.trackers.begin(number, table, &bytes, now)
        && counts
    {
        if has_response && stage.process.counted.errors.holds(status) {
            track::count(view, CountedEvent::Error, now);
        }
        if has_response && stage.process.counted.failures.holds(status) {
            track::count(view, CountedEvent::Failure, now);
        }
        transaction.trackers.count_request(now);
    }
    Tracking::Done
}

/// Changes a counter or tag of the tracked entry, if there is one.
pub(crate) fn change(stage: &Stage<'_>, change: TableChange, counted: TrackedCounter, value: i64) {
    let element = match counted.is_named {
        true => Element::Named(counted.element.into()),
        false => Element::Of(counted.element.into()),
    };
    let value = value.clamp(0, u32::MAX.into()) as u32;
    let now = stage.now_ms;
    track::with(&stage.env(), counted.counter.into(), |view| match change {
        TableChange::Add => drop(track::increment(&view, element, value, now)),
        TableChange::Tag => track::tag(&view, element, value, now),
    });
}
