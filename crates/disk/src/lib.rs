//! The files of caches (`disk` in a `cache` section): the threads that read and write them. Which
//! files there are and what is in them is known to `cache`, which has the work done here that blocks.
//!
//! A directory is one process's at a time, which holds a lock on the file `lock` there; another one
//! waits for it. Files that are there then are looked through, and used. A file appears under its
//! name when all of it is written; one that is not what it should be is removed when that is seen.
//! What the system refuses is told, and loses nothing but what was to be kept. Called by the binary.

#![forbid(unsafe_code)]

mod directory;
mod scan;
mod spools;
mod threads;
mod transfer;

pub use directory::{Directory, DirectoryOwner};
pub use threads::{ReportFn, serve};
