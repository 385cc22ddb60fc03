//! Files that a configuration names, read whole: what is no file is refused at once, instead of
//! waited for.
//!
//! Used by whoever reads such a file at start. The files of the configuration itself are not read
//! here: they may be pipes.

use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// The bytes of a file. A device that has nothing to read, such as `/dev/null`, is an empty one.
///
/// # Errors
/// What the system says, and that it is a pipe, a socket or a device with contents, which might
/// never end.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    // Opening a pipe would wait for a writer otherwise.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = std::fs::File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    let refused = |what: &str| Err(Error::new(ErrorKind::InvalidInput, format!("it is {what}, not a file")));
    if kind.is_fifo() {
        return refused("a pipe");
    }
    if kind.is_char_device() || kind.is_block_device() {
        return match file.read(&mut [0]) {
            Ok(0) => Ok(Vec::new()),
            _ => refused("a device"),
        };
    }
    let mut bytes = Vec::new();
    // A file that is larger than memory is an error, no abort.
    bytes.try_reserve_exact(usize::try_from(metadata.len()).unwrap_or(usize::MAX))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The reason to add to HAProxy's words for a file that cannot be read, which have none: `error` is the
/// text of an error of [`read`]. Empty if the system refused the file.
#[must_use]
pub fn why_no_file(error: &str) -> String {
    if error.ends_with(", not a file") { format!(": {error}") } else { String::new() }
}

/// The text of a file.
///
/// # Errors
/// As [`read`], and that it is no UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

/// Writes a file whole or not at all: beside it first, then in its place. Its owner alone reads it.
///
/// # Errors
/// What the system says; what was there stays.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = Path::new(&beside);
    // It may hold secrets.
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(beside)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
    let outcome = written.and_then(|()| std::fs::rename(beside, path));
    if outcome.is_err() {
        // It may not be there.
        let _ = std::fs::remove_file(beside);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_and_nothing_is_nothing() {
        assert!(read("/dev/zero").is_err());
        assert_eq!(read("/dev/null").expect("an empty one"), b"");
        assert!(read("/proc").is_err());
        assert!(!read("/proc/self/stat").expect("a file whose size is not told").is_empty());
        assert!(read_to_string("/nowhere").is_err());
    }
}
