//! The threads of one cache: one owns the directory and changes its contents, two read.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use base::clock::now_ms;
use cache::{Entry, FileChange, FileRead, Loaded, Object, Store, StoreFiles};

use crate::directory::{Directory, name};
use crate::scan::{now, scan};
use crate::spools::Spools;
use crate::transfer::{self, OpenFile, ReadFailed};

/// Reports I/O errors.
pub type ReportFn = Arc<dyn Fn(&str) + Send + Sync>;

/// How often the lock on the directory is retried.
const RETRY: Duration = Duration::from_millis(50);

/// Number of reading threads.
const READERS: usize = 2;

/// Minimum interval between reports of the same error, in ms.
const SILENCE: u64 = 60_000;

/// State shared by the threads of one cache.
struct ThreadWork {
    store: Weak<Store>,
    files: Arc<StoreFiles>,
    directory: Directory,
    report: ReportFn,
    /// The time of the last report, in ms of the monotonic clock; 0 for never.
    reported_ms: AtomicU64,
}

/// Starts the threads of `store`, which end when its files are closed.
///
/// # Errors
/// A thread cannot be started.
pub fn serve(store: &Arc<Store>, directory: Directory, report: ReportFn) -> io::Result<()> {
    let Some(files) = store.files.clone().filter(|files| files.begin()) else { return Ok(()) };
    let (store, reported_ms) = (Arc::downgrade(store), AtomicU64::new(0));
    let work = Arc::new(ThreadWork { store, files, directory, report, reported_ms });
    let own = work.clone();
    spawn(move || own.change())?;
    for _ in 0..READERS {
        let own = work.clone();
        spawn(move || own.read())?;
    }
    Ok(())
}

fn spawn(main: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("cache-files".into()).spawn(main).map(drop)
}

impl ThreadWork {
    /// Waits for the lock on the directory, scans it, and then applies changes until the end.
    fn change(&self) {
        let lock = loop {
            if self.files.is_closed() {
                return;
            }
            match self.directory.lock() {
                Ok(Some(lock)) => break lock,
                Ok(None) => {}
                Err(error) => self.refused("use", &error),
            }
            thread::sleep(RETRY);
        };
        let scanned = match self.store.upgrade() {
            Some(store) => {
                let refused = |error: &io::Error| self.refused("remove a file from", error);
                scan(&self.directory, &store, || !self.files.is_closed(), refused)
            }
            None => return,
        };
        match scanned {
            Ok(highest) => self.files.open(highest),
            Err(error) => {
                self.refused("read", &error);
                return;
            }
        }
        let mut spools = Spools::default();
        while let Some(change) = self.files.next_change() {
            match change {
                FileChange::Write(entry, object) => self.write(&entry, &object),
                FileChange::Remove(number) => self.remove(number),
                change => self.spool(&mut spools, change),
            }
        }
        // From here on another process may use the directory.
        drop(lock);
    }

    fn write(&self, entry: &Arc<Entry>, object: &Object) {
        // An entry that was purged while it waited is not written.
        let written = match entry.is_gone() {
            true => Ok(false),
            false => transfer::write(&self.directory, entry.number, object, now()).map(|()| true),
        };
        if let Err(error) = &written {
            self.refused("write to", error);
        }
        if !self.files.written(entry, matches!(written, Ok(true))) {
            self.remove(entry.number);
        }
    }

    /// Handles a change to a response that is written while it arrives.
    fn spool(&self, spools: &mut Spools, change: FileChange) {
        let failed = |spools: &mut Spools, number, error: &io::Error| {
            self.refused("write to", error);
            spools.abort(&self.directory, number);
        };
        match change {
            FileChange::Create(own) => {
                if let Err(error) = spools.create(&self.directory, &own, now()) {
                    own.fail();
                    failed(spools, own.number, &error);
                }
            }
            FileChange::Append(own, bytes) => {
                if let Err(error) = spools.append(own.number, &bytes) {
                    own.fail();
                    failed(spools, own.number, &error);
                }
                self.files.changed(bytes.len() as u64);
            }
            FileChange::Commit(own, entry, body) => {
                let written = spools.commit(&self.directory, own.number, body);
                if let Err(error) = &written {
                    failed(spools, own.number, error);
                }
                if !self.files.written(&entry, matches!(written, Ok(true))) {
                    self.remove(own.number);
                }
            }
            FileChange::Abort(number) => spools.abort(&self.directory, number),
            FileChange::Write(..) | FileChange::Remove(_) => {}
        }
    }

    fn remove(&self, number: u64) {
        if let Err(error) = self.directory.remove(&name(number)) {
            self.refused("remove a file from", &error);
        }
    }

    /// Serves read requests until the end.
    fn read(&self) {
        while let Some(read) = self.files.next_read() {
            match read {
                FileRead::Load(entry, load) => load.end(self.load(&entry)),
                FileRead::Block(entry, blocks, block, fetch) => {
                    let data = blocks.read(block);
                    if data.is_none() {
                        self.wrong(&entry);
                    }
                    fetch.end(data);
                }
            }
        }
    }

    fn load(&self, entry: &Arc<Entry>) -> Option<Loaded> {
        if entry.is_gone() {
            return None;
        }
        match self.load_from(entry) {
            Ok(loaded) => loaded,
            // The file was removed in the meantime.
            Err(ReadFailed::Wrong) if entry.is_gone() => None,
            Err(ReadFailed::Wrong) => {
                self.wrong(entry);
                None
            }
            Err(ReadFailed::System(error)) => {
                self.refused("read", &error);
                None
            }
        }
    }

    fn wrong(&self, entry: &Arc<Entry>) {
        self.files.wrong(entry);
        self.report(&format!("{} contained a damaged file, which was removed", self.place()));
    }

    fn load_from(&self, entry: &Arc<Entry>) -> Result<Option<Loaded>, ReadFailed> {
        let Some(store) = self.store.upgrade() else { return Ok(None) };
        let mut file = self.directory.read(&name(entry.number))?;
        let (header, described) = transfer::describe(&mut file, entry.number, now())?;
        if !Store::is_that(entry, &described, &header) {
            return Err(ReadFailed::Wrong);
        }
        if entry.is_long() {
            let blocks = Arc::new(OpenFile { file, header });
            self.files.counts.hits.fetch_add(1, Relaxed);
            return Ok(Some(Loaded::Long(self.files.long(entry, described, header.body, blocks))));
        }
        let Some(reserved) = store.reserve(entry, &described, &header, now_ms()) else { return Ok(None) };
        let body = transfer::body(&mut file, &header)?;
        let object = store.promote(entry, described, body, reserved, now_ms());
        if object.is_some() {
            self.files.counts.hits.fetch_add(1, Relaxed);
        }
        Ok(object.map(Loaded::Kept))
    }

    fn place(&self) -> String {
        format!("directory {} of cache {}", self.directory.path.display(), self.files.name)
    }

    fn refused(&self, what: &str, error: &io::Error) {
        self.files.counts.errors.fetch_add(1, Relaxed);
        self.report(&format!("cannot {what} {}: {error}", self.place()));
    }

    /// Reports an error, at most once per [`SILENCE`].
    fn report(&self, text: &str) {
        let (now, last) = (now_ms().max(1), self.reported_ms.load(Relaxed));
        if last == 0 || now.saturating_sub(last) >= SILENCE {
            self.reported_ms.store(now, Relaxed);
            (self.report)(text);
        }
    }
}
