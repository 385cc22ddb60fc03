//! Scans the files that an earlier process left: complete files are reused, damaged ones are removed. Files that do not belong to
//! the cache are left alone.

use std::io;

use base::clock::{WallTime, now_ms};
use cache::{Clocks, Store};

use crate::directory::{Directory, number};
use crate::transfer::{self, ReadFailed};

/// Returns the current time on both clocks.
pub(crate) fn now() -> Clocks {
    let wall = WallTime::now();
    Clocks { ms: now_ms(), wall_ms: wall.seconds * 1000 + i64::from(wall.millis()) }
}

/// Adds the files of `directory` to `store` and returns the highest file number. `goes_on` is called before each file, and
/// `refused` with the errors of removals.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn scan(
    directory: &Directory,
    store: &Store,
    goes_on: impl Fn() -> bool,
    refused: impl Fn(&io::Error),
) -> io::Result<u64> {
    let remove = |name: &str| {
        if let Err(error) = directory.remove(name) {
            refused(&error);
        }
    };
    let mut highest = 0;
    for name in directory.names()? {
        if !goes_on() {
            break;
        }
        let unfinished = name.strip_suffix(".tmp").and_then(number);
        let Some(number) = number(&name) else {
            if unfinished.is_some() {
                remove(&name);
            }
            continue;
        };
        highest = highest.max(number);
        if !is_of_use(directory, store, &name, number) {
            remove(&name);
        }
    }
    Ok(highest)
}

/// Returns whether the file can be reused.
fn is_of_use(directory: &Directory, store: &Store, name: &str, number: u64) -> bool {
    let described = directory
        .read(name)
        .map_err(ReadFailed::from)
        .and_then(|mut file| transfer::describe(&mut file, number, now()));
    match described {
        Ok((header, described)) => store.found_file(&described, &header, now_ms()),
        Err(ReadFailed::Wrong) => false,
        // An I/O error may not occur again at the next start.
        Err(ReadFailed::System(_)) => true,
    }
}
