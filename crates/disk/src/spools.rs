//! Responses that go into their files as they come, piece by piece.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use cache::{Clocks, HEADER, Spooled};

use crate::directory::{Directory, name};

/// Those that are on their way, by the numbers of their files.
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
    /// What the system refuses.
    pub(crate) fn create(&mut self, directory: &Directory, own: &Spooled, now: Clocks) -> io::Result<()> {
        let mut file = directory.create(&unfinished(own.number))?;
        let described = own.describe(now);
        // Without its header it is no file of a response.
        let written = file.write_all(&[&[0; HEADER][..], &described].concat());
        self.0.insert(own.number, Spool { file, described });
        written
    }

    /// Adds to a file.
    ///
    /// # Errors
    /// What the system refuses; the file is not there any more then.
    pub(crate) fn append(&mut self, number: u64, bytes: &[u8]) -> io::Result<()> {
        match self.0.get_mut(&number) {
            Some(spool) => spool.file.write_all(bytes),
            // That it failed before was told.
            None => Ok(()),
        }
    }

    /// Completes a file with a body of so many bytes, which appears now; false where it failed before.
    ///
    /// # Errors
    /// What the system refuses.
    pub(crate) fn commit(&mut self, directory: &Directory, number: u64, body: u64) -> io::Result<bool> {
        let Some(spool) = self.0.remove(&number) else { return Ok(false) };
        spool.file.write_all_at(&cache::header(number, body, &spool.described), 0)?;
        directory.rename(&unfinished(number), &name(number))?;
        Ok(true)
    }

    /// Forgets a file.
    pub(crate) fn abort(&mut self, directory: &Directory, number: u64) {
        if self.0.remove(&number).is_some() {
            // What cannot be removed now the next process tries again.
            let _ = directory.remove(&unfinished(number));
        }
    }
}
