//! Whether the process is short of memory: an allocation failed under a limit (`-m`, `ulimit -v`), and the reserve for this case is
//! in use.
//!
//! Set and cleared by `process`, which contains the allocator. During a shortage listeners accept less, requests get 503 instead of
//! a server connection, and no buffers are allocated.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

static SHORT: AtomicBool = AtomicBool::new(false);

/// Whether memory is short.
#[inline]
pub fn is_short() -> bool {
    SHORT.load(Relaxed)
}

/// Begins or ends a shortage. Does not allocate.
pub fn set_short(short: bool) {
    SHORT.store(short, Relaxed);
}
