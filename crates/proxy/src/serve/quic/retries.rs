//! Clients that were sent a Retry and will come back.
//!
//! A Retry leaves no connection behind, and its token is only valid in the process that issued it. A process that stops therefore
//! waits for these clients, and still accepts them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::clock;

/// How long a client is expected, in ms. It covers a slow path, or a lost packet.
const WAIT: u64 = 2000;

/// Until when the last client is expected. Written by the workers that send a Retry.
static UNTIL: AtomicU64 = AtomicU64::new(0);

/// Notes that a client was sent a Retry.
pub(super) fn note() {
    // A flood writes rarely to memory that all workers share.
    const STEP: u64 = 100;
    let until = clock::now_ms() + WAIT;
    if until > UNTIL.load(Relaxed) + STEP {
        UNTIL.store(until, Relaxed);
    }
}

/// Returns until when a client is expected, in ms; `None` if none is.
pub(super) fn expected_until() -> Option<u64> {
    Some(UNTIL.load(Relaxed)).filter(|until| *until > clock::now_ms())
}
