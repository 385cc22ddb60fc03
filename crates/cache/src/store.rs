//! The store of one section. A lookup takes no lock, because a bucket is a list that is replaced as a whole. Storing and eviction
//! are done under one lock ([`Order`]).

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwapOption;
use http::{Head, KnownName};

use crate::entry::Entry;
use crate::files::StoreFiles;
use crate::flight::{FlightTurn, Flights};
use crate::freshness::{Lifetime, Now};
use crate::hints::hints;
use crate::identity::Identity;
use crate::object::{Object, StoredBody, blocks_of, memory};
use crate::order::Order;
use crate::purge::{self, Purge};
use crate::request::{CacheRequest, is_of_message};
use crate::room::{Free, Room};
use crate::settings::{CacheSettings, Hints};
use crate::times::FreshnessTimes;
use crate::vary::Variant;

/// Objects with hashes in the same bucket, newest first.
pub(crate) type Bucket = Vec<Arc<Object>>;

/// Maximum number of buckets; a power of two.
const MOST_BUCKETS: usize = 1 << 20;

/// The result of a lookup.
#[derive(Debug)]
pub enum Lookup {
    /// A fresh response.
    Fresh(Arc<Object>),
    /// A stale response that may still be useful.
    Stale(Arc<Object>),
    /// No response, but hints.
    Hints(Arc<Object>),
    /// Nothing.
    Nothing,
}

/// A store.
#[derive(Debug)]
pub struct Store {
    /// The settings of the section.
    pub settings: CacheSettings,
    buckets: Box<[ArcSwapOption<Bucket>]>,
    hasher: RandomState,
    free: Free,
    order: Mutex<Order>,
    flights: Arc<Flights>,
    /// The responses in files, if the section has a directory.
    pub files: Option<Arc<StoreFiles>>,
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(files) = &self.files {
            files.close();
        }
    }
}

impl Store {
    /// Creates an empty store.
    pub fn new(settings: CacheSettings) -> Arc<Self> {
        let count = (settings.blocks as usize / 4).next_power_of_two().clamp(16, MOST_BUCKETS);
        Arc::new(Self {
            buckets: (0..count).map(|_| ArcSwapOption::empty()).collect(),
            hasher: RandomState::new(),
            free: Arc::new(AtomicU32::new(settings.blocks)),
            order: Mutex::default(),
            flights: Arc::new(Flights::new()),
            files: settings.disk.clone().map(|disk| StoreFiles::new(disk, &settings)),
            settings,
        })
    }

    /// Returns the cache's view of a request with that head; `None` if the request has no resource.
    pub fn request(&self, head: &Head) -> Option<CacheRequest> {
        let mut request = CacheRequest::read(head)?;
        request.hash = self.hasher.hash_one(&*request.key);
        Some(request)
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Adapts `request`, created for another store, to this one.
    pub fn adopt(&self, request: &mut CacheRequest) {
        request.hash = self.hasher.hash_one(&*request.key);
    }

    /// After a miss, keeps the request fields on which the response may vary.
    pub fn prepare(&self, request: &mut CacheRequest, head: &Head) {
        if self.settings.vary && request.may_store {
            request.keep_varying(head);
        }
    }

    /// Looks for a response to a request. The caller checks whether a stored response may answer the request
    /// ([`CacheRequest::may_use`]).
    pub fn find(&self, request: &CacheRequest, head: &Head, now_ms: u64) -> Lookup {
        let bucket = self.bucket(request.hash).load();
        let Some(bucket) = &*bucket else { return Lookup::Nothing };
        let (mut accepts, mut hinting) = (None, None);
        for object in bucket.iter() {
            if object.hash != request.hash || object.key != request.key {
                continue;
            }
            if !object.variant.suits(head, &mut accepts) {
                continue;
            }
            if !object.is_hints && object.is_fresh(now_ms) {
                object.touch(now_ms);
                return Lookup::Fresh(object.clone());
            }
            hinting = hinting.or(Some(object));
        }
        match hinting {
            Some(object) if !object.is_hints && self.is_of_use(object, now_ms) => {
                Lookup::Stale(object.clone())
            }
            Some(object) if self.settings.hints != Hints::Off => Lookup::Hints(object.clone()),
            _ => Lookup::Nothing,
        }
    }

    /// Whether a stale object may be useful.
    fn is_of_use(&self, object: &Object, now_ms: u64) -> bool {
        object.may_wait(now_ms)
            || object.may_help(now_ms)
            || self.settings.revalidation && object.has_validator()
    }

    /// Whether the store contains this object. Called under the order's lock.
    pub(crate) fn has(&self, object: &Arc<Object>) -> bool {
        let bucket = self.bucket(object.hash).load();
        bucket.iter().flat_map(|bucket| bucket.iter()).any(|own| Arc::ptr_eq(own, object))
    }

    /// Whether memory already has a response for the same requests. Called under the order's lock.
    pub(crate) fn has_like(&self, new: &Object) -> bool {
        let bucket = self.bucket(new.hash).load();
        let mut own = bucket.iter().flat_map(|bucket| bucket.iter());
        own.any(|object| object.key == new.key && object.variant == new.variant && !object.is_hints)
    }

    /// Returns the variant of a response; `None` if it varies on a field that is not supported.
    pub(crate) fn variant(&self, request: &CacheRequest, response: &Head) -> Option<Variant> {
        if response.get_known(KnownName::Vary).is_none() {
            return Some(Variant::default());
        }
        let varying = request.varying.as_deref().filter(|_| self.settings.vary)?;
        Variant::of(varying, response)
    }

    /// Registers a response of this variant as being filled, and returns its number; `None` if it is already being filled, or if
    /// the resource has the maximum number of variants and none of them has expired.
    pub(crate) fn enter(&self, request: &CacheRequest, variant: &Variant, now_ms: u64) -> Option<u64> {
        let mut gone = Bucket::new();
        let mut order = self.order();
        let has_place = self.has_place_for(request, variant, now_ms, &mut order, &mut gone);
        has_place.then(|| order.begin(request.hash, &request.key, variant)).flatten()
    }

    fn has_place_for(
        &self,
        request: &CacheRequest,
        variant: &Variant,
        now_ms: u64,
        order: &mut Order,
        gone: &mut Bucket,
    ) -> bool {
        if variant.is_for_all() {
            return true;
        }
        let bucket = self.bucket(request.hash).load_full();
        let is_other = |object: &&Arc<Object>| {
            object.key == request.key && !object.is_hints && object.variant != *variant
        };
        let others: Vec<_> = bucket.iter().flat_map(|bucket| bucket.iter()).filter(is_other).collect();
        let filled = order.others(request.hash, &request.key, variant);
        if others.len() + filled < self.settings.max_variants {
            return true;
        }
        let (fresh, old): (Bucket, Bucket) =
            others.into_iter().cloned().partition(|object| object.is_fresh(now_ms));
        old.iter().for_each(|object| self.take_out(object, order, gone));
        fresh.len() + filled < self.settings.max_variants
    }

    /// Returns how a request with this head proceeds: whether it goes to the server, or waits for another one.
    pub fn board(&self, request: &CacheRequest, head: &Head, now_ms: u64) -> FlightTurn {
        if !request.may_store || !request.may_use {
            return FlightTurn::Alone;
        }
        self.flights.board(request.hash, &request.key, now_ms, |growing| growing.suits(head))
    }

    /// Invalidates all variants of a resource after a successful unsafe request (RFC 9111, 4.4).
    pub fn remove(&self, request: &CacheRequest) {
        self.forget(|key| *key == *request.key);
        if let Some(files) = &self.files {
            files.remove(request.hash, &request.key, |_| true);
        }
        _ = self.remove_if(request.hash, |object| object.key == request.key);
    }

    /// Stops storing and sharing a response in progress if `is_meant` holds for its key.
    fn forget(&self, is_meant: impl Fn(&[u8]) -> bool) {
        self.order().forget(&is_meant);
        self.flights.forget(is_meant);
    }

    pub(crate) fn remove_if(&self, hash: u64, is_wanted: impl Fn(&Object) -> bool) -> usize {
        let mut gone = Bucket::new();
        let mut order = self.order();
        let bucket = self.bucket(hash).load_full();
        let wanted = bucket.iter().flat_map(|bucket| bucket.iter()).filter(|object| is_wanted(object));
        wanted.for_each(|object| self.take_out(object, &mut order, &mut gone));
        drop(order);
        gone.len()
    }

    /// Removes the objects that `purge` matches; returns their number. Matching responses in progress are not stored.
    pub fn purge(&self, purge: &Purge<'_>) -> usize {
        if let Purge::Key(key) = purge {
            let key = purge::key(key);
            let hash = self.hasher.hash_one(&*key);
            self.forget(|own| *own == *key);
            let filed = self.purge_files(purge);
            return filed + self.remove_if(hash, |object| *object.key == *key);
        }
        let tags = self.settings.tags.as_deref().map(|name| http::Name::new(name.as_bytes()));
        self.forget(|key| purge.may_mean(key));
        // Searched without the lock, because there may be many objects.
        let filed = self.purge_files(purge);
        let all = self.objects();
        let wanted = all.iter().filter(|object| purge.means(object, tags.as_ref()));
        let count: usize =
            wanted.map(|wanted| self.remove_if(wanted.hash, |object| std::ptr::eq(object, &**wanted))).sum();
        filed + count
    }

    /// Removes files that `purge` matches; returns the number of those that were not in memory too.
    fn purge_files(&self, purge: &Purge<'_>) -> usize {
        let Some(files) = &self.files else { return 0 };
        let is_in_memory = |entry: &Arc<Entry>| {
            let bucket = self.bucket(entry.hash).load();
            let mut own = bucket.iter().flat_map(|bucket| bucket.iter());
            own.any(|object| object.file.as_ref().is_some_and(|file| Arc::ptr_eq(file, entry)))
        };
        files.purge(purge, is_in_memory)
    }

    /// Removes files that `new`, which is newer, replaces.
    pub(crate) fn remove_files(&self, new: &Object) {
        if let Some(files) = &self.files {
            let is_shadowed = |old: &Variant| new.variant.is_for_all() || *old == new.variant;
            files.remove(new.hash, &new.key, is_shadowed);
        }
    }

    /// Removes objects in memory for which a file has a newer response.
    pub(crate) fn remove_shadowed(&self, hash: u64, key: &[u8], variant: &Variant) {
        let is_shadowed =
            |object: &Object| *object.key == *key && (variant.is_for_all() || object.variant == *variant);
        _ = self.remove_if(hash, is_shadowed);
    }

    /// Returns the number of free blocks.
    pub fn free(&self) -> u32 {
        self.free.load(Relaxed)
    }

    /// Returns all objects, in no particular order.
    pub fn objects(&self) -> Vec<Arc<Object>> {
        self.order().all().cloned().collect()
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &ArcSwapOption<Bucket> {
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    /// Returns an empty room, to which blocks are added.
    pub(crate) fn no_room(&self) -> Room {
        Room::empty(&self.free)
    }

    pub(crate) fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes this many blocks, and evicts others if necessary; returns `None` if there are not enough.
    pub(crate) fn take(&self, blocks: u32, now_ms: u64) -> Option<Room> {
        loop {
            let taken = Room::take(&self.free, blocks);
            if taken.is_some() || !self.make_room(blocks, now_ms) {
                return taken;
            }
        }
    }

    /// Evicts the least recently used objects until this many blocks would be free if no evicted object were still referenced;
    /// returns false if there is nothing to evict.
    fn make_room(&self, blocks: u32, now_ms: u64) -> bool {
        // Evicted objects are dropped after the lock is released.
        let mut gone = Bucket::new();
        let mut order = self.order();
        let mut free = self.free();
        while free < blocks {
            let Some(object) = order.least_used().or_else(|| order.oldest_hints()) else { break };
            free += object.blocks();
            self.take_out(&object, &mut order, &mut gone);
        }
        drop(order);
        let has_made = free >= blocks || !gone.is_empty();
        let wholes = gone.iter().filter(|object| self.settings.hints == Hints::On && !object.is_hints);
        let left: Vec<Object> = wholes.filter_map(|object| self.hints_of(object)).collect();
        if let Some(files) = &self.files {
            for object in gone.iter().filter(|object| !object.times.is_over(now_ms)) {
                files.offer(object, Arc::strong_count(object) == 1);
            }
        }
        drop(gone);
        left.into_iter().for_each(|hints| self.add_hints(hints));
        has_made
    }

    /// Returns the hints that remain of an evicted object; `None` if it has no hints.
    fn hints_of(&self, object: &Object) -> Option<Object> {
        Some(self.hints_object(object.identity(), hint_head(&object.head)?, object.times))
    }

    /// Stores hints, and evicts older ones, within the limit for hints.
    fn add_hints(&self, mut hints: Object) {
        let blocks = blocks_of(memory(&hints.head, &hints.key, &hints.variant));
        let most = self.settings.hint_blocks();
        let mut gone = Bucket::new();
        let mut order = self.order();
        self.take_out_shadowed(&hints, &mut order, &mut gone);
        let mut free = self.free();
        while order.hint_blocks + blocks > most || free < blocks {
            let Some(oldest) = order.oldest_hints() else { return };
            free += oldest.blocks();
            self.take_out(&oldest, &mut order, &mut gone);
        }
        // References to hints are short-lived.
        gone.clear();
        if let Some(room) = Room::take(&self.free, blocks) {
            hints.room = room;
            self.put_in(hints, &mut order);
        }
    }
    /// Stores only the hints of a response.
    pub(crate) fn keep_hints(
        &self,
        request: &CacheRequest,
        variant: Variant,
        head: &Head,
        lifetime: Lifetime,
        now: Now,
    ) {
        let Some(head) = hint_head(head) else { return };
        let times = FreshnessTimes::of(lifetime, now);
        let identity = Identity { hash: request.hash, key: request.key.clone(), variant };
        self.add_hints(self.hints_object(identity, head, times));
    }

    fn hints_object(&self, identity: Identity, head: Head, times: FreshnessTimes) -> Object {
        let (body, times) = (StoredBody::new(Box::default(), self.no_room()), times.of_hints());
        let own = Object::new(identity, head, body, times, self.no_room(), times.stored_ms);
        Object { is_hints: true, ..own }
    }

    /// Inserts an object, and replaces those that it supersedes.
    ///
    /// # Errors
    /// The filling with that number was purged in the meantime: returns the object.
    pub(crate) fn insert(&self, filled: u64, object: Object) -> Result<Arc<Object>, Box<Object>> {
        let mut gone = Bucket::new();
        let mut order = self.order();
        if !order.end(object.hash, filled) {
            return Err(Box::new(object));
        }
        self.take_out_shadowed(&object, &mut order, &mut gone);
        let object = self.put_in(object, &mut order);
        drop(order);
        self.remove_files(&object);
        Ok(object)
    }

    /// Removes the objects that `new` makes unreachable.
    pub(crate) fn take_out_shadowed(&self, new: &Object, order: &mut Order, gone: &mut Bucket) {
        let bucket = self.bucket(new.hash).load_full();
        let is_shadowed = |object: &&Arc<Object>| {
            object.key == new.key
                && (new.variant.is_for_all() || object.variant == new.variant)
                && (object.is_hints || !new.is_hints)
        };
        for old in bucket.iter().flat_map(|bucket| bucket.iter()).filter(is_shadowed) {
            self.take_out(old, order, gone);
        }
    }

    pub(crate) fn put_in(&self, object: Object, order: &mut Order) -> Arc<Object> {
        let object = order.add(object);
        let bucket = self.bucket(object.hash);
        let old = bucket.load();
        let others = old.iter().flat_map(|bucket| bucket.iter());
        let new: Bucket = std::iter::once(&object).chain(others).cloned().collect();
        bucket.store(Some(Arc::new(new)));
        object
    }

    pub(crate) fn take_out(&self, object: &Arc<Object>, order: &mut Order, gone: &mut Bucket) {
        let bucket = self.bucket(object.hash);
        let old = bucket.load_full();
        let new: Bucket = old
            .iter()
            .flat_map(|bucket| bucket.iter())
            .filter(|other| !Arc::ptr_eq(other, object))
            .cloned()
            .collect();
        bucket.store((!new.is_empty()).then(|| Arc::new(new)));
        order.remove(object);
        gone.push(object.clone());
    }
}

/// Returns the part of a head to store: without fields that are specific to a connection or message, in as little memory as
/// possible.
pub(crate) fn kept_head(response: &Head) -> Head {
    let mut kept = Head::new();
    kept.start_response(response.status(), Some(response.reason()));
    for (name, value) in response.fields().filter(|(name, _)| !is_of_message(name)) {
        kept.append(name, value);
    }
    kept.shrink(0);
    kept
}

/// Returns the hints of a head, as a head; `None` if it has no hints.
fn hint_head(of: &Head) -> Option<Head> {
    let found = hints(of);
    if found.is_empty() {
        return None;
    }
    let mut head = Head::new();
    head.start_response(103, None);
    for line in &found {
        head.append(b"link", line);
    }
    head.shrink(0);
    Some(head)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
