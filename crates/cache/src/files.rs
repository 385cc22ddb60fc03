//! The responses of a cache that are in files (`disk`): their metadata, the order of eviction, and the jobs for the I/O threads.
//! This module does no I/O: the crate `disk` requests jobs ([`StoreFiles::next_change`], [`StoreFiles::next_read`]) and reports
//! their outcome.
//!
//! A lookup takes no lock. An unwanted file is marked as gone before anything else happens to it, so that purged responses are not
//! used.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use arc_swap::ArcSwapOption;
use http::Head;

use crate::blocks::{Blocks, Fetch, Fetches};
use crate::by_use::ByUse;
use crate::entry::{ENTRY, Entry};
use crate::file::{self, Described, FileHeader};
use crate::identity::Identity;
use crate::jobs::{FileChange, FileRead, JobQueue, locked};
use crate::loading::ObjectRead;
use crate::long::Long;
use crate::object::Object;
use crate::purge::{OwnedPurge, Purge};
use crate::request::CacheRequest;
use crate::settings::{CacheSettings, Disk};
use crate::spooled::Spooled;
use crate::vary::Variant;

/// The number of bytes that may always wait to be written, because a long response may arrive at once.
const LEAST_WAITING: u64 = 8 << 20;

/// The maximum number of queued reads. Further requests go to the server.
const MOST_READS: usize = 1024;

/// The number of purges remembered while files are scanned. If there are more, files that were not seen yet are not used.
const MOST_PURGES: usize = 64;

/// While files are scanned, keys with changed responses are remembered. This is their maximum number.
const MOST_KEYS: usize = 1 << 20;

/// The files of one store.
#[derive(Debug)]
pub struct StoreFiles {
    /// The settings of the section.
    pub settings: Disk,
    /// The name of the section.
    pub name: Box<str>,
    /// The header field with tags.
    tags: Option<http::Name>,
    /// Maximum memory for entries.
    most_memory: usize,
    /// Maximum number of bytes waiting to be written.
    most_waiting: u64,
    /// Maximum size of a body in memory.
    most_in_memory: u64,
    buckets: Box<[ArcSwapOption<Vec<Arc<Entry>>>]>,
    order: Mutex<FileOrder>,
    changes: JobQueue<FileChange>,
    reads: JobQueue<FileRead>,
    /// Reads in progress, by file number. There are at most as many as may be queued. Requests for responses that are not in memory
    /// lock this briefly.
    loads: Mutex<HashMap<u64, Weak<ObjectRead>>>,
    /// The number of long responses that are being sent. Changed when they start and when they end.
    longs: AtomicUsize,
    /// Whether files are read and written: this process owns the directory and has scanned it.
    is_open: AtomicBool,
    /// Whether the files are closed.
    is_closed: AtomicBool,
    /// Whether the threads were started.
    is_served: AtomicBool,
    /// Statistics. Written by workers and by the I/O threads.
    pub counts: FileCounts,
}

/// File statistics.
#[derive(Debug, Default)]
pub struct FileCounts {
    /// Responses read.
    pub hits: AtomicU64,
    /// Responses written.
    pub written: AtomicU64,
    /// Responses evicted.
    pub evicted: AtomicU64,
    /// Responses that were not written because too many bytes were waiting.
    pub passed: AtomicU64,
    /// Invalid files.
    pub wrong: AtomicU64,
    /// I/O errors.
    pub errors: AtomicU64,
}

#[derive(Debug, Default)]
struct FileOrder {
    by_use: ByUse<Entry>,
    /// The last number assigned.
    number: u64,
    /// Size of all files.
    bytes: u64,
    /// Memory for all entries.
    memory: usize,
    /// Number of bytes waiting to be written.
    waiting: u64,
    /// The size of files that are being written and have no entry yet.
    reserved: u64,
    /// Changes during the scan of files.
    meanwhile: Meanwhile,
}

/// Removals during the scan of the files. They may apply to a file that the scan has not reached yet.
#[derive(Debug, Default)]
struct Meanwhile {
    is_over: bool,
    all: bool,
    keys: HashSet<u64>,
    purges: Vec<OwnedPurge>,
}

impl Meanwhile {
    fn note_key(&mut self, hash: u64) {
        if !self.is_over && !self.all && self.keys.len() < MOST_KEYS {
            self.keys.insert(hash);
        } else {
            self.all |= !self.is_over;
        }
    }

    fn note(&mut self, purge: &Purge<'_>) {
        if self.is_over {
            return;
        }
        match purge {
            Purge::All => self.all = true,
            _ if self.purges.len() >= MOST_PURGES => self.all = true,
            purge => self.purges.push(OwnedPurge::of(purge)),
        }
    }

    fn means(&self, entry: &Entry) -> bool {
        self.all
            || self.keys.contains(&entry.hash)
            || self.purges.iter().any(|purge| purge.borrow().means_file(&entry.key, &entry.tags))
    }
}

impl StoreFiles {
    pub(crate) fn new(disk: Disk, settings: &CacheSettings) -> Arc<Self> {
        let memory = u64::from(settings.blocks) * CacheSettings::BLOCK;
        let most_memory = usize::try_from(memory / 4).unwrap_or(usize::MAX);
        let count = (most_memory / ENTRY).next_power_of_two().clamp(16, 1 << 20);
        let tags = settings.tags.as_deref().map(|name| http::Name::new(name.as_bytes()));
        Arc::new(Self {
            most_memory,
            most_in_memory: settings.max_object,
            most_waiting: (memory / 8).max(2 * settings.max_object).max(LEAST_WAITING),
            settings: disk,
            name: settings.name.clone(),
            tags,
            buckets: (0..count).map(|_| ArcSwapOption::empty()).collect(),
            order: Mutex::default(),
            changes: JobQueue::default(),
            reads: JobQueue::default(),
            loads: Mutex::default(),
            longs: AtomicUsize::new(0),
            is_open: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
            counts: FileCounts::default(),
        })
    }

    fn bucket(&self, hash: u64) -> &ArcSwapOption<Vec<Arc<Entry>>> {
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    fn order(&self) -> MutexGuard<'_, FileOrder> {
        locked(&self.order)
    }

    /// Returns the entry for a request, if it is fresh or `is_of_use` accepts it.
    pub(crate) fn find(
        &self,
        request: &CacheRequest,
        head: &Head,
        now_ms: u64,
        is_of_use: impl Fn(&Entry) -> bool,
    ) -> Option<Arc<Entry>> {
        if !self.is_open.load(Relaxed) {
            return None;
        }
        let bucket = self.bucket(request.hash).load();
        let mut accepts = None;
        let found = bucket.iter().flat_map(|bucket| bucket.iter()).find(|entry| {
            entry.hash == request.hash
                && entry.key == request.key
                && entry.is_there.load(Relaxed)
                && entry.variant.suits(head, &mut accepts)
                && is_of_use(entry)
        })?;
        found.used_ms.fetch_max(now_ms, Relaxed);
        Some(found.clone())
    }

    /// Starts to read an entry; returns `None` if too many reads are queued.
    pub(crate) fn load(&self, entry: &Arc<Entry>) -> Option<Arc<ObjectRead>> {
        let mut loads = locked(&self.loads);
        if let Some(load) = loads.get(&entry.number).and_then(Weak::upgrade) {
            return Some(load);
        }
        let new = ObjectRead::new();
        if !self.is_open.load(Relaxed)
            || !self.reads.push(FileRead::Load(entry.clone(), new.clone()), MOST_READS)
        {
            return None;
        }
        loads.retain(|_, load| load.strong_count() > 0);
        loads.insert(entry.number, Arc::downgrade(&new));
        Some(new)
    }

    /// Offers a response that was evicted from memory for writing. If it `is_alone`, no request is sending it, and its memory is
    /// counted here until it is written.
    pub(crate) fn offer(&self, object: &Arc<Object>, is_alone: bool) {
        let is_filed = object.file.as_ref().is_some_and(|entry| !entry.is_gone());
        if is_filed || object.is_hints || !self.is_open.load(Relaxed) {
            return;
        }
        let size = file::size(object);
        let mut order = self.order();
        if size > self.settings.size / 2 || order.waiting + size > self.most_waiting {
            self.counts.passed.fetch_add(1, Relaxed);
            return;
        }
        order.number += 1;
        let used = object.used_ms.load(Relaxed);
        let tags = self.tags_of(&object.head);
        let entry = Entry::new(object.identity(), tags, object.times, order.number, size, used);
        self.remove_shadowed(&entry, &mut order);
        order.waiting += size;
        let entry = self.add(entry, &mut order);
        drop(order);
        if is_alone {
            object.release();
        }
        self.changes.push(FileChange::Write(entry, object.clone()), usize::MAX);
    }

    /// Adds an entry; evicts others to make room.
    fn add(&self, entry: Entry, order: &mut FileOrder) -> Arc<Entry> {
        let entry = Arc::new(entry);
        order.bytes += entry.size;
        order.memory += entry.memory();
        self.make_room(order);
        order.by_use.insert(entry.clone());
        let bucket = self.bucket(entry.hash);
        let old = bucket.load();
        let others = old.iter().flat_map(|bucket| bucket.iter());
        bucket.store(Some(Arc::new(std::iter::once(&entry).chain(others).cloned().collect())));
        entry
    }

    fn make_room(&self, order: &mut FileOrder) {
        while order.bytes + order.reserved > self.settings.size || order.memory > self.most_memory {
            let Some(oldest) = order.by_use.least_used() else { break };
            self.counts.evicted.fetch_add(1, Relaxed);
            self.take_out(&oldest, order);
        }
    }

    /// Removes an entry and its file.
    fn take_out(&self, entry: &Arc<Entry>, order: &mut FileOrder) {
        if entry.is_gone.swap(true, Relaxed) {
            return;
        }
        let bucket = self.bucket(entry.hash);
        let old = bucket.load_full();
        let all = old.iter().flat_map(|bucket| bucket.iter());
        let new: Vec<_> = all.filter(|other| !Arc::ptr_eq(other, entry)).cloned().collect();
        bucket.store((!new.is_empty()).then(|| Arc::new(new)));
        order.by_use.remove(entry);
        order.bytes -= entry.size;
        order.memory -= entry.memory();
        // If the file is still being written, the writer removes it.
        if entry.is_there.load(Relaxed) {
            self.changes.push(FileChange::Remove(entry.number), usize::MAX);
        }
    }

    fn remove_shadowed(&self, new: &Entry, order: &mut FileOrder) {
        let bucket = self.bucket(new.hash).load_full();
        let is_shadowed = |old: &&Arc<Entry>| {
            old.key == new.key && (new.variant.is_for_all() || old.variant == new.variant)
        };
        for old in bucket.iter().flat_map(|bucket| bucket.iter()).filter(is_shadowed) {
            self.take_out(old, order);
        }
    }

    /// Removes the entries of a changed key that `is_meant` accepts.
    pub(crate) fn remove(&self, hash: u64, key: &[u8], is_meant: impl Fn(&Variant) -> bool) -> usize {
        let mut order = self.order();
        order.meanwhile.note_key(hash);
        let bucket = self.bucket(hash).load_full();
        let wanted = |entry: &&Arc<Entry>| *entry.key == *key && is_meant(&entry.variant);
        let gone: Vec<_> = bucket.iter().flat_map(|bucket| bucket.iter()).filter(wanted).collect();
        gone.iter().for_each(|entry| self.take_out(entry, &mut order));
        gone.len()
    }

    /// Removes the entries that `purge` matches. Returns their number, without those that `is_counted` reports as also in memory.
    pub(crate) fn purge(&self, purge: &Purge<'_>, is_counted: impl Fn(&Arc<Entry>) -> bool) -> usize {
        let all = {
            let mut order = self.order();
            order.meanwhile.note(purge);
            // Searched without the lock, because there may be many.
            order.by_use.iter().cloned().collect::<Vec<_>>()
        };
        let wanted = all.iter().filter(|entry| purge.means_file(&entry.key, &entry.tags));
        let mut count = 0;
        for entry in wanted {
            count += usize::from(!entry.is_gone() && !is_counted(entry));
            self.take_out(entry, &mut self.order());
        }
        count
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.order().by_use.len()
    }

    /// Returns all entries.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.order().by_use.iter().cloned().collect()
    }

    /// Returns the size of all files.
    pub fn bytes(&self) -> u64 {
        self.order().bytes
    }

    /// Whether files are read and written now.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    fn tags_of(&self, head: &Head) -> Box<[u8]> {
        let Some(name) = &self.tags else { return Box::default() };
        let lines: Vec<&[u8]> = head.get_all(name).collect();
        lines.join(&b' ').into()
    }
}

/// Long responses, which are written to and read from their files in blocks.
impl StoreFiles {
    /// Returns the number for a new file, if files are written.
    pub(crate) fn next_number(&self) -> Option<u64> {
        self.is_open().then(|| {
            let mut order = self.order();
            order.number += 1;
            order.number
        })
    }

    /// Reserves space for a file and evicts others if necessary; returns false if the file needs more than half of the total.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let mut order = self.order();
        let has_place = order.reserved + bytes <= self.settings.size / 2;
        if has_place {
            order.reserved += bytes;
            self.make_room(&mut order);
        }
        has_place
    }

    pub(crate) fn release(&self, bytes: u64) {
        let mut order = self.order();
        order.reserved = order.reserved.saturating_sub(bytes);
    }

    /// Queues a change that holds `bytes` of memory; returns false if too many are waiting.
    pub(crate) fn change(&self, change: FileChange, bytes: u64) -> bool {
        if bytes > 0 {
            let mut order = self.order();
            if order.waiting + bytes > self.most_waiting || self.is_closed() {
                self.counts.passed.fetch_add(1, Relaxed);
                return false;
            }
            order.waiting += bytes;
        }
        self.changes.push(change, usize::MAX)
    }

    /// Called when `bytes` are no longer waiting.
    pub fn changed(&self, bytes: u64) {
        let mut order = self.order();
        order.waiting = order.waiting.saturating_sub(bytes);
    }

    /// Turns a completely written response with a body of `body` bytes into an entry; returns false if files are no longer written.
    pub(crate) fn commit(&self, own: &Arc<Spooled>, body: u64, reserved: u64) -> bool {
        if !self.is_open() || own.has_failed() {
            return false;
        }
        let (key, variant, tags) = (own.key.clone(), own.variant.clone(), self.tags_of(&own.head));
        let (times, size) = (own.times, own.size(body));
        let identity = Identity { hash: own.hash, key, variant };
        let entry = Entry::new(identity, tags, times, own.number, size, times.stored_ms);
        let entry = Entry { is_long: true, ..entry };
        let mut order = self.order();
        order.reserved = order.reserved.saturating_sub(reserved);
        self.remove_shadowed(&entry, &mut order);
        let entry = self.add(entry, &mut order);
        drop(order);
        self.changes.push(FileChange::Commit(own.clone(), entry, body), usize::MAX)
    }

    /// Counts the start (1) or the end (-1) of a response being sent.
    fn hold(&self, more: isize) {
        if more > 0 {
            self.longs.fetch_add(1, Relaxed);
        } else if self.longs.fetch_sub(1, Relaxed) == 1 && self.is_closed() {
            self.reads.ring();
        }
    }

    /// Returns a response of `length` bytes to be sent from the file of `entry`.
    pub fn long(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        described: Described,
        length: u64,
        blocks: Arc<dyn Blocks>,
    ) -> Arc<Long> {
        self.hold(1);
        let source = OpenFile { files: self.clone(), entry: entry.clone(), blocks };
        Long::new(described, length, Box::new(source))
    }
}

/// A file from which a response is sent.
#[derive(Debug)]
struct OpenFile {
    files: Arc<StoreFiles>,
    entry: Arc<Entry>,
    blocks: Arc<dyn Blocks>,
}

impl Fetches for OpenFile {
    fn fetch(&self, block: u64, fetch: &Arc<Fetch>) {
        let read = FileRead::Block(self.entry.clone(), self.blocks.clone(), block, fetch.clone());
        self.files.reads.push(read, usize::MAX);
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.files.hold(-1);
    }
}

/// The interface for the I/O threads.
impl StoreFiles {
    /// Whether threads were started.
    pub fn is_served(&self) -> bool {
        self.is_served.load(Relaxed)
    }

    /// Whether the caller must start the threads. This is true once.
    pub fn begin(&self) -> bool {
        !self.is_served.swap(true, Relaxed)
    }

    /// Adds the entry for a file of an earlier process, of that size; returns false if the file is not wanted and must be removed.
    pub(crate) fn found(&self, hash: u64, described: &Described, header: &FileHeader, now_ms: u64) -> bool {
        let Described { key, variant, head, times } = described;
        let tags = self.tags_of(head);
        let identity = Identity { hash, key: key.clone(), variant: variant.clone() };
        let (number, size) = (header.number, header.size());
        let entry = Entry::new(identity, tags, *times, number, size, times.stored_ms);
        entry.is_there.store(true, Relaxed);
        let entry = Entry { is_long: header.body > self.most_in_memory, ..entry };
        let mut order = self.order();
        order.number = order.number.max(header.number);
        let bucket = self.bucket(hash).load_full();
        let is_newer = |other: &Arc<Entry>| {
            other.key == entry.key && other.variant == entry.variant && other.number > entry.number
        };
        if times.is_over(now_ms)
            || order.meanwhile.means(&entry)
            || bucket.iter().flat_map(|bucket| bucket.iter()).any(is_newer)
            || entry.size > self.settings.size
        {
            return false;
        }
        self.remove_shadowed(&entry, &mut order);
        self.add(entry, &mut order);
        true
    }

    /// Called when all files of earlier processes have been scanned; none had a number above `number`. From this call on, new files
    /// are written.
    pub fn open(&self, number: u64) {
        let mut order = self.order();
        order.number = order.number.max(number);
        order.meanwhile = Meanwhile { is_over: true, ..Meanwhile::default() };
        drop(order);
        if !self.is_closed.load(Relaxed) {
            self.is_open.store(true, Relaxed);
        }
    }

    /// Stops reading and writing, because another process has the directory, or will have it.
    pub fn close(&self) {
        self.is_closed.store(true, Relaxed);
        self.is_open.store(false, Relaxed);
        // Purged files must not be found by the next process.
        drop(self.changes.take(|change| matches!(change, FileChange::Remove(_))));
        for read in self.reads.take(|read| matches!(read, FileRead::Block(..))) {
            if let FileRead::Load(_, load) = read {
                load.end(None);
            }
        }
        let mut order = self.order();
        for entry in order.by_use.iter() {
            entry.is_gone.store(true, Relaxed);
        }
        let number = order.number;
        *order = FileOrder { number, ..FileOrder::default() };
        self.buckets.iter().for_each(|bucket| bucket.store(None));
    }

    /// Whether the files are closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Waits for and returns the next change to make; `None` after the shutdown.
    pub fn next_change(&self) -> Option<FileChange> {
        self.changes.next(|| self.is_closed())
    }

    /// Waits for and returns the next read; `None` after the shutdown. Requests that wait for it are woken when the `Load` is
    /// completed or dropped.
    pub fn next_read(&self) -> Option<FileRead> {
        // Responses being sent are completed.
        self.reads.next(|| self.is_closed() && self.longs.load(Relaxed) == 0)
    }

    /// Returns a queued change, if there is one.
    #[cfg(test)]
    pub(crate) fn waiting_change(&self) -> Option<FileChange> {
        locked(&self.changes.jobs).pop_front()
    }

    /// Returns a queued read, if there is one.
    #[cfg(test)]
    pub(crate) fn waiting_read(&self) -> Option<FileRead> {
        locked(&self.reads.jobs).pop_front()
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let order = self.order();
        assert_eq!(order.bytes, order.by_use.iter().map(|entry| entry.size).sum::<u64>());
        assert_eq!(order.memory, order.by_use.iter().map(|entry| entry.memory()).sum::<usize>());
        assert!(order.bytes <= self.settings.size && order.memory <= self.most_memory);
        let in_buckets: usize =
            self.buckets.iter().map(|bucket| bucket.load().as_ref().map_or(0, |bucket| bucket.len())).sum();
        assert_eq!(in_buckets, order.by_use.iter().count());
    }

    /// Called when a write has ended. False if the file must be removed.
    pub fn written(&self, entry: &Arc<Entry>, is_written: bool) -> bool {
        let mut order = self.order();
        // The parts of a long response were counted individually.
        let waited = if entry.is_long { 0 } else { entry.size };
        order.waiting = order.waiting.saturating_sub(waited);
        if !is_written {
            self.take_out(entry, &mut order);
        }
        let stays = is_written && !entry.is_gone() && !self.is_closed();
        if stays {
            self.counts.written.fetch_add(1, Relaxed);
            entry.is_there.store(true, Relaxed);
        }
        stays
    }

    /// Called for an invalid file, which is removed.
    pub fn wrong(&self, entry: &Arc<Entry>) {
        self.counts.wrong.fetch_add(1, Relaxed);
        self.take_out(entry, &mut self.order());
    }
}
