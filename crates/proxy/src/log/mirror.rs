//! `backing-file` of a ring (configuration manual, 12.5): a file of the ring's size that contains its latest messages.
//!
//! Messages are stored one per line, from the start of the file to its end, and then overwrite the oldest ones from the start. A
//! line that does not fit at the end of the file continues at its start. The file of an earlier process is kept with the suffix
//! `.bak`.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use plan::Plan;
use state::ring::Mirror;

/// The backing file of one ring.
struct Backing {
    file: File,
    size: u64,
    /// The offset of the next message.
    at: u64,
    line: Vec<u8>,
}

/// Opens the backing files of all rings that have one.
///
/// # Errors
/// A message for the operator if a file cannot be created.
pub fn open(plan: &Plan) -> Result<(), String> {
    for settings in plan.proxies.iter().filter_map(|proxy| proxy.ring.as_ref()) {
        let Some(path) = &settings.backing_file else { continue };
        let ring = &settings.ring;
        let backing = Backing::open(path, ring.size() as u64).map_err(|error| {
            format!("ring '{}': cannot make the backing file '{}': {error}", ring.name, path.display())
        })?;
        ring.set_mirror(Box::new(backing));
    }
    Ok(())
}

impl Backing {
    fn open(path: &Path, size: u64) -> std::io::Result<Self> {
        if fs::metadata(path).is_ok_and(|file| file.len() > 0) {
            let mut kept = path.as_os_str().to_owned();
            kept.push(".bak");
            // If the directory is not writable, the earlier file is not kept, as the manual documents.
            let _ = fs::rename(path, PathBuf::from(kept));
        }
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
        file.set_len(size)?;
        Ok(Self { file, size, at: 0, line: Vec::new() })
    }
}

impl Mirror for Backing {
    fn write(&mut self, message: &[u8]) {
        self.line.clear();
        self.line.extend_from_slice(message);
        self.line.push(b'\n');
        let room = (self.size - self.at).min(self.line.len() as u64) as usize;
        let (now, over) = self.line.split_at(room);
        // If the file system is full, this message is missing in the file, but not in the ring.
        let _ = self.file.write_all_at(now, self.at);
        let _ = self.file.write_all_at(over, 0);
        self.at = (self.at + self.line.len() as u64) % self.size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_latest_messages_and_a_backup_is_kept() {
        let path = scratch::Scratch::new("backing").file("ring");
        for text in ["first", "second"] {
            let mut backing = Backing::open(&path, 16).expect("a file in the temporary directory");
            backing.write(text.as_bytes());
            backing.write(b"0123456789");
        }
        let kept = path.with_extension("bak");
        assert_eq!(fs::read(&path).expect("the file"), b"9\ncond\n012345678");
        assert!(fs::read(&kept).expect("the copy").starts_with(b"\nirst\n0123456789"));
    }
}
