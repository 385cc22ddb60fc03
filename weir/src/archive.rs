//! `-dA`: writes the program and its libraries to a tar archive (POSIX.1-2017, pax, "ustar Interchange Format"), for reading a core
//! file on another machine.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::system;

/// The size of an archive record in bytes.
const RECORD: usize = 512;

/// Writes the object files loaded by the process to an archive at `path`.
///
/// # Errors
/// Returns a message for the operator if the archive cannot be written.
pub(crate) fn write(path: &Path) -> Result<(), String> {
    let cannot = |error: io::Error| format!("-dA: cannot write {}: {error}", path.display());
    let mut archive = BufWriter::new(File::create(path).map_err(cannot)?);
    for object in system::objects() {
        // A file may be mapped although it was deleted.
        let Ok(bytes) = std::fs::read(&object.path) else { continue };
        add(&mut archive, &object.path, &bytes).map_err(cannot)?;
    }
    archive.write_all(&[0; 2 * RECORD]).and_then(|()| archive.flush()).map_err(cannot)
}

/// Adds a file. If the path exceeds the 100 bytes of its field, its directories go to the prefix; if it exceeds both, its end is
/// kept.
fn add(archive: &mut impl Write, path: &str, bytes: &[u8]) -> io::Result<()> {
    let name = path.trim_start_matches('/').as_bytes();
    let split =
        if name.len() <= 100 { None } else { (name.len() - 101..name.len()).find(|at| name[*at] == b'/') };
    let (prefix, name) = split.map_or((&[][..], name), |at| (&name[..at], &name[at + 1..]));
    let prefix = &prefix[prefix.len().saturating_sub(155)..];
    let name = &name[name.len().saturating_sub(100)..];
    let mut header = [0; RECORD];
    let mut put = |at: usize, field: &[u8]| header[at..at + field.len()].copy_from_slice(field);
    put(0, name);
    put(100, b"0000755\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", bytes.len()).as_bytes());
    put(136, b"00000000000\0");
    // The checksum counts its own field as blanks.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    put(345, prefix);
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.write_all(&header)?;
    archive.write_all(bytes)?;
    archive.write_all(&[0; RECORD][..bytes.len().next_multiple_of(RECORD) - bytes.len()])
}
