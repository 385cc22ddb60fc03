//! Directories for test files. Each is new, has a unique name in the system's temporary directory, and is removed when its value is
//! dropped. If a test panics, its directories stay and their paths are printed. Used only by tests.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory, or a file in it. Dropping the value removes it.
///
/// The value derefs to the path of the directory, or of the file that [`Scratch::file`] named. It must exist as long as the path is
/// used.
#[derive(Debug)]
#[must_use = "the directory is removed when the value is dropped"]
pub struct Scratch {
    directory: PathBuf,
    path: PathBuf,
}

impl Scratch {
    /// Creates an empty directory with `name` in its name.
    ///
    /// # Panics
    /// The directory cannot be created.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("weir-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("the temporary directory takes directories");
        Self { path: directory.clone(), directory }
    }

    /// Returns the same directory, with the path of the file `name` in it, which need not exist.
    pub fn file(mut self, name: &str) -> Self {
        self.path = self.directory.join(name);
        self
    }

    /// Creates a file `name` with this text in a new directory.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn holding(name: &str, text: impl AsRef<[u8]>) -> Self {
        let stem = Path::new(name).file_stem().and_then(OsStr::to_str).unwrap_or(name);
        let file = Self::new(stem).file(name);
        fs::write(&file, text).expect("the temporary directory takes files");
        file
    }

    /// Returns the directory, even if a file in it was named.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("kept: {}", self.directory.display());
        } else {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<OsStr> for Scratch {
    fn as_ref(&self) -> &OsStr {
        self.path.as_os_str()
    }
}

impl Display for Scratch {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_unique_and_removed_on_drop() {
        let (one, two) = (Scratch::new("own"), Scratch::new("own"));
        assert_ne!(one.directory(), two.directory());
        fs::create_dir(one.join("below")).expect("a directory");
        fs::write(one.join("below/file"), "x").expect("a file");
        let path = one.to_path_buf();
        assert!(path.is_dir());
        drop(one);
        assert!(!path.exists());
        assert!(two.is_dir());
    }

    #[test]
    fn directory_of_a_file_is_removed_with_it() {
        let file = Scratch::holding("names.map", "a 1\n");
        let directory = file.directory().to_path_buf();
        assert_eq!(fs::read(&file).expect("a file"), b"a 1\n");
        assert_eq!(file.to_string(), directory.join("names.map").display().to_string());
        drop(file);
        assert!(!directory.exists());
    }

    #[test]
    fn panicking_tests_keep_their_directory() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let ended = std::thread::spawn(move || {
            let kept = Scratch::new("kept");
            sender.send(kept.to_path_buf()).expect("the test waits");
            std::panic::resume_unwind(Box::new("as a test does that fails"));
        })
        .join();
        assert!(ended.is_err());
        let path = receiver.recv().expect("a path");
        assert!(path.is_dir());
        fs::remove_dir_all(path).expect("it is there");
    }
}
