//! A directory, by its descriptor: it stays the same one whatever the process gives up of the file
//! system and of its rights.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// Who is to own a directory that is made: user and group, where the process becomes another.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectoryOwner {
    /// The user.
    pub user: Option<u32>,
    /// The group.
    pub group: Option<u32>,
}

/// A directory for files of one cache.
#[derive(Debug)]
pub struct Directory {
    own: OwnedFd,
    /// Where it is, for messages.
    pub path: PathBuf,
}

impl Directory {
    /// Opens it, and makes it where there is none; its parent has to be there.
    ///
    /// # Errors
    /// What the system refuses.
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

    /// Takes the lock; `None` where another process has it.
    ///
    /// # Errors
    /// What the system refuses.
    pub(crate) fn lock(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = fs::openat(&self.own, "lock", flags, Mode::RUSR | Mode::WUSR)?;
        match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a new file, in the place of one that was not written to its end.
    ///
    /// # Errors
    /// What the system refuses.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(fs::openat(&self.own, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Opens a file to be read.
    ///
    /// # Errors
    /// What the system refuses.
    pub(crate) fn read(&self, name: &str) -> io::Result<File> {
        // Whatever stands there under that name, opening it does not block.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(fs::openat(&self.own, name, flags, Mode::empty())?.into())
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// What the system refuses.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(fs::renameat(&self.own, from, &self.own, to)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// What the system refuses; none where it is not there.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::unlinkat(&self.own, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The names of what is in it.
    ///
    /// # Errors
    /// What the system refuses.
    pub(crate) fn names(&self) -> io::Result<impl Iterator<Item = String>> {
        let entries = fs::Dir::read_from(&self.own)?;
        // A name that is no text is none of ours.
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str().map(str::to_owned).ok()))
    }
}

/// The name of the file with that number.
pub(crate) fn name(number: u64) -> String {
    format!("{number:016x}")
}

/// The number of the file with that name, if it is one of a response.
pub(crate) fn number(name: &str) -> Option<u64> {
    let is_one = name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_one.then(|| u64::from_str_radix(name, 16).ok()).flatten()
}
