//! Writes a response to a file, and reads it back.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;

use cache::{BLOCK, Blocks, Clocks, Described, FileHeader, HEADER, Object, SUM, Wrong};

use crate::directory::{Directory, name};

/// Why a response could not be read.
#[derive(Debug)]
pub(crate) enum ReadFailed {
    /// The file is damaged.
    Wrong,
    /// An I/O error.
    System(io::Error),
}

impl From<Wrong> for ReadFailed {
    fn from(Wrong: Wrong) -> Self {
        Self::Wrong
    }
}

impl From<io::Error> for ReadFailed {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The file is truncated or was removed.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound => Self::Wrong,
            _ => Self::System(error),
        }
    }
}

/// Writes `object` to file `number`, which becomes visible once it is complete.
///
/// # Errors
/// Any I/O error; no file is left behind.
pub(crate) fn write(directory: &Directory, number: u64, object: &Object, now: Clocks) -> io::Result<()> {
    let (name, unfinished) = (name(number), name(number) + ".tmp");
    let written = directory
        .create(&unfinished)
        .and_then(|file| write_all(file, number, object, now))
        .and_then(|()| directory.rename(&unfinished, &name));
    if written.is_err() {
        // If this also fails, the next process removes the file.
        let _ = directory.remove(&unfinished);
    }
    written
}

fn write_all(mut file: File, number: u64, object: &Object, now: Clocks) -> io::Result<()> {
    let mut text = cache::describe(object, number, now);
    for (block, data) in object.body.chunks(BLOCK).enumerate() {
        text.extend_from_slice(data);
        text.extend_from_slice(&cache::sum(number, block as u64, data));
        file.write_all(&text)?;
        text.clear();
    }
    file.write_all(&text)
}

/// Reads the header and the description of file `number`.
///
/// # Errors
/// The file is damaged or cannot be read.
pub(crate) fn describe(
    file: &mut File,
    number: u64,
    now: Clocks,
) -> Result<(FileHeader, Described), ReadFailed> {
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(ReadFailed::Wrong);
    }
    let mut header = [0; HEADER];
    file.read_exact(&mut header)?;
    let header = FileHeader::read(&header)?;
    if header.number != number || header.size() != facts.len() {
        return Err(ReadFailed::Wrong);
    }
    let mut text = vec![0; header.described as usize];
    file.read_exact(&mut text)?;
    Ok((header, cache::read(&header, &text, now)?))
}

/// A file whose body is read block by block.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) header: FileHeader,
}

impl Blocks for OpenFile {
    fn read(&self, block: u64) -> Option<Vec<u8>> {
        let start = block.checked_mul(BLOCK as u64)?;
        let length = self.header.body.checked_sub(start)?.min(BLOCK as u64) as usize;
        let at = self.header.blocks_at() + block * (BLOCK + SUM) as u64;
        let mut data = vec![0; length + SUM];
        self.file.read_exact_at(&mut data, at).ok()?;
        let sum = data.split_off(length);
        (cache::sum(self.header.number, block, &data)[..] == sum[..]).then_some(data)
    }
}

/// Reads the body that follows the header.
///
/// # Errors
/// The file is damaged or cannot be read.
pub(crate) fn body(file: &mut File, header: &FileHeader) -> Result<Vec<u8>, ReadFailed> {
    let length = usize::try_from(header.body).map_err(|_| Wrong)?;
    let mut body = Vec::with_capacity(length);
    let mut sum = [0; SUM];
    for block in 0..header.blocks() {
        let start = body.len();
        let end = (start + BLOCK).min(length);
        body.resize(end, 0);
        file.read_exact(&mut body[start..])?;
        file.read_exact(&mut sum)?;
        if cache::sum(header.number, block, &body[start..]) != sum {
            return Err(ReadFailed::Wrong);
        }
    }
    Ok(body)
}
