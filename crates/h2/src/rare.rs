//! What is counted of peers that break the rules, breach by breach (`debug counters`). Listed for the
//! binary; counted where it happens.

use base::rare::Rare;

use crate::fault::{BREACHES, GIVEN_UP, PIECES, SHRUNK};
use crate::message::CAUSES;

/// All counters of this crate.
pub fn rare() -> impl Iterator<Item = &'static Rare> {
    BREACHES.iter().chain([&SHRUNK, &GIVEN_UP, &PIECES]).chain(&CAUSES)
}
