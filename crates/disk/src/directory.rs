//! A directory, identified by its descriptor: it stays accessible even after the process has changed its root or dropped
//! privileges.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The owner of a new directory: user and group, if the process will switch to others.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectoryOwner {
    /// The user.
    pub user: Option<u32>,
    /// The group.
    pub group: Option<u32>,
}

/// A directory that holds the files of one cache.
#[derive(Debug)]
pub struct Directory {
    own: OwnedFd,
    /// The path of the directory, for messages.
    pub path: PathBuf,
}

impl Directory {
    /// Opens the directory and creates it if it does not exist; the parent must exist.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn open(path: &Path, owner: DirectoryOwner) -> io::Result<Self> {
        let is_new = match fs::mkdir(path, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = fs::open(path, flags, Mode::empty())?;
        if is_new && (owner.user.is_some() || owner.group.is_some()) {
            let user = owner.user.map(fs::Uid::from_raw);
            fs::fchown(&own, user, owner.group.map(fs::Gid::from_raw))?;
        }
        Ok(Self { own, path: path.into() })
    }

    /// Takes the lock; `None` if another process holds it.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn lock(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = fs::openat(&self.own, "lock", flags, Mode::RUSR | Mode::WUSR)?;
        match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a file, replacing one that was left unfinished.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(fs::openat(&self.own, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn read(&self, name: &str) -> io::Result<File> {
        // With NONBLOCK, the open does not block on a FIFO of that name.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(fs::openat(&self.own, name, flags, Mode::empty())?.into())
    }

    /// Renames a file.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(fs::renameat(&self.own, from, &self.own, to)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Any I/O error, except that the file does not exist.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::unlinkat(&self.own, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists the names of the directory's entries.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn names(&self) -> io::Result<impl Iterator<Item = String>> {
        let entries = fs::Dir::read_from(&self.own)?;
        // A name that is not UTF-8 does not belong to the cache.
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str().map(str::to_owned).ok()))
    }
}

/// Returns the name of file `number`.
pub(crate) fn name(number: u64) -> String {
    format!("{number:016x}")
}

/// Returns the number of the file with that name, if the name is that of a stored response.
pub(crate) fn number(name: &str) -> Option<u64> {
    let is_one = name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_one.then(|| u64::from_str_radix(name, 16).ok()).flatten()
}
