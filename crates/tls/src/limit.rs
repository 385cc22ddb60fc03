//! Counts TLS connections and limits their number (`maxsslconn`, manual 3.2). A connection holds a [`ConnectionPermit`] as long as
//! it exists.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The current and the total number of TLS connections of this process. Any worker writes them when a connection begins or ends.
static NOW: AtomicU32 = AtomicU32::new(0);
static EVER: AtomicU64 = AtomicU64::new(0);

/// The limit; 0 for none. Written when the process starts.
static MOST: AtomicU32 = AtomicU32::new(0);

/// Returns the current number of TLS connections on both sides (`CurrSslConns`), and the total (`CumSslConns`).
pub fn counts() -> (u32, u64) {
    (NOW.load(Relaxed), EVER.load(Relaxed))
}

/// Returns the limit (`MaxSslConns`); 0 for none.
pub fn limit() -> u32 {
    MOST.load(Relaxed)
}

/// Sets the limit; 0 for none.
pub fn set_limit(most: u32) {
    MOST.store(most, Relaxed);
}

/// Whether one more connection is allowed.
pub fn has_room() -> bool {
    let most = limit();
    most == 0 || NOW.load(Relaxed) < most
}

/// The slot of one connection, released when dropped.
#[derive(Debug)]
pub struct ConnectionPermit(());

impl ConnectionPermit {
    /// Takes a slot if one is free.
    pub fn take() -> Option<Self> {
        let most = limit();
        let taken = NOW.fetch_update(Relaxed, Relaxed, |now| (most == 0 || now < most).then_some(now + 1));
        // Created lazily, because dropping a permit would release a slot that was not taken.
        taken.is_ok().then(|| Self(()))
    }

    /// Takes a slot regardless of the limit.
    pub(crate) fn force() -> Self {
        NOW.fetch_add(1, Relaxed);
        Self(())
    }

    /// Counts the connection that starts in the slot.
    pub(crate) fn begin(self) -> Self {
        EVER.fetch_add(1, Relaxed);
        self
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        NOW.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_take_releases_no_slot() {
        // Other tests in this process have connections, so the limit is ignored.
        let held = ConnectionPermit::force();
        set_limit(1);
        assert!((0..100).all(|_| ConnectionPermit::take().is_none()) && !has_room());
        set_limit(u32::MAX);
        assert!(ConnectionPermit::take().is_some() && has_room());
        set_limit(0);
        drop(held);
    }
}
