//! Writes a response to a file while it arrives, because it is too long for memory: full blocks are passed to the writing thread.
//! If that thread is too slow, the response is not stored; the response never waits for the disk.

use std::sync::Arc;

use http::Head;

use crate::file::{self, BLOCK};
use crate::files::StoreFiles;
use crate::jobs::FileChange;
use crate::spooled::Spooled;
use crate::store::Store;
use crate::times::FreshnessTimes;
use crate::vary::Variant;

/// A response that is being written. If it is dropped, no file remains.
#[derive(Debug)]
pub(crate) struct Spool {
    files: Arc<StoreFiles>,
    own: Arc<Spooled>,
    /// The block that is being filled, and its number.
    block: Vec<u8>,
    at: u64,
    /// Number of bytes of the body received.
    came: u64,
    /// Reserved file space.
    reserved: u64,
    is_over: bool,
}

impl Spool {
    /// Starts to write a response, with a body of `length` bytes if known; returns `None` if there is no space.
    pub(crate) fn begin(
        files: &Arc<StoreFiles>,
        of: (u64, Box<[u8]>, Variant, Head),
        times: FreshnessTimes,
        length: Option<u64>,
    ) -> Option<Self> {
        let own = Spooled::new(files.next_number()?, of, times);
        let reserved = own.size(length.unwrap_or(0));
        if !files.reserve(reserved) {
            return None;
        }
        files.change(FileChange::Create(own.clone()), 0);
        let (files, block) = (files.clone(), Vec::with_capacity(BLOCK));
        Some(Self { files, own, block, at: 0, came: 0, reserved, is_over: false })
    }

    /// Adds the next bytes of the body; returns false if the writer is too slow.
    pub(crate) fn push(&mut self, mut data: &[u8]) -> bool {
        while !data.is_empty() {
            let (taken, rest) = data.split_at(data.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(taken);
            self.came += taken.len() as u64;
            data = rest;
            if self.block.len() == BLOCK && !self.pass_on() {
                return false;
            }
        }
        true
    }

    /// Hands over the block.
    fn pass_on(&mut self) -> bool {
        let size = self.own.size(self.came);
        if size > self.reserved {
            if !self.files.reserve(size - self.reserved) {
                return false;
            }
            self.reserved = size;
        }
        let mut block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK));
        let sum = file::sum(self.own.number, self.at, &block);
        block.extend_from_slice(&sum);
        self.at += 1;
        let length = block.len() as u64;
        !self.own.has_failed() && self.files.change(FileChange::Append(self.own.clone(), block), length)
    }

    /// Called at the end of the body. `number` is the filling's number in `store`: if the filling was purged in the meantime, the
    /// response is not stored.
    pub(crate) fn finish(mut self, store: &Store, number: u64) -> bool {
        if !self.block.is_empty() && !self.pass_on() {
            return false;
        }
        // Done under the lock, so that a purge finds the response in one place or the other.
        let mut order = store.order();
        let is_kept =
            order.end(self.own.hash, number) && self.files.commit(&self.own, self.came, self.reserved);
        drop(order);
        self.is_over = is_kept;
        is_kept
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if !self.is_over {
            self.files.release(self.reserved);
            self.files.change(FileChange::Abort(self.own.number), 0);
        }
    }
}
