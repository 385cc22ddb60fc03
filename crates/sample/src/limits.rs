//! Limits on the memory of variables (`tune.vars.*-max-size`), and its accounting.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::value::Value;

/// The maximum size of variables in bytes (`tune.vars.*-max-size`); 0 for no limit. Wider scopes include the narrower ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VariableLimits {
    /// `global`: all variables of the process.
    pub all: usize,
    /// `proc`: also all variables of the process.
    pub process: usize,
    /// `sess`: the variables of a session and its transaction.
    pub session: usize,
    /// `txn`: the variables of a transaction, its request and its response.
    pub transaction: usize,
    /// `reqres`: the variables of a request or of a response.
    pub message: usize,
    /// `check`: the variables of a health check.
    pub check: usize,
}

/// The overhead in bytes counted per variable.
pub(crate) const ENTRY: usize = 64;

/// The limits in force. Without limits, nothing is counted.
static LIMITS: OnceLock<VariableLimits> = OnceLock::new();
static LIMITED: AtomicBool = AtomicBool::new(false);
/// Whether a limit applies to all workers together.
static LIMITED_TOGETHER: AtomicBool = AtomicBool::new(false);
/// The total size of all variables. Every worker writes it, but only if a limit applies to all workers together.
pub(crate) static HELD: AtomicUsize = AtomicUsize::new(0);

/// Sets the limits once, before the first variable is set.
pub fn limit(limits: VariableLimits) {
    if limits != VariableLimits::default() && LIMITS.set(limits).is_ok() {
        LIMITED_TOGETHER.store(limits.all > 0 || limits.process > 0, Relaxed);
        LIMITED.store(true, Relaxed);
    }
}

pub(crate) fn limits() -> Option<&'static VariableLimits> {
    if LIMITED.load(Relaxed) { LIMITS.get() } else { None }
}

/// The size of a value for the accounting.
pub(crate) fn size_of(value: &Value<'_>) -> usize {
    ENTRY + value.bytes().map_or(0, <[u8]>::len)
}

/// Whether `held` bytes are within `limit`.
pub(crate) fn within(limit: usize, held: usize) -> bool {
    limit == 0 || held <= limit
}

/// Replaces `old` bytes with `new` in the total of all variables.
pub(crate) fn count_all(old: usize, new: usize) {
    if old != new && LIMITED_TOGETHER.load(Relaxed) {
        HELD.fetch_add(new.wrapping_sub(old), Relaxed);
    }
}
