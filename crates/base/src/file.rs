//! Reads files named in a configuration as a whole. Anything other than a regular file is refused, because reading it could block.
//!
//! Used for files that are read at startup, except the configuration files themselves, which may be pipes.

use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::{raw, seen_files};

/// Reads a file. Its name may have placeholders of bytes ([`crate::raw`]). A device without contents, such as `/dev/null`, is read as
/// an empty file.
///
/// # Errors
/// The system's error. Pipes, sockets and devices with contents are refused, because they might never end.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = raw::path_of(&path);
    seen_files::note(&path);
    // Without this flag, opening a pipe would wait for a writer.
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
    // A file larger than memory causes an error instead of an abort.
    bytes.try_reserve_exact(usize::try_from(metadata.len()).unwrap_or(usize::MAX))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// An explanation to append to HAProxy's message about an unreadable file. `error` is the text of an error of [`read`]. Empty if
/// the error came from the system.
#[must_use]
pub fn why_no_file(error: &str) -> String {
    if error.ends_with(", not a file") { format!(": {error}") } else { String::new() }
}

/// Reads a text file.
///
/// # Errors
/// The errors of [`read`], and invalid UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

/// Writes a file atomically: writes a temporary file and renames it. Only the owner can read the file.
///
/// # Errors
/// The system's error; the old contents remain.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = Path::new(&beside);
    // The file may contain secrets.
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
        // The temporary file may not exist.
        let _ = std::fs::remove_file(beside);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_files_are_refused_and_dev_null_is_empty() {
        assert!(read("/dev/zero").is_err());
        assert_eq!(read("/dev/null").expect("an empty one"), b"");
        assert!(read("/proc").is_err());
        assert!(!read("/proc/self/stat").expect("a file whose size is not told").is_empty());
        assert!(read_to_string("/nowhere").is_err());
    }
}
