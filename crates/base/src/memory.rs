//! A flag that is set while the process is short of memory: an allocation failed under a limit (`-m`, `ulimit -v`), and the reserve
//! for this case is in use.
//!
//! `process`, which contains the allocator, sets and clears the flag. During a shortage, listeners accept fewer connections,
//! requests that need a new server connection get 503, and no buffers are allocated.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

static SHORT: AtomicBool = AtomicBool::new(false);

/// Whether memory is short.
#[inline]
pub fn is_short() -> bool {
    SHORT.load(Relaxed)
}

/// Begins or ends a shortage. This function does not allocate.
pub fn set_short(short: bool) {
    SHORT.store(short, Relaxed);
}
