//! How many bytes variables may hold (`tune.vars.*-max-size`), and how many all of them do.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::value::Value;

/// How many bytes variables may hold (`tune.vars.*-max-size`), 0 for no limit. Coarser ones include
/// the finer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VariableLimits {
    /// `global`: all variables of the process.
    pub all: usize,
    /// `proc`: all of them too.
    pub process: usize,
    /// `sess`: a session's with those of its transaction.
    pub session: usize,
    /// `txn`: a transaction's with those of its request and response.
    pub transaction: usize,
    /// `reqres`: those of a request, and of a response.
    pub message: usize,
    /// `check`: those of a health check.
    pub check: usize,
}

/// Bytes that a variable counts beside its text.
pub(crate) const ENTRY: usize = 64;

/// The limits in force; nothing is counted while there are none.
static LIMITS: OnceLock<VariableLimits> = OnceLock::new();
static LIMITED: AtomicBool = AtomicBool::new(false);
/// Whether one of them is on the variables of all workers together.
static LIMITED_TOGETHER: AtomicBool = AtomicBool::new(false);
/// Bytes that all variables hold. Written by every worker, only while there is such a limit.
pub(crate) static HELD: AtomicUsize = AtomicUsize::new(0);

/// Puts limits in force, once, before the first variable is set.
pub fn limit(limits: VariableLimits) {
    if limits != VariableLimits::default() && LIMITS.set(limits).is_ok() {
        LIMITED_TOGETHER.store(limits.all > 0 || limits.process > 0, Relaxed);
        LIMITED.store(true, Relaxed);
    }
}

pub(crate) fn limits() -> Option<&'static VariableLimits> {
    if LIMITED.load(Relaxed) { LIMITS.get() } else { None }
}

/// What a value would count.
pub(crate) fn size_of(value: &Value<'_>) -> usize {
    ENTRY + value.bytes().map_or(0, <[u8]>::len)
}

/// Whether `held` bytes are within `limit`.
pub(crate) fn within(limit: usize, held: usize) -> bool {
    limit == 0 || held <= limit
}

/// Counts `new` bytes in the place of `old` among those of all variables.
pub(crate) fn count_all(old: usize, new: usize) {
    if old != new && LIMITED_TOGETHER.load(Relaxed) {
        HELD.fetch_add(new.wrapping_sub(old), Relaxed);
    }
}
