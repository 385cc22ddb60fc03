//! Responses that are written to their files while they arrive, piece by piece.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use cache::{Clocks, HEADER, Spooled};

use crate::directory::{Directory, name};

/// The unfinished files, by number.
#[derive(Default)]
pub(crate) struct Spools(HashMap<u64, Spool>);

struct Spool {
    file: File,
    described: Vec<u8>,
}

fn unfinished(number: u64) -> String {
    name(number) + ".tmp"
}

impl Spools {
    /// Begins a file.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn create(&mut self, directory: &Directory, own: &Spooled, now: Clocks) -> io::Result<()> {
        let mut file = directory.create(&unfinished(own.number))?;
        let described = own.describe(now);
        // Without a valid header, the file is not treated as a response.
        let written = file.write_all(&[&[0; HEADER][..], &described].concat());
        self.0.insert(own.number, Spool { file, described });
        written
    }

    /// Appends to a file.
    ///
    /// # Errors
    /// Any I/O error; the file has then been removed.
    pub(crate) fn append(&mut self, number: u64, bytes: &[u8]) -> io::Result<()> {
        match self.0.get_mut(&number) {
            Some(spool) => spool.file.write_all(bytes),
            // The earlier failure was reported already.
            None => Ok(()),
        }
    }

    /// Completes a file whose body has `body` bytes and makes it visible. Returns false if it failed earlier.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn commit(&mut self, directory: &Directory, number: u64, body: u64) -> io::Result<bool> {
        let Some(spool) = self.0.remove(&number) else { return Ok(false) };
        spool.file.write_all_at(&cache::header(number, body, &spool.described), 0)?;
        directory.rename(&unfinished(number), &name(number))?;
        Ok(true)
    }

    /// Discards an unfinished file.
    pub(crate) fn abort(&mut self, directory: &Directory, number: u64) {
        if self.0.remove(&number).is_some() {
            // If this fails, the next process removes the file.
            let _ = directory.remove(&unfinished(number));
        }
    }
}
