//! Reads ahead for a response that a cache stores and that others read as it arrives (`collapsed-forwarding`), if the first
//! client is slow or gone. Called by `pump` and by `message::download`.

use std::task::{Context, Poll};

use runtime::Buffer;

use super::source::SourceReader;
use super::{Coding, Flow, FlowError, Path};

impl Flow {
    /// Receives more data for a cache while this receiver is slower than the cache's other readers.
    #[cold]
    pub(super) fn read_ahead(
        &mut self,
        context: &mut Context<'_>,
        from: &mut SourceReader<'_>,
        buffer: &mut Buffer,
    ) -> Result<(), FlowError> {
        while !self.has_ended() && self.filters.as_mut().is_some_and(|filters| filters.run_ahead(context)) {
            match self.poll_receive(context, from, buffer) {
                Poll::Ready(received) => received?,
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Returns whether others read the payload from a cache, and if so, whether they need more of it now.
    pub(crate) fn feeds_others(&self, context: &Context<'_>) -> Option<bool> {
        self.filters.as_ref()?.feeds_others(context).filter(|_| !self.is_received())
    }

    /// The receiver is gone, but other readers still get the remaining payload from a cache.
    #[cold]
    pub(crate) fn discard_for_receiver(&mut self) {
        self.staged.clear();
        self.staged_sent = 0;
        self.gate = None;
        self.path = Path::Filtered(Coding::Nothing);
        if let Some(filters) = &mut self.filters {
            filters.discard();
        }
    }
}
