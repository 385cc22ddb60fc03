//! Counters of protocol violations, one per breach (`debug counters`). The counters of malformed messages are in [`fields::rare`].

use base::event_counter::EventCounter;

use crate::fault::{BREACHES, GIVEN_UP, PIECES, SHRUNK};

/// All counters of this crate.
pub fn rare() -> impl Iterator<Item = &'static EventCounter> {
    BREACHES.iter().chain([&SHRUNK, &GIVEN_UP, &PIECES])
}
