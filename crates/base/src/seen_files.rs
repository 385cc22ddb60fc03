//! The files that were read while something was loaded, with their state at that time. A later load can be skipped if all of them
//! are unchanged.
//!
//! [`note`] is called before a file is read or its existence is checked, by [`crate::file`] and by code that reads files in other
//! ways. Notes are kept per thread, and only during [`during`].

use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A file that was changed this shortly before it was noted may change again without a visible difference, because the kernel's
/// time stamps are coarse.
const COARSE: Duration = Duration::from_millis(100);

thread_local! {
    static NOTED: RefCell<Option<Vec<SeenFile>>> = const { RefCell::new(None) };
}

/// The files that were noted.
#[derive(Debug, Default)]
pub struct SeenFiles(Vec<SeenFile>);

#[derive(Debug)]
struct SeenFile {
    path: Box<Path>,
    state: FileState,
}

/// The state of a file according to the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileState {
    Missing,
    /// The device, the inode, the mode, the size, and the times of the last modification and change in seconds and nanoseconds.
    Present([u64; 4], [i64; 4]),
    /// Changed so recently that its state does not identify the contents.
    Unsettled,
}

impl FileState {
    fn of(path: &Path) -> Self {
        let Ok(found) = std::fs::metadata(path) else { return Self::Missing };
        let changed = u64::try_from(found.ctime()).unwrap_or(0);
        let changed =
            SystemTime::UNIX_EPOCH + Duration::new(changed, u32::try_from(found.ctime_nsec()).unwrap_or(0));
        // A time in the future is not trusted either.
        if SystemTime::now().duration_since(changed).is_ok_and(|age| age >= COARSE) {
            Self::Present(
                [found.dev(), found.ino(), found.mode().into(), found.size()],
                [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()],
            )
        } else {
            Self::Unsettled
        }
    }
}

impl SeenFiles {
    /// Whether every file is in the state in which it was noted.
    pub fn are_unchanged(&self) -> bool {
        self.0.iter().all(|file| {
            let now = FileState::of(&file.path);
            now == file.state && now != FileState::Unsettled
        })
    }
}

/// Runs `load`, and returns the files that it noted.
pub fn during<R>(load: impl FnOnce() -> R) -> (R, SeenFiles) {
    let outer = NOTED.replace(Some(Vec::new()));
    let result = load();
    let seen = NOTED.replace(outer).unwrap_or_default();
    (result, SeenFiles(seen))
}

/// Notes the state of a file or directory, or that it does not exist.
pub fn note(path: impl AsRef<Path>) {
    NOTED.with_borrow_mut(|noted| {
        let Some(noted) = noted else { return };
        let path = path.as_ref();
        noted.push(SeenFile { path: path.into(), state: FileState::of(path) });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aged(path: &Path) {
        // The age depends on the time of the last change of the inode, which cannot be set.
        while FileState::of(path) == FileState::Unsettled {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_changed_a_new_and_a_removed_file_are_noticed() {
        let directory = std::env::temp_dir().join(format!("seen-files-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let (one, other) = (directory.join("one"), directory.join("other"));
        std::fs::write(&one, "1").expect("a file");
        aged(&one);
        let seen = || during(|| [&one, &other].map(note)).1;
        let before = seen();
        assert!(before.are_unchanged());
        std::fs::write(&one, "2").expect("a file");
        assert!(!before.are_unchanged(), "other contents of the same length");
        assert!(!seen().are_unchanged(), "changed just now");
        aged(&one);
        let before = seen();
        std::fs::write(&other, "").expect("a file");
        assert!(!before.are_unchanged(), "a new file");
        std::fs::remove_dir_all(&directory).expect("removed");
        assert!(!before.are_unchanged(), "a removed file");
    }

    #[test]
    fn nothing_is_noted_outside() {
        note("/");
        assert!(during(|| ()).1.0.is_empty());
    }
}
