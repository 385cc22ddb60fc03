//! A response on its way into a file, as memory does not hold it whole: it is handed over in blocks,
//! as they are full, to the thread that writes. What that cannot keep up with is not kept; the
//! response waits for nobody.

use std::sync::Arc;

use http::Head;

use crate::file::{self, BLOCK};
use crate::files::StoreFiles;
use crate::jobs::FileChange;
use crate::spooled::Spooled;
use crate::store::Store;
use crate::times::FreshnessTimes;
use crate::vary::Variant;

/// A response on its way there. Dropped, it leaves nothing.
#[derive(Debug)]
pub(crate) struct Spool {
    files: Arc<StoreFiles>,
    own: Arc<Spooled>,
    /// The block that is being filled, and which one it is.
    block: Vec<u8>,
    at: u64,
    /// Bytes of the body.
    came: u64,
    /// Bytes of files that are set aside for it.
    reserved: u64,
    is_over: bool,
}

impl Spool {
    /// Begins, with a body of so many bytes if that is known; `None` where there is no place for it.
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

    /// Takes the next bytes of the body. False: they are more than can be written.
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

    /// Hands the block over.
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

    /// The body has come to its end. `number` is that under which it is noted in `store` that it is
    /// on its way: what was taken out meanwhile is not kept.
    pub(crate) fn finish(mut self, store: &Store, number: u64) -> bool {
        if !self.block.is_empty() && !self.pass_on() {
            return false;
        }
        // Under the lock, so that who purges finds it in one place or the other.
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
