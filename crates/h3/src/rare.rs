//! Counters of protocol violations, one each (`debug counters`). Those of malformed messages are in [`fields::rare`].

use base::event_counter::EventCounter;

use crate::fault::{GIVEN_UP, UNKNOWN, VIOLATIONS};

/// All counters of this crate.
pub fn rare() -> impl Iterator<Item = &'static EventCounter> {
    VIOLATIONS.iter().chain([&GIVEN_UP, &UNKNOWN])
}
