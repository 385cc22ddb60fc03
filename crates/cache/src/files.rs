//! The responses of a cache that are in files (`disk`): the place of each, the least recently used one,
//! and the work for the threads that read and write. No I/O: the crate `disk` asks for work
//! ([`StoreFiles::next_change`], [`StoreFiles::next_read`]) and reports its outcome.
//!
//! Looking up takes no lock. A file that is not wanted any more is known as gone before anything
//! else is done about it, so that nobody gets what was purged.

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

/// So many bytes may wait to be written at least: a long response may come in one go.
const LEAST_WAITING: u64 = 8 << 20;

/// So many reads may wait; who comes then goes to the server.
const MOST_READS: usize = 1024;

/// Purges remembered while files are looked through; beyond that, files not yet seen are not used.
const MOST_PURGES: usize = 64;

/// The same of keys whose responses changed meanwhile.
const MOST_KEYS: usize = 1 << 20;

/// The files of one store.
#[derive(Debug)]
pub struct StoreFiles {
    /// What the section says.
    pub settings: Disk,
    /// The name of the section.
    pub name: Box<str>,
    /// The field that names tags.
    tags: Option<http::Name>,
    /// Memory that entries may take.
    most_memory: usize,
    /// Bytes that may wait to be written.
    most_waiting: u64,
    /// Bytes of a body that memory may hold.
    most_in_memory: u64,
    buckets: Box<[ArcSwapOption<Vec<Arc<Entry>>>]>,
    order: Mutex<FileOrder>,
    changes: JobQueue<FileChange>,
    reads: JobQueue<FileRead>,
    /// What is being read, by the numbers of files: no more than may wait. Held for a moment only, by
    /// who comes for what memory does not have.
    loads: Mutex<HashMap<u64, Weak<ObjectRead>>>,
    /// How many long responses are being sent. Written by who begins and who ends.
    longs: AtomicUsize,
    /// Whether files are read and written: the directory is this process's, and was looked through.
    is_open: AtomicBool,
    /// Whether all is over.
    is_closed: AtomicBool,
    /// Whether threads were started.
    is_served: AtomicBool,
    /// What happened. Written by workers and by the threads that read and write.
    pub counts: FileCounts,
}

/// What happened to files.
#[derive(Debug, Default)]
pub struct FileCounts {
    /// Responses that were read.
    pub hits: AtomicU64,
    /// Responses that were written.
    pub written: AtomicU64,
    /// Those that made room for others.
    pub evicted: AtomicU64,
    /// Those that were not written, as too much waited to be.
    pub passed: AtomicU64,
    /// Files that were not what they should be.
    pub wrong: AtomicU64,
    /// What the system refused.
    pub errors: AtomicU64,
}

#[derive(Debug, Default)]
struct FileOrder {
    by_use: ByUse<Entry>,
    /// The last number given.
    number: u64,
    /// Bytes of all files.
    bytes: u64,
    /// Bytes of memory of all entries.
    memory: usize,
    /// Bytes that wait to be written.
    waiting: u64,
    /// Bytes of files that are being written and are no entries yet.
    reserved: u64,
    /// What changed while files are looked through.
    meanwhile: Meanwhile,
}

/// What was taken out while files are looked through: it may be in one that was not seen yet.
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

    /// What is in a file for a request, fresh or of use all the same, as `is_of_use` says.
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

    /// Has an entry read. `None`: too much waits to be read.
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

    /// Offers a response that memory lets go of; `is_alone` where nobody sends it: its memory is
    /// then counted here until it is written.
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

    /// Puts an entry in, for which others make room.
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

    /// Takes an entry out, and has its file removed.
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
        // One that is being written is removed by who writes it.
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

    /// What is kept of that key changed: what `is_meant` of it is gone.
    pub(crate) fn remove(&self, hash: u64, key: &[u8], is_meant: impl Fn(&Variant) -> bool) -> usize {
        let mut order = self.order();
        order.meanwhile.note_key(hash);
        let bucket = self.bucket(hash).load_full();
        let wanted = |entry: &&Arc<Entry>| *entry.key == *key && is_meant(&entry.variant);
        let gone: Vec<_> = bucket.iter().flat_map(|bucket| bucket.iter()).filter(wanted).collect();
        gone.iter().for_each(|entry| self.take_out(entry, &mut order));
        gone.len()
    }

    /// Takes out what `purge` says, but for what `is_counted` says is in memory too; how many that
    /// were.
    pub(crate) fn purge(&self, purge: &Purge<'_>, is_counted: impl Fn(&Arc<Entry>) -> bool) -> usize {
        let all = {
            let mut order = self.order();
            order.meanwhile.note(purge);
            // Looked at without the lock, which many would hold for long.
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

    /// How many entries there are.
    pub fn count(&self) -> usize {
        self.order().by_use.len()
    }

    /// Every entry.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.order().by_use.iter().cloned().collect()
    }

    /// Bytes of all files.
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

/// Long responses, which go to their files as they come, and out of them in blocks.
impl StoreFiles {
    /// The number of a new file, where files are written.
    pub(crate) fn next_number(&self) -> Option<u64> {
        self.is_open().then(|| {
            let mut order = self.order();
            order.number += 1;
            order.number
        })
    }

    /// Sets so many bytes of files aside, for which others make room; false where that would be more
    /// than half of all.
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

    /// Has `change` made, which has so many bytes in memory; false where too much waits.
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

    /// So many bytes do not wait any more.
    pub fn changed(&self, bytes: u64) {
        let mut order = self.order();
        order.waiting = order.waiting.saturating_sub(bytes);
    }

    /// What came whole, with a body of so many bytes, is an entry from now on. False: files are not
    /// written any more.
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

    /// One more or one less that is being sent.
    fn hold(&self, more: isize) {
        if more > 0 {
            self.longs.fetch_add(1, Relaxed);
        } else if self.longs.fetch_sub(1, Relaxed) == 1 && self.is_closed() {
            self.reads.ring();
        }
    }

    /// A response of so many bytes that is sent out of the file of `entry`.
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

/// A file out of which something is sent.
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

/// What the threads do that read and write.
impl StoreFiles {
    /// Whether threads were started.
    pub fn is_served(&self) -> bool {
        self.is_served.load(Relaxed)
    }

    /// Whether threads are to be started, which is so once.
    pub fn begin(&self) -> bool {
        !self.is_served.swap(true, Relaxed)
    }

    /// Adds what was found in a file of an earlier process, of that many bytes. False: it is not
    /// wanted, and to be removed.
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

    /// All files of earlier processes were looked through, of which none had a higher number: from now
    /// on there are others.
    pub fn open(&self, number: u64) {
        let mut order = self.order();
        order.number = order.number.max(number);
        order.meanwhile = Meanwhile { is_over: true, ..Meanwhile::default() };
        drop(order);
        if !self.is_closed.load(Relaxed) {
            self.is_open.store(true, Relaxed);
        }
    }

    /// Nothing is read or written from now on: another process has the directory, or will.
    pub fn close(&self) {
        self.is_closed.store(true, Relaxed);
        self.is_open.store(false, Relaxed);
        // What was purged is not to be there for the next process.
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

    /// Whether that is so.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// The next change that is to be made; `None` once all is over. Waits for one.
    pub fn next_change(&self) -> Option<FileChange> {
        self.changes.next(|| self.is_closed())
    }

    /// The next response that is to be read; `None` once all is over. Waits for one. Who waits for
    /// it hears when `Load` is dropped, or told.
    pub fn next_read(&self) -> Option<FileRead> {
        // What is being sent comes to its end.
        self.reads.next(|| self.is_closed() && self.longs.load(Relaxed) == 0)
    }

    /// A change that waits, if one does.
    #[cfg(test)]
    pub(crate) fn waiting_change(&self) -> Option<FileChange> {
        locked(&self.changes.jobs).pop_front()
    }

    /// A read that waits, if one does.
    #[cfg(test)]
    pub(crate) fn waiting_read(&self) -> Option<FileRead> {
        locked(&self.reads.jobs).pop_front()
    }

    /// What must hold between changes.
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

    /// What was to be written has been, or not. False: the file is to be removed.
    pub fn written(&self, entry: &Arc<Entry>, is_written: bool) -> bool {
        let mut order = self.order();
        // Of a long one each part was counted by itself.
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

    /// A file is not what it should be: it is removed.
    pub fn wrong(&self, entry: &Arc<Entry>) {
        self.counts.wrong.fetch_add(1, Relaxed);
        self.take_out(entry, &mut self.order());
    }
}
