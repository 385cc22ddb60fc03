//! The file of shared counters, which is opened once and locked for each access. Parts are read and written as a whole;
//! [`super::layout`] defines their format, and the caller their use.
//!
//! The file is located where `shm_open` would put it. Locks are held in the kernel, so a process that dies releases its lock.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::layout::{self, FileLayout, Holder, ObjectEntry, ObjectRecord, PROCESSES};

/// How long other processes may block this one when it starts.
const PATIENCE: Duration = Duration::from_secs(5);

/// The interval for retrying a lock held by another process.
const RETRY: Duration = Duration::from_millis(5);

/// An open counter file.
#[derive(Debug)]
pub(super) struct SharedFile {
    file: File,
    path: PathBuf,
    places: FileLayout,
}

/// The file while this process holds the lock.
#[derive(Debug)]
pub(super) struct Locked<'f>(&'f SharedFile);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Unlocking an open file cannot fail.
        let _ = self.0.file.unlock();
    }
}

impl SharedFile {
    /// Opens the file at `path`, or creates it for `most` objects.
    ///
    /// # Errors
    /// The path cannot be used, or the file does not contain shared counters. The message has a suggestion.
    pub(super) fn open(path: &Path, most: u32) -> Result<Self, String> {
        // Others may remove the file between two steps, but not indefinitely.
        for _ in 0..100 {
            if let Some(own) = Self::try_open(path, most)? {
                return Ok(own);
            }
        }
        Err(format!("'{}' is removed repeatedly", path.display()))
    }

    fn try_open(path: &Path, most: u32) -> Result<Option<Self>, String> {
        let shown = path.display();
        let failed = |error: io::Error| format!("cannot use '{shown}': {}", without_number(&error));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        // The open neither follows symbolic links nor blocks on a pipe.
        options.custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32);
        let file = options.open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(format!("'{shown}' is not a file"));
        }
        let own = Self { file, path: path.to_owned(), places: FileLayout { most } };
        let locked = own.lock(PATIENCE).map_err(failed)?;
        let metadata = own.file.metadata().map_err(failed)?;
        let there = fs::symlink_metadata(path);
        if !there.is_ok_and(|there| (there.dev(), there.ino()) == (metadata.dev(), metadata.ino())) {
            return Ok(None);
        }
        let way_out = |why: String| {
            format!("'{shown}' cannot be used: {why}. Remove the file, or use another one (`shm-stats-file`)")
        };
        match metadata.len() {
            0 => locked.begin().map_err(failed)?,
            length => locked.check(length, most).map_err(way_out)?,
        }
        drop(locked);
        Ok(Some(own))
    }

    /// Waits at most `patience` for the lock.
    ///
    /// # Errors
    /// Another process holds it for longer, or the file cannot be locked.
    pub(super) fn lock(&self, patience: Duration) -> io::Result<Locked<'_>> {
        let until = Instant::now() + patience;
        loop {
            match self.file.try_lock() {
                Ok(()) => return Ok(Locked(self)),
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(RETRY),
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::new(ErrorKind::TimedOut, "another process has locked it"));
                }
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

impl Locked<'_> {
    fn places(&self) -> FileLayout {
        self.0.places
    }

    /// Initializes an empty file.
    fn begin(&self) -> io::Result<()> {
        let places = self.places();
        // Pages that are never written take no memory.
        self.0.file.set_len(places.end())?;
        self.0.file.write_all_at(&layout::header(places.most), 0)
    }

    /// Validates the file.
    fn check(&self, length: u64, most: u32) -> Result<(), String> {
        let failed = |error: io::Error| without_number(&error);
        let head = self.read(0, layout::HEADER.min(usize::try_from(length).unwrap_or(usize::MAX)));
        let made_for = layout::read_header(&head.map_err(failed)?)?;
        if made_for != most {
            return Err(format!(
                "it was created for {made_for} objects, but `shm-stats-file-max-objects` is {most}"
            ));
        }
        if length != self.places().end() {
            return Err("it is truncated".to_owned());
        }
        let used = self.used().map_err(failed)?;
        if used > most {
            return Err("its object count is damaged".to_owned());
        }
        if self.objects(used).map_err(failed)?.contains(&None) {
            return Err("its object table is damaged".to_owned());
        }
        if self.holders().map_err(failed)?.contains(&None) {
            return Err("its process table is damaged".to_owned());
        }
        Ok(())
    }

    fn read(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// The number of objects ever used.
    pub(super) fn used(&self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.0.file.read_exact_at(&mut bytes, layout::USED_AT)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(super) fn set_used(&self, used: u32) -> io::Result<()> {
        self.0.file.write_all_at(&used.to_le_bytes(), layout::USED_AT)
    }

    /// The maximum number of objects.
    pub(super) fn most(&self) -> u32 {
        self.places().most
    }

    /// The holders of all process slots; `None` for damaged slots.
    pub(super) fn holders(&self) -> io::Result<Vec<Option<Holder>>> {
        let bytes = self.read(layout::PROCESSES_AT, PROCESSES * Holder::SIZE)?;
        Ok(bytes.chunks_exact(Holder::SIZE).map(Holder::read).collect())
    }

    pub(super) fn set_holder(&self, index: usize, holder: Holder) -> io::Result<()> {
        let at = layout::PROCESSES_AT + (index * Holder::SIZE) as u64;
        self.0.file.write_all_at(&holder.write(), at)
    }

    /// The first `used` objects; `None` for damaged ones.
    pub(super) fn objects(&self, used: u32) -> io::Result<Vec<Option<ObjectEntry>>> {
        let bytes = self.read(self.places().objects(), used as usize * ObjectEntry::SIZE)?;
        Ok(bytes.chunks_exact(ObjectEntry::SIZE).map(ObjectEntry::read).collect())
    }

    pub(super) fn set_object(&self, index: u32, entry: &ObjectEntry) -> io::Result<()> {
        let at = self.places().objects() + u64::from(index) * ObjectEntry::SIZE as u64;
        self.0.file.write_all_at(&entry.write(), at)
    }

    /// The number of times each of the first `used` objects was cleared.
    pub(super) fn clearings(&self, used: u32) -> io::Result<Vec<u64>> {
        let bytes = self.read(self.places().clearings(), used as usize * 8)?;
        let one = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        Ok(bytes.chunks_exact(8).map(one).collect())
    }

    pub(super) fn set_clearings(&self, index: u32, clearings: u64) -> io::Result<()> {
        let at = self.places().clearings() + u64::from(index) * 8;
        self.0.file.write_all_at(&clearings.to_le_bytes(), at)
    }

    /// The records of a process for the first `used` objects, as bytes.
    pub(super) fn records(&self, process: usize, used: u32) -> io::Result<Vec<u8>> {
        self.read(self.places().records(process), used as usize * ObjectRecord::SIZE)
    }

    pub(super) fn set_records(&self, process: usize, bytes: &[u8]) -> io::Result<()> {
        self.0.file.write_all_at(bytes, self.places().records(process))
    }

    /// Removes the file. The next process that opens it creates a new one.
    pub(super) fn release(&self) -> io::Result<()> {
        self.0.file.set_len(0)?;
        // If the directory is inaccessible, an empty file remains.
        let own = self.0.file.metadata()?;
        if fs::symlink_metadata(&self.0.path).is_ok_and(|there| there.ino() == own.ino()) {
            let _ = fs::remove_file(&self.0.path);
        }
        Ok(())
    }
}

/// The system's error message, without its number.
fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
