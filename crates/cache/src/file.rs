//! The file format of a stored response (`disk`). This module does no I/O: it converts bytes. The content of a file is not used
//! before its checksum has been verified.
//!
//! A file consists of a header of [`HEADER`] bytes, the description of the response, and its body in blocks of [`BLOCK`] bytes, of
//! which the last may be shorter. Each is followed by its checksum (XXH3, 64 bits, seeded with the file's number and, for a block,
//! the block's number, so that they cannot be mixed up). Numbers are little-endian. Times are wall-clock times, because the
//! monotonic clock restarts with the machine.

use http::Head;
use twox_hash::XxHash3_64;

use crate::object::Object;
use crate::times::FreshnessTimes;
use crate::vary::Variant;

/// Size of the header.
pub const HEADER: usize = 48;

/// Size of a block of the body, without its checksum.
pub const BLOCK: usize = 64 * 1024;

/// Size of a checksum.
pub const SUM: usize = 8;

const MAGIC: &[u8; 8] = b"weircach";

const VERSION: u32 = 1;

/// Maximum size of a description.
const MOST: u32 = 4 << 20;

/// A file with a time further in the future than this is invalid, in ms.
const SKEW: i64 = 10_000;

/// The time on both clocks, in ms. If the wall-clock time were rounded to seconds, a stale response could become usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The monotonic clock.
    pub ms: u64,
    /// The wall-clock time since 1970.
    pub wall_ms: i64,
}

/// A file is invalid, and will be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrong;

/// The content of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// The number of the file, as in its name.
    pub number: u64,
    /// Size of the description.
    pub described: u32,
    /// Size of the body.
    pub body: u64,
    sum: u64,
}

impl FileHeader {
    /// Returns the size of the whole file.
    pub fn size(&self) -> u64 {
        self.blocks_at() + self.body + self.blocks() * SUM as u64
    }

    /// Returns the number of blocks in the body.
    pub fn blocks(&self) -> u64 {
        self.body.div_ceil(BLOCK as u64)
    }

    /// Returns the offset of the first block.
    pub fn blocks_at(&self) -> u64 {
        HEADER as u64 + u64::from(self.described)
    }

    /// Parses the beginning of a file.
    ///
    /// # Errors
    /// The header is invalid.
    pub fn read(bytes: &[u8]) -> Result<Self, Wrong> {
        let mut rest = bytes.get(..HEADER).ok_or(Wrong)?;
        let own = &rest[..HEADER - SUM];
        let sum = XxHash3_64::oneshot(own);
        if take(&mut rest, 8)? != MAGIC || u32::from_le_bytes(array(&mut rest)?) != VERSION {
            return Err(Wrong);
        }
        let header = Self {
            described: u32::from_le_bytes(array(&mut rest)?),
            body: u64::from_le_bytes(array(&mut rest)?),
            number: u64::from_le_bytes(array(&mut rest)?),
            sum: u64::from_le_bytes(array(&mut rest)?),
        };
        let is_sound = u64::from_le_bytes(array(&mut rest)?) == sum;
        // No file is long enough for its length to overflow.
        (is_sound && header.described <= MOST && header.body < 1 << 56).then_some(header).ok_or(Wrong)
    }
}

/// The description of a response in a file.
#[derive(Debug, Clone)]
pub struct Described {
    pub(crate) key: Box<[u8]>,
    pub(crate) variant: Variant,
    pub(crate) head: Head,
    pub(crate) times: FreshnessTimes,
}

/// Whether a field is left out of a description, because the file itself has the length of the body.
fn is_left_out(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length")
}

/// Returns the size of the file for `object`.
pub(crate) fn size(object: &Object) -> u64 {
    size_of(&object.key, &object.variant, &object.head, object.body.len() as u64)
}

/// Returns the size of a file.
pub(crate) fn size_of(key: &[u8], variant: &Variant, head: &Head, body: u64) -> u64 {
    let option = |bytes: Option<usize>| 1 + bytes.map_or(0, |length| 4 + length);
    let Variant { codings, referer, origin } = variant;
    let variant = option(codings.map(|_| 2))
        + option(referer.as_ref().map(|own| own.len()))
        + option(origin.as_ref().map(|own| own.len()));
    let fields = head.fields().filter(|(name, _)| !is_left_out(name));
    let fields: usize = fields.map(|(name, value)| 8 + name.len() + value.len()).sum();
    let described = 4 + key.len() + variant + 4 + 8 + 4 * 8 + 2 + 4 + head.reason().len() + fields;
    HEADER as u64 + described as u64 + body + body.div_ceil(BLOCK as u64) * SUM as u64
}

/// Returns the header of cache file `number`, followed by the description of `object`.
pub fn describe(object: &Object, number: u64, now: Clocks) -> Vec<u8> {
    let described = described(&object.key, &object.variant, &object.head, &object.times, now);
    let mut text = header(number, object.body.len() as u64, &described);
    text.extend_from_slice(&described);
    text
}

pub(crate) fn described(
    key: &[u8],
    variant: &Variant,
    head: &Head,
    times: &FreshnessTimes,
    now: Clocks,
) -> Vec<u8> {
    let mut text = Vec::with_capacity(head.written_len() + key.len() + 128);
    put(&mut text, key);
    let Variant { codings, referer, origin } = variant;
    put_option(&mut text, codings.map(u16::to_le_bytes).as_ref().map(|codings| &codings[..]));
    put_option(&mut text, referer.as_deref());
    put_option(&mut text, origin.as_deref());
    text.extend_from_slice(&times.age.to_le_bytes());
    text.extend_from_slice(&times.modified.to_le_bytes());
    for ms in [times.stored_ms, times.expires_ms, times.revalidate_ms, times.error_ms] {
        text.extend_from_slice(&(now.wall_ms + ms as i64 - now.ms as i64).to_le_bytes());
    }
    text.extend_from_slice(&head.status().to_le_bytes());
    put(&mut text, head.reason());
    for (name, value) in head.fields().filter(|(name, _)| !is_left_out(name)) {
        put(&mut text, name);
        put(&mut text, value);
    }
    text
}

/// Returns the header, [`HEADER`] bytes long, for a description and a body of `body` bytes.
pub fn header(number: u64, body: u64, described: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&(described.len() as u32).to_le_bytes());
    header.extend_from_slice(&body.to_le_bytes());
    header.extend_from_slice(&number.to_le_bytes());
    header.extend_from_slice(&XxHash3_64::oneshot_with_seed(number, described).to_le_bytes());
    header.extend_from_slice(&XxHash3_64::oneshot(&header).to_le_bytes());
    header
}

/// Parses the description after a header.
///
/// # Errors
/// The description is corrupt.
pub fn read(header: &FileHeader, bytes: &[u8], now: Clocks) -> Result<Described, Wrong> {
    if bytes.len() as u64 != u64::from(header.described)
        || XxHash3_64::oneshot_with_seed(header.number, bytes) != header.sum
    {
        return Err(Wrong);
    }
    let mut rest = bytes;
    let key: Box<[u8]> = get(&mut rest)?.into();
    let codings = match get_option(&mut rest)? {
        Some(codings) => Some(u16::from_le_bytes(codings.try_into().map_err(|_| Wrong)?)),
        None => None,
    };
    let referer = get_option(&mut rest)?.map(Into::into);
    let origin = get_option(&mut rest)?.map(Into::into);
    let age = u32::from_le_bytes(array(&mut rest)?);
    let modified = i64::from_le_bytes(array(&mut rest)?);
    let mut instants = [0; 4];
    for instant in &mut instants {
        *instant = i64::from_le_bytes(array(&mut rest)?);
    }
    let times = times(age, modified, instants, now)?;
    let status = u16::from_le_bytes(array(&mut rest)?);
    if !(200..=599).contains(&status) {
        return Err(Wrong);
    }
    let mut head = Head::new();
    head.start_response(status, Some(get(&mut rest)?));
    while !rest.is_empty() {
        let (name, value) = (get(&mut rest)?, get(&mut rest)?);
        if is_left_out(name) || !head.append(name, value) {
            return Err(Wrong);
        }
    }
    head.append(b"content-length", header.body.to_string().as_bytes());
    head.shrink(0);
    Ok(Described { key, variant: Variant { codings, referer, origin }, head, times })
}

/// Converts wall-clock times to the monotonic clock.
fn times(age: u32, modified: i64, instants: [i64; 4], now: Clocks) -> Result<FreshnessTimes, Wrong> {
    let wall = now.wall_ms;
    let since = |instant: i64| instant.checked_sub(wall).and_then(|since| since.checked_add(now.ms as i64));
    let [stored, expires, revalidate, error] = instants;
    if stored > wall.saturating_add(SKEW) {
        return Err(Wrong);
    }
    let stored = since(stored).ok_or(Wrong)?;
    // If the response is older than the start of the clock, the difference is added to its age.
    let before = u32::try_from((-stored).max(0) / 1000).map_err(|_| Wrong)?;
    let ms = |instant: i64| since(instant).map(|ms| ms.max(0) as u64).ok_or(Wrong);
    Ok(FreshnessTimes {
        age: age.checked_add(before).ok_or(Wrong)?,
        modified,
        stored_ms: stored.max(0) as u64,
        expires_ms: ms(expires)?,
        revalidate_ms: ms(revalidate)?,
        error_ms: ms(error)?,
    })
}

/// Returns the checksum of a block of the file with that number.
pub fn sum(number: u64, block: u64, data: &[u8]) -> [u8; SUM] {
    XxHash3_64::oneshot_with_seed(number ^ block.rotate_left(32), data).to_le_bytes()
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    // No part of a head is this long.
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_option(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.push(bytes.is_some().into());
    if let Some(bytes) = bytes {
        put(out, bytes);
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Wrong> {
    let (taken, left) = rest.split_at_checked(count).ok_or(Wrong)?;
    *rest = left;
    Ok(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Wrong> {
    take(rest, N)?.try_into().map_err(|_| Wrong)
}

fn get<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Wrong> {
    let length = u32::from_le_bytes(array(rest)?);
    take(rest, length as usize)
}

fn get_option<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Wrong> {
    match array(rest)? {
        [0] => Ok(None),
        [1] => get(rest).map(Some),
        [_] => Err(Wrong),
    }
}
