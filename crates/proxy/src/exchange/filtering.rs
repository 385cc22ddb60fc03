//! The filters of scripts that see a stream, and how far each came with either direction.
//! `message::scripted` calls them.

use lua::Payload;
use plan::filter::ScriptFilters;
use runtime::timer::{NEVER, Timer, now_ms};

/// The filters of a stream, the frontend's first.
#[derive(Default)]
pub(crate) struct Filtering {
    pub(crate) filters: Vec<Instance>,
    pub(crate) request: Direction,
    pub(crate) response: Direction,
    /// Wakes the stream for a filter that asked for it.
    timer: Option<Timer>,
}

/// A filter, and how far it came.
pub(crate) struct Instance {
    pub(crate) filter: lua::Filter,
    /// What it has of the request and of the response.
    pub(crate) parts: [Part; 2],
    /// When it is to be called again, in ms of the worker's clock.
    pub(crate) wake_at: u64,
}

/// What a filter has of one direction.
#[derive(Default)]
pub(crate) struct Part {
    /// Whether it sees what passes.
    pub(crate) sees_data: bool,
    /// Whether that has begun.
    pub(crate) is_begun: bool,
    /// Whether it let the end pass.
    pub(crate) is_over: bool,
    pub(crate) payload: Payload,
}

/// One direction.
#[derive(Default)]
pub(crate) struct Direction {
    /// The filters that see it, by their places, in their order.
    pub(crate) order: Vec<usize>,
    /// The length that a filter gave the body: `Some(None)` for one in chunks.
    pub(crate) length: Option<Option<u64>>,
    /// What its receiver was promised and did not get yet.
    pub(crate) left: Option<u64>,
}

impl Filtering {
    /// One of the directions.
    pub(crate) fn direction(&mut self, of_response: bool) -> &mut Direction {
        if of_response { &mut self.response } else { &mut self.request }
    }

    /// Adds filters of a proxy that a stream began; `places` are where they stand among the others.
    pub(crate) fn add(&mut self, own: &ScriptFilters, made: Vec<Option<lua::Filter>>, limit: usize) {
        let mut places = Vec::with_capacity(made.len());
        for filter in made {
            places.push(filter.as_ref().map(|_| self.filters.len()));
            let part = || Part { payload: Payload::new(limit), ..Part::default() };
            let instance = |filter| Instance { filter, parts: [part(), part()], wake_at: NEVER };
            self.filters.extend(filter.map(instance));
        }
        for (direction, order) in [(&mut self.request, &own.request), (&mut self.response, &own.response)] {
            direction.order.extend(order.iter().filter_map(|at| places.get(*at).copied().flatten()));
        }
    }

    /// Whether any filter sees what passes in a direction.
    pub(crate) fn sees_data(&self, of_response: bool) -> bool {
        self.filters.iter().any(|own| own.parts[usize::from(of_response)].sees_data)
    }

    /// A direction begins, perhaps not for the first time: what was seen of it is forgotten.
    pub(crate) fn begin(&mut self, of_response: bool, promised: Option<u64>) {
        self.direction(of_response).left = promised;
        for own in &mut self.filters {
            let part = &mut own.parts[usize::from(of_response)];
            if std::mem::replace(&mut part.is_begun, true) {
                part.payload = Payload::new(part.payload.limit);
                part.is_over = false;
            }
        }
    }

    /// A message has no payload.
    pub(crate) fn end_at_once(&mut self, of_response: bool) {
        for own in &mut self.filters {
            own.parts[usize::from(of_response)].payload.is_ended = true;
        }
    }

    /// Those that were to be called by now have nothing that their functions would be called for.
    pub(crate) fn forget_woken(&mut self) {
        let now = now_ms();
        for own in self.filters.iter_mut().filter(|own| own.wake_at <= now) {
            let holds =
                |part: &Part| !part.payload.input.is_empty() || part.payload.is_ended && !part.is_over;
            if !own.parts.iter().any(holds) {
                own.wake_at = NEVER;
            }
        }
    }

    /// Whether a filter is to be called again now; else the calling task is woken then.
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
