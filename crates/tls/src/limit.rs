//! How many TLS connections there are, how many there were, and how many there may be
//! (`maxsslconn`, manual 3.2). A connection holds a [`ConnectionPermit`] as long as it lives.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// TLS connections of this process now, and those that there ever were. Written where one begins or
/// ends, by any worker.
static NOW: AtomicU32 = AtomicU32::new(0);
static EVER: AtomicU64 = AtomicU64::new(0);

/// How many there may be at once; 0 for any number. Written when the process starts.
static MOST: AtomicU32 = AtomicU32::new(0);

/// How many TLS connections there are now on both sides (`CurrSslConns`), and how many there were so
/// far (`CumSslConns`).
pub fn counts() -> (u32, u64) {
    (NOW.load(Relaxed), EVER.load(Relaxed))
}

/// How many there may be at once (`MaxSslConns`); 0 for any number.
pub fn limit() -> u32 {
    MOST.load(Relaxed)
}

/// Says how many there may be at once from now on; 0 for any number.
pub fn set_limit(most: u32) {
    MOST.store(most, Relaxed);
}

/// Whether there may be one more.
pub fn has_room() -> bool {
    let most = limit();
    most == 0 || NOW.load(Relaxed) < most
}

/// The place of one connection, which is given back when it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit(());

impl ConnectionPermit {
    /// Takes a place if there is one.
    pub fn take() -> Option<Self> {
        let most = limit();
        let taken = NOW.fetch_update(Relaxed, Relaxed, |now| (most == 0 || now < most).then_some(now + 1));
        // Not made before it is known to be there: what is dropped gives a place back.
        taken.is_ok().then(|| Self(()))
    }

    /// Takes a place whether there is one or not.
    pub(crate) fn force() -> Self {
        NOW.fetch_add(1, Relaxed);
        Self(())
    }

    /// Counts the connection that begins in it.
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
    fn who_gets_no_place_gives_none_back() {
        // Other tests of this process have connections of their own, which do not ask.
        let held = ConnectionPermit::force();
        set_limit(1);
        assert!((0..100).all(|_| ConnectionPermit::take().is_none()) && !has_room());
        set_limit(u32::MAX);
        assert!(ConnectionPermit::take().is_some() && has_room());
        set_limit(0);
        drop(held);
    }
}
