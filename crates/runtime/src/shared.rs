//! Values shared by several workers: plain relaxed atomics. Debug builds count their writes.
//!
//! Writing to a cache line that another core wrote last costs a transfer of that line, and transfers of one line are serialized,
//! whatever the number of cores. The number of such writes per request therefore shows how a proxy scales with its threads. A test
//! counts them (`crates/proxy/tests/shared_writes.rs`), including writes to reference counts by [`Local`](crate::Local). Values
//! written by a single worker belong in [`Sharded`](crate::Sharded) instead. These atomics impose no ordering.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The number of writes since the start; counted in debug builds only.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// The number of writes to shared values so far; 0 in release builds.
pub fn writes() -> u64 {
    WRITES.load(Relaxed)
}

/// Counts a write to a shared object that [`Shared`] does not cover.
#[inline(always)]
pub fn note_write() {
    if cfg!(debug_assertions) {
        WRITES.fetch_add(1, Relaxed);
    }
}

/// A number written by several workers.
pub trait Shared {
    /// The plain number.
    type Number;
    /// Adds; returns the previous value.
    fn add(&self, value: Self::Number) -> Self::Number;
    /// Subtracts; returns the previous value.
    fn sub(&self, value: Self::Number) -> Self::Number;
    /// Sets the value. Writes only if the value changes, because reading a line is cheaper than owning it.
    fn put(&self, value: Self::Number);
    /// Raises the value to at least `value`. Writes only if the current value is lower.
    fn raise(&self, value: Self::Number);
    /// Adds one unless the value has reached `limit`. Returns the previous value, or as an error the value that was too high.
    #[allow(clippy::missing_errors_doc)]
    fn take_below(&self, limit: Self::Number) -> Result<Self::Number, Self::Number>;
}

macro_rules! shared {
    ($($atomic:ident $number:ident)*) => {$(
        impl Shared for $atomic {
            type Number = $number;

            #[inline]
            fn add(&self, value: $number) -> $number {
                note_write();
                self.fetch_add(value, Relaxed)
            }

            #[inline]
            fn sub(&self, value: $number) -> $number {
                note_write();
                self.fetch_sub(value, Relaxed)
            }

            #[inline]
            fn put(&self, value: $number) {
                if self.load(Relaxed) != value {
                    note_write();
                    self.store(value, Relaxed);
                }
            }

            #[inline]
            fn raise(&self, value: $number) {
                if self.load(Relaxed) < value {
                    note_write();
                    self.fetch_max(value, Relaxed);
                }
            }

            #[inline]
            fn take_below(&self, limit: $number) -> Result<$number, $number> {
                note_write();
                self.fetch_update(Relaxed, Relaxed, |now| (now < limit).then_some(now + 1))
            }
        }
    )*};
}

shared! { AtomicU32 u32 AtomicU64 u64 AtomicUsize usize }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_up_to_the_limit() {
        let places = AtomicU32::new(0);
        assert_eq!(
            (places.take_below(2), places.take_below(2), places.take_below(2)),
            (Ok(0), Ok(1), Err(2))
        );
        assert_eq!((places.sub(1), places.load(Relaxed)), (2, 1));
    }

    #[test]
    fn unchanged_values_are_not_written() {
        let number = AtomicU64::new(7);
        let before = writes();
        number.put(7);
        number.raise(6);
        assert_eq!(writes(), before);
        number.raise(9);
        assert_eq!((number.load(Relaxed), writes() - before), (9, 1));
    }
}
