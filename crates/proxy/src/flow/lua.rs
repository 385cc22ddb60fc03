//! Payload on its way through filters of scripts: what came in waits before them until whoever pumps the
//! direction has shown it to them, and gives what they pass on.
//!
//! They see the whole exchange, which a direction does not: `message::lua` calls them.

use super::filters::Unseen;
use super::{Flow, FlowError};

impl Flow {
    /// Where scripts stand among its filters, if any do and are not waited for by what is behind them.
    pub(crate) fn scripts(&self) -> Vec<usize> {
        match &self.filters {
            // What was passed on is to be sent first.
            Some(filters) if !self.is_blocked() => filters.scripts(),
            _ => Vec::new(),
        }
    }

    /// Takes what the script's filter at that place was not shown yet behind what `into` holds, as far as
    /// there is `room` for it. `None` where it is not its turn.
    pub(crate) fn take_unseen(
        &mut self,
        at: usize,
        into: &mut Vec<u8>,
        room: impl FnOnce(usize) -> usize,
    ) -> Option<Unseen> {
        self.filters.as_mut()?.take_unseen(at, into, room)
    }

    /// Passes on what it gives; with `is_over` that was the last of it. With `is_full` it takes no more
    /// until it passed something on.
    ///
    /// # Errors
    /// It is not as long as the receiver was told.
    pub(crate) fn put_from_script(
        &mut self,
        at: usize,
        bytes: &[u8],
        is_over: bool,
        is_full: bool,
    ) -> Result<(), FlowError> {
        if let Some(filters) = &mut self.filters {
            filters.put_from_script(at, bytes, is_over, is_full);
        }
        self.stage_filtered()
    }
}
