//! The metadata of a response that is written to a file as it arrives. Created by `spool`, written by the crate `disk`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::Head;

use crate::file::{self, Clocks};
use crate::times::FreshnessTimes;
use crate::vary::Variant;

/// The metadata of a response that is written to a file as it arrives.
#[derive(Debug)]
pub struct Spooled {
    /// The number of the file.
    pub number: u64,
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
    pub(crate) variant: Variant,
    pub(crate) head: Head,
    pub(crate) times: FreshnessTimes,
    /// Whether writing failed. Written by the writing thread.
    has_failed: AtomicBool,
}

impl Spooled {
    pub(crate) fn new(number: u64, of: (u64, Box<[u8]>, Variant, Head), times: FreshnessTimes) -> Arc<Self> {
        let (hash, key, variant, head) = of;
        Arc::new(Self { number, hash, key, variant, head, times, has_failed: AtomicBool::new(false) })
    }

    /// Records that writing failed.
    pub fn fail(&self) {
        self.has_failed.store(true, Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Relaxed)
    }

    /// Returns the description of the response.
    pub fn describe(&self, now: Clocks) -> Vec<u8> {
        file::described(&self.key, &self.variant, &self.head, &self.times, now)
    }

    /// Returns the size of the file, with a body of this size.
    pub(crate) fn size(&self, body: u64) -> u64 {
        file::size_of(&self.key, &self.variant, &self.head, body)
    }
}
