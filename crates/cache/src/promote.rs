//! Moves a response from its file back into memory. Called by `proxy`, and by the threads of the crate `disk`.

use std::sync::Arc;

use http::Head;

use crate::entry::Entry;
use crate::file::{Described, FileHeader};
use crate::identity::Identity;
use crate::loading::Loading;
use crate::object::{Object, StoredBody, blocks_of, memory};
use crate::request::CacheRequest;
use crate::room::Room;
use crate::store::{Bucket, Store};

/// Memory reserved for a response about to be read.
#[derive(Debug)]
pub struct Reserved(Room);

impl Store {
    /// Looks for a file that answers a request, if memory has nothing for it, or (with `fresh_only`) has only something stale.
    /// Starts to read the file if there is one.
    pub fn find_file(
        &self,
        request: &CacheRequest,
        head: &Head,
        now_ms: u64,
        fresh_only: bool,
    ) -> Option<Loading> {
        let files = self.files.as_ref()?;
        // A stale response is only useful if it fits in memory.
        let is_of_use = |entry: &Entry| {
            now_ms < entry.times.expires_ms || !fresh_only && !entry.is_long && !entry.times.is_over(now_ms)
        };
        let entry = files.find(request, head, now_ms, is_of_use)?;
        Some(Loading::new(files.load(&entry)?))
    }

    /// Adds a file of an earlier process; returns false if it must be removed.
    pub fn found_file(&self, described: &Described, header: &FileHeader, now_ms: u64) -> bool {
        let hash = self.hash(&described.key);
        self.files.as_ref().is_some_and(|files| files.found(hash, described, header, now_ms))
    }

    /// Reserves memory for a file's response, and evicts others; returns `None` if there is not enough memory, or the file does not
    /// belong to `entry`.
    pub fn reserve(
        &self,
        entry: &Entry,
        described: &Described,
        header: &FileHeader,
        now_ms: u64,
    ) -> Option<Reserved> {
        if !Self::is_that(entry, described, header) {
            return None;
        }
        if entry.is_long {
            return None;
        }
        let bytes = memory(&described.head, &described.key, &described.variant) + header.body;
        if bytes > self.settings.max_object.max(u64::from(self.settings.blocks) * 512) {
            return None;
        }
        self.take(blocks_of(bytes), now_ms).map(Reserved)
    }

    /// Whether a file's content matches its entry.
    pub fn is_that(entry: &Entry, described: &Described, header: &FileHeader) -> bool {
        described.key == entry.key
            && described.variant == entry.variant
            && header.number == entry.number
            && header.size() == entry.size
    }

    /// Stores a response read from a file; returns `None` if it was purged in the meantime, or there is a newer one.
    pub fn promote(
        &self,
        entry: &Arc<Entry>,
        described: Described,
        body: Vec<u8>,
        reserved: Reserved,
        now_ms: u64,
    ) -> Option<Arc<Object>> {
        let Described { key, variant, head, times } = described;
        let body = StoredBody::new(body.into_boxed_slice(), reserved.0);
        let identity = Identity { hash: entry.hash, key, variant };
        let new = Object::new(identity, head, body, times, self.no_room(), now_ms);
        let new = Object { file: Some(entry.clone()), ..new };
        let mut gone = Bucket::new();
        let mut order = self.order();
        // Checked under the lock, because a purge removes files first, and then responses in memory.
        if entry.is_gone() || self.has_like(&new) {
            return None;
        }
        self.take_out_shadowed(&new, &mut order, &mut gone);
        let new = self.put_in(new, &mut order);
        drop(order);
        Some(new)
    }
}
