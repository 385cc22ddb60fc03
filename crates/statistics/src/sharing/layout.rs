//! The binary layout of the shared counter file: a page with the header and the table of processes, the table of objects, the
//! clearing counts, and for each process a record per object. Numbers are little endian. This module does no I/O; see
//! [`super::file`].

use base::hash::crc32;

/// Changes with the layout, and with the meaning of the values.
pub(super) const VERSION: u32 = 2;

/// The number of values in a record.
pub(super) const VALUES: usize = 48;

/// The maximum number of processes sharing a file.
pub(super) const PROCESSES: usize = 32;

const MAGIC: &[u8; 16] = b"Weir counters\n\x1a\0";

/// The header of a file for `most` objects.
pub(super) fn header(most: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..16].copy_from_slice(MAGIC);
    let numbers = [VERSION, most, PROCESSES as u32, VALUES as u32];
    for (number, place) in numbers.into_iter().zip(bytes[16..].chunks_exact_mut(4)) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let sum = crc32(&bytes[..32]).to_le_bytes();
    bytes[32..36].copy_from_slice(&sum);
    bytes
}

pub(super) const HEADER: usize = 36;

/// Parses a header: returns the number of objects for which the file was created.
///
/// # Errors
/// The bytes are not a header of this version.
pub(super) fn read_header(bytes: &[u8]) -> Result<u32, String> {
    if bytes.len() < HEADER || &bytes[..16] != MAGIC {
        return Err("it contains no Weir counters".to_owned());
    }
    if number(bytes, 32) != crc32(&bytes[..32]) {
        return Err("its header is damaged".to_owned());
    }
    let of_version = [number(bytes, 16), number(bytes, 24), number(bytes, 28)];
    if of_version != [VERSION, PROCESSES as u32, VALUES as u32] {
        return Err(format!("it has version {}, but version {VERSION} is required", of_version[0]));
    }
    Ok(number(bytes, 20))
}

/// The offset of the number of objects ever used.
pub(super) const USED_AT: u64 = 40;

/// The offset of the table of processes.
pub(super) const PROCESSES_AT: u64 = 64;

const OBJECTS_AT: u64 = 4096;

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|own| own.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|own| own.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The offsets in a file for `most` objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileLayout {
    pub(super) most: u32,
}

impl FileLayout {
    pub(super) fn objects(self) -> u64 {
        OBJECTS_AT
    }

    pub(super) fn clearings(self) -> u64 {
        OBJECTS_AT + u64::from(self.most) * ObjectEntry::SIZE as u64
    }

    /// The records of process `index`.
    pub(super) fn records(self, index: usize) -> u64 {
        let of_one = u64::from(self.most) * ObjectRecord::SIZE as u64;
        self.clearings() + u64::from(self.most) * 8 + of_one * index as u64
    }

    pub(super) fn end(self) -> u64 {
        self.records(PROCESSES)
    }
}

/// The state of a process slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Holder {
    /// Never used.
    #[default]
    Nobody,
    /// Held by a process.
    Process(Identity),
    /// The slot was left by a process that ended. Its counters remain.
    Gone,
}

/// Identifies a process, even if its PID is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: u32,
    /// The start time, in ticks since boot.
    pub(super) started: u64,
    /// The PID namespace.
    pub(super) namespace: u64,
    /// The last sign of life, in seconds of wall clock time.
    pub(super) seen: u64,
}

impl Holder {
    pub(super) const SIZE: usize = 40;

    pub(super) fn write(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        match self {
            Self::Nobody => return bytes,
            Self::Gone => bytes[0] = 2,
            Self::Process(own) => {
                bytes[0] = 1;
                bytes[4..8].copy_from_slice(&own.pid.to_le_bytes());
                bytes[8..16].copy_from_slice(&own.started.to_le_bytes());
                bytes[16..24].copy_from_slice(&own.namespace.to_le_bytes());
                bytes[24..32].copy_from_slice(&own.seen.to_le_bytes());
            }
        }
        let sum = crc32(&bytes[..32]).to_le_bytes();
        bytes[32..36].copy_from_slice(&sum);
        bytes
    }

    /// Parses an identity; `None` if it is damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(Self::Nobody);
        }
        match bytes[0] {
            _ if number(bytes, 32) != crc32(&bytes[..32]) => None,
            1 => Some(Self::Process(Identity {
                pid: number(bytes, 4),
                started: long(bytes, 8),
                namespace: long(bytes, 16),
                seen: long(bytes, 24),
            })),
            2 => Some(Self::Gone),
            _ => None,
        }
    }
}

/// The name of an object, which identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ObjectEntry {
    pub(super) kind: u8,
    pub(super) guid: Box<str>,
}

impl ObjectEntry {
    pub(super) const SIZE: usize = 136;

    /// The maximum length of an identifier.
    pub(super) const LONGEST: usize = 127;

    pub(super) fn write(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let guid = self.guid.as_bytes();
        let length = guid.len().min(Self::LONGEST);
        (bytes[4], bytes[5]) = (self.kind, length as u8);
        bytes[8..8 + length].copy_from_slice(&guid[..length]);
        let sum = crc32(&bytes[4..]).to_le_bytes();
        bytes[..4].copy_from_slice(&sum);
        bytes
    }

    /// Parses an object; `None` if it is damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, length) = (bytes[4], usize::from(bytes[5]));
        let sound = number(bytes, 0) == crc32(&bytes[4..]) && length <= Self::LONGEST;
        let guid = std::str::from_utf8(bytes.get(8..8 + length)?).ok()?;
        sound.then(|| Self { kind, guid: guid.into() })
    }
}

/// The counters of one process for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectRecord {
    /// The clearing count at that time. Values from before an object was cleared are invalid.
    pub(super) clearings: u64,
    /// Whether the process has this object.
    pub(super) in_use: bool,
    pub(super) values: [u64; VALUES],
}

impl ObjectRecord {
    pub(super) const SIZE: usize = 16 + 8 * VALUES;

    pub(super) fn write(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.clearings.to_le_bytes());
        bytes[8..12].copy_from_slice(&u32::from(self.in_use).to_le_bytes());
        bytes[12..16].fill(0);
        for (value, place) in self.values.iter().zip(bytes[16..].chunks_exact_mut(8)) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        let sum = crc32(&bytes[..Self::SIZE]).to_le_bytes();
        bytes[12..16].copy_from_slice(&sum);
    }

    /// Parses a record; `None` if none was ever written, or it is damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let stored = number(bytes, 12);
        let mut summed = [0; Self::SIZE];
        summed.copy_from_slice(bytes.get(..Self::SIZE)?);
        summed[12..16].fill(0);
        if stored != crc32(&summed) {
            return None;
        }
        let mut values = [0; VALUES];
        values.iter_mut().enumerate().for_each(|(at, value)| *value = long(bytes, 16 + 8 * at));
        Some(Self { clearings: long(bytes, 0), in_use: number(bytes, 8) & 1 != 0, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_round_trip_and_damage_is_detected() {
        let header = header(2048);
        assert_eq!(read_header(&header), Ok(2048));
        for at in 0..HEADER {
            let mut damaged = header;
            damaged[at] ^= 1;
            assert!(read_header(&damaged).is_err(), "{at}");
        }
        let holder = Holder::Process(Identity { pid: 7, started: 1 << 40, namespace: 3, seen: 1 });
        for holder in [holder, Holder::Gone, Holder::Nobody] {
            assert_eq!(Holder::read(&holder.write()), Some(holder));
        }
        let mut damaged = holder.write();
        damaged[5] ^= 4;
        assert_eq!(Holder::read(&damaged), None);
        let entry = ObjectEntry { kind: 4, guid: "a:b-c".into() };
        assert_eq!(ObjectEntry::read(&entry.write()), Some(entry.clone()));
        let mut damaged = entry.write();
        damaged[9] ^= 4;
        assert_eq!(ObjectEntry::read(&damaged), None);
        let record = ObjectRecord { clearings: 2, in_use: true, values: [u64::MAX; VALUES] };
        let mut bytes = [0; ObjectRecord::SIZE];
        record.write(&mut bytes);
        assert_eq!(ObjectRecord::read(&bytes), Some(record));
        bytes[ObjectRecord::SIZE - 1] ^= 1;
        assert_eq!(ObjectRecord::read(&bytes), None);
    }

    #[test]
    fn the_parts_do_not_overlap() {
        let places = FileLayout { most: 3 };
        assert!(PROCESSES_AT + (PROCESSES * Holder::SIZE) as u64 <= places.objects());
        assert_eq!(places.clearings() - places.objects(), 3 * ObjectEntry::SIZE as u64);
        assert_eq!(places.records(0) - places.clearings(), 24);
        assert_eq!(places.end() - places.records(PROCESSES - 1), 3 * ObjectRecord::SIZE as u64);
    }
}
