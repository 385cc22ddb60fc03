//! The files of caches (`disk` in a `cache` section): the threads that read and write them. The crate `cache` knows which files
//! exist and holds their descriptions, and delegates the blocking work to this crate.
//!
//! A directory belongs to one process at a time, which holds a lock on the file `lock` in it; another process waits for the lock.
//! Existing files are then scanned and reused. A file gets its final name only once it is completely written; a damaged one is
//! removed when it is found. I/O errors are reported, and only the responses that were to be stored are lost. Called by the binary.

#![forbid(unsafe_code)]

mod directory;
mod scan;
mod spools;
mod threads;
mod transfer;

pub use directory::{Directory, DirectoryOwner};
pub use threads::{ReportFn, serve};
