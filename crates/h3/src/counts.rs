//! The HTTP/3 statistics, named as in HAProxy's `show stat`.

use crate::Code;
use crate::code;

/// Counters since they were last taken. The caller sums them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// `h3_data`: frames received, as all up to `settings`.
    pub data: u32,
    /// `h3_headers`.
    pub headers: u32,
    /// `h3_cancel_push`.
    pub cancel_push: u32,
    /// `h3_push_promise`.
    pub push_promise: u32,
    /// `h3_max_push_id`.
    pub max_push_id: u32,
    /// `h3_goaway`.
    pub goaway: u32,
    /// `h3_settings`.
    pub settings: u32,
    /// Error codes sent or received, by [`Code::index`].
    pub codes: [u32; code::COUNT],
    /// Requests opened, by either side.
    pub streams: u32,
}

impl Counts {
    /// The number of times that a defined code was sent or received.
    #[must_use]
    pub fn of(&self, code: Code) -> u32 {
        code.index().map_or(0, |index| self.codes[index])
    }

    /// Adds other counters.
    pub fn add(&mut self, other: &Counts) {
        let own = [
            &mut self.data,
            &mut self.headers,
            &mut self.cancel_push,
            &mut self.push_promise,
            &mut self.max_push_id,
            &mut self.goaway,
            &mut self.settings,
            &mut self.streams,
        ];
        let others = [
            other.data,
            other.headers,
            other.cancel_push,
            other.push_promise,
            other.max_push_id,
            other.goaway,
            other.settings,
            other.streams,
        ];
        for (own, other) in own.into_iter().zip(others).chain(self.codes.iter_mut().zip(other.codes)) {
            *own = own.saturating_add(other);
        }
    }

    pub(crate) fn note(&mut self, code: Code) {
        if let Some(index) = code.index() {
            self.codes[index] += 1;
        }
    }
}
