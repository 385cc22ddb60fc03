//! Payload that passes through script filters. Input is queued in front of a filter until the caller that drives the direction
//! has shown it to the script. The caller then forwards the script's output.
//!
//! The scripts see the whole exchange. A flow does not have access to it, so `message::lua` calls the scripts.

use super::filters::Unseen;
use super::{Flow, FlowError};

impl Flow {
    /// Returns the indexes of the script filters, if any may run now.
    pub(crate) fn scripts(&self) -> Vec<usize> {
        match &self.filters {
            // Output is sent first.
            Some(filters) if !self.is_blocked() => filters.scripts(),
            _ => Vec::new(),
        }
    }

    /// Moves payload that the script filter at this index has not seen to the end of `into`, up to `room` bytes. Returns `None`
    /// if it is not the filter's turn.
    pub(crate) fn take_unseen(
        &mut self,
        at: usize,
        into: &mut Vec<u8>,
        room: impl FnOnce(usize) -> usize,
    ) -> Option<Unseen> {
        self.filters.as_mut()?.take_unseen(at, into, room)
    }

    /// Forwards the filter's output. `is_over` marks the end of the output. If `is_full` is set, the filter takes no more input
    /// until it has forwarded something.
    ///
    /// # Errors
    /// The output does not match the length declared to the receiver.
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
