//! The script filters of a stream, with their progress in both directions. `message::lua` calls them.

use lua::Payload;
use plan::filter::ScriptFilters;
use runtime::timer::{NEVER, Timer, now_ms};

use crate::flow::Rank;

/// The filters of a stream. Those of the frontend are first.
#[derive(Default)]
pub(crate) struct Filtering {
    pub(crate) filters: Vec<Instance>,
    pub(crate) request: Direction,
    pub(crate) response: Direction,
    /// Whether the filters have seen the request's head.
    pub(crate) has_shown_request: bool,
    /// Wakes the stream when a filter has asked for it.
    timer: Option<Timer>,
}

/// A filter and its progress.
pub(crate) struct Instance {
    pub(crate) filter: lua::ScriptFilter,
    /// The rank of the filter in the request and the response; `None` if it does not run.
    pub(crate) ranks: [Option<Rank>; 2],
    /// The filter's states for the request and for the response.
    pub(crate) parts: [FilterDirection; 2],
    /// When to call it next, in ms of the worker's clock.
    pub(crate) wake_at: u64,
}

/// A filter's state for one direction.
#[derive(Default)]
pub(crate) struct FilterDirection {
    /// Whether the filter sees the data.
    pub(crate) sees_data: bool,
    /// Whether the data has begun.
    pub(crate) is_begun: bool,
    /// Whether the filter has passed on the end of the data.
    pub(crate) is_over: bool,
    pub(crate) payload: Payload,
}

/// One direction.
#[derive(Default)]
pub(crate) struct Direction {
    /// The indexes of the filters in this direction, in order.
    pub(crate) order: Vec<usize>,
    /// The body length set by a filter: `Some(None)` for chunked.
    pub(crate) length: Option<Option<u64>>,
}

impl Filtering {
    /// Returns one of the two directions.
    pub(crate) fn direction(&mut self, of_response: bool) -> &mut Direction {
        if of_response { &mut self.response } else { &mut self.request }
    }

    /// Adds the filters of a proxy that the stream has entered.
    pub(crate) fn add(
        &mut self,
        own: &ScriptFilters,
        made: Vec<Option<lua::ScriptFilter>>,
        limit: usize,
        of_backend: bool,
    ) {
        for ((_, places), filter) in own.0.iter().zip(made) {
            let rank = |of_response| Some(Rank { of_backend, place: places.of(of_response)? });
            let part = || FilterDirection { payload: Payload::new(limit), ..FilterDirection::default() };
            self.filters.extend(filter.map(|filter| Instance {
                filter,
                ranks: [rank(false), rank(true)],
                parts: [part(), part()],
                wake_at: NEVER,
            }));
        }
        for of_response in [false, true] {
            self.direction(of_response).order = self.order(of_response);
        }
    }

    /// Returns the indexes of the filters that run in a direction, in order.
    fn order(&self, of_response: bool) -> Vec<usize> {
        let rank = |place: &usize| self.filters[*place].ranks[usize::from(of_response)];
        let mut order: Vec<usize> = (0..self.filters.len()).filter(|place| rank(place).is_some()).collect();
        order.sort_by_key(rank);
        order
    }

    /// Returns the filters of a direction with their ranks, in order.
    pub(crate) fn ranked(&self, of_response: bool) -> impl Iterator<Item = (Rank, usize)> {
        let direction = if of_response { &self.response } else { &self.request };
        let ranked =
            move |place: &usize| Some((self.filters.get(*place)?.ranks[usize::from(of_response)]?, *place));
        direction.order.iter().filter_map(ranked)
    }

    /// Whether a filter that runs before `rank` in a direction may change the payload.
    pub(crate) fn has_any_before(&self, of_response: bool, rank: Rank) -> bool {
        self.ranked(of_response).any(|(other, _)| other < rank)
    }

    /// Whether any filter sees the data of a direction.
    pub(crate) fn sees_data(&self, of_response: bool) -> bool {
        let side = usize::from(of_response);
        self.filters.iter().any(|own| own.ranks[side].is_some() && own.parts[side].sees_data)
    }

    /// Starts or restarts a direction, and resets its state.
    pub(crate) fn begin(&mut self, of_response: bool) {
        for own in &mut self.filters {
            let part = &mut own.parts[usize::from(of_response)];
            if std::mem::replace(&mut part.is_begun, true) {
                part.payload = Payload::new(part.payload.limit);
                part.is_over = false;
            }
        }
    }

    /// Called for a message without payload.
    pub(crate) fn end_at_once(&mut self, of_response: bool) {
        for own in &mut self.filters {
            own.parts[usize::from(of_response)].payload.is_ended = true;
        }
    }

    /// Clears the wake-up time of filters that are due but need not be called.
    pub(crate) fn forget_woken(&mut self) {
        let now = now_ms();
        for own in self.filters.iter_mut().filter(|own| own.wake_at <= now) {
            let holds = |part: &FilterDirection| {
                !part.payload.input.is_empty() || part.payload.is_ended && !part.is_over
            };
            if !own.parts.iter().any(holds) {
                own.wake_at = NEVER;
            }
        }
    }

    /// Whether a filter is due now. If not, arranges that the calling task is woken when one is.
    pub(crate) fn poll_woken(&mut self, context: &mut std::task::Context<'_>) -> bool {
        let at = self.filters.iter().map(|own| own.wake_at).min().unwrap_or(NEVER);
        if at == NEVER || at <= now_ms() {
            return at != NEVER;
        }
        let timer = self.timer.get_or_insert_with(Timer::new);
        timer.set(at);
        timer.poll_expired(context).is_ready()
    }
}
