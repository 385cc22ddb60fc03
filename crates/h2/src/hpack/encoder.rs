//! Fields to header blocks (RFC 7541 section 6).
//!
//! Strings are written plainly: the Huffman code would cost more than what its bytes save. A field
//! goes into the dynamic table when it comes a second time and was not crowded out by others since:
//! what repeats (`server`, `content-type`, `user-agent`) is then one byte or two, and what does not
//! costs a look into a small table.

use fields::{FieldName, FieldSink, NameKind, Pseudo, integer, string};
use http::KnownName;

use super::dynamic::DynamicTable;
use super::known::{self, COUNT};

/// The size that both sides begin with (RFC 9113 section 6.5.2).
const INITIAL: usize = 4096;
/// Places for fields that were seen, at first and at most: powers of two.
const SEEN_FIRST: usize = 8;
const SEEN_MOST: usize = 64;
/// Cookies shorter than this could be guessed one by one by somebody who sees sizes (RFC 7541
/// section 7.1.3).
const SHORT_COOKIE: usize = 20;
/// Nothing inserted yet.
const NEVER: u32 = u32::MAX;

/// A field that was seen: its hash, and the number of its entry in the table.
#[derive(Debug, Clone, Copy)]
struct SeenField {
    hash: u32,
    number: u32,
}

/// What one direction of a connection remembers; nothing is allocated before it is needed.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// By the last bits of the hash.
    seen: Box<[SeenField]>,
    /// The smallest size since the last block, where it has to be told.
    smallest: Option<u32>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

/// How a field that no table has is written: the first byte, and the bits of it that hold an index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LiteralForm {
    Inserted,
    Plain,
    Never,
}

impl Encoder {
    /// Gives memory back: for a connection that becomes idle. Fields that were seen are new again.
    pub fn shrink(&mut self) {
        self.seen = Box::default();
        self.table.shrink();
    }

    /// An encoder for a peer of which no settings are known yet.
    #[must_use]
    pub fn new() -> Encoder {
        Encoder { table: DynamicTable::new(INITIAL), seen: Box::default(), smallest: None }
    }

    /// Takes the peer's SETTINGS_HEADER_TABLE_SIZE and the most that we want to use of it. A change
    /// is written at the start of the next block (RFC 7541 section 4.2).
    pub fn set_limit(&mut self, peer_max: u32, ours: u32) {
        let limit = peer_max.min(ours) as usize;
        if limit == self.table.limit() {
            return;
        }
        self.smallest = Some(self.smallest.unwrap_or(u32::MAX).min(limit as u32));
        self.table.set_limit(limit);
        if limit == 0 {
            self.seen = Box::default();
        }
    }

    /// A writer that appends a header block to `out`.
    pub fn writer<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BlockWriter<'a> {
        BlockWriter { encoder: self, out }
    }

    /// Appends one field. The name is written in lower case.
    #[inline]
    pub fn field(&mut self, name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
        self.write(name, value, false, out);
    }

    /// As [`Encoder::field`], for one that no table may learn, here or further on.
    pub fn secret(&mut self, name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
        self.write(name, value, true, out);
    }

    fn write(&mut self, name: FieldName<'_>, value: &[u8], secret: bool, out: &mut Vec<u8>) {
        if self.smallest.is_some() {
            self.tell_size(out);
        }
        let index = known::index_of(name);
        if index != 0 {
            let whole = known::whole(name, value, index);
            if whole != 0 {
                return integer::put(whole, 0x7f, 0x80, out);
            }
        }
        let form = if secret { LiteralForm::Never } else { form_of(name, value) };
        if form != LiteralForm::Inserted {
            return literal(form, index, name, value, out);
        }
        match self.look_up(name, value) {
            TableMatch::Entry(age) => integer::put(COUNT + 1 + age, 0x7f, 0x80, out),
            TableMatch::Twice => {
                literal(LiteralForm::Inserted, index, name, value, out);
                self.insert(name, value);
            }
            TableMatch::Nothing => literal(LiteralForm::Plain, index, name, value, out),
        }
    }

    /// Tells the table's size, and before it a smaller one that it had meanwhile.
    #[cold]
    fn tell_size(&mut self, out: &mut Vec<u8>) {
        let limit = self.table.limit();
        if let Some(smallest) = self.smallest.take().filter(|smallest| (*smallest as usize) < limit) {
            integer::put(smallest as usize, 0x1f, 0x20, out);
        }
        integer::put(limit, 0x1f, 0x20, out);
    }

    /// Looks whether the table has the field, and remembers that it came.
    #[inline]
    fn look_up(&mut self, name: FieldName<'_>, value: &[u8]) -> TableMatch {
        if value.len() + name.bytes().len() > self.table.limit() / 4 {
            return TableMatch::Nothing;
        }
        let hash = hash(name, value);
        let at = self.place_of(hash);
        let place = &mut self.seen[at];
        if place.hash != hash {
            *place = SeenField { hash, number: NEVER };
            return TableMatch::Nothing;
        }
        if place.number == NEVER {
            place.number = self.table.inserted();
            return TableMatch::Twice;
        }
        let Some(age) = self.table.age(place.number) else {
            place.number = self.table.inserted();
            return TableMatch::Twice;
        };
        let (kind, own) = kind_of(name);
        if self.table.is(age, kind, own, value) { TableMatch::Entry(age) } else { TableMatch::Nothing }
    }

    /// The place of a field with this hash, made free of another field as long as there may be more
    /// places.
    #[inline]
    fn place_of(&mut self, hash: u32) -> usize {
        loop {
            let count = self.seen.len();
            // A power of two, or none.
            let at = hash as usize & count.wrapping_sub(1);
            match self.seen.get(at) {
                Some(place) if place.hash == hash || place.hash == 0 || count >= SEEN_MOST => {
                    return at;
                }
                _ => self.grow_seen(),
            }
        }
    }

    /// Makes twice as many places. Fields that have places of their own keep them: those that would
    /// share one among more had to share one among fewer.
    #[cold]
    fn grow_seen(&mut self) {
        let count = (self.seen.len() * 2).max(SEEN_FIRST);
        let mut seen = vec![SeenField { hash: 0, number: NEVER }; count];
        for place in &self.seen {
            seen[place.hash as usize % count] = *place;
        }
        self.seen = seen.into();
    }

    fn insert(&mut self, name: FieldName<'_>, value: &[u8]) {
        let (kind, own) = kind_of(name);
        if own.iter().any(u8::is_ascii_uppercase) {
            self.table.insert(kind, &own.to_ascii_lowercase(), value, true);
        } else {
            self.table.insert(kind, own, value, true);
        }
    }
}

/// A header block that is being written, and its encoder.
#[derive(Debug)]
pub struct BlockWriter<'a> {
    encoder: &'a mut Encoder,
    out: &'a mut Vec<u8>,
}

impl FieldSink for BlockWriter<'_> {
    #[inline]
    fn field(&mut self, name: FieldName<'_>, value: &[u8]) {
        self.encoder.field(name, value, self.out);
    }

    fn secret(&mut self, name: FieldName<'_>, value: &[u8]) {
        self.encoder.secret(name, value, self.out);
    }
}

enum TableMatch {
    /// The table has it, so many entries back.
    Entry(usize),
    /// It came before: it is worth an entry, which the caller makes.
    Twice,
    Nothing,
}

fn kind_of(name: FieldName<'_>) -> (NameKind, &[u8]) {
    match name {
        FieldName::Pseudo(pseudo) => (NameKind::Pseudo(pseudo), b""),
        FieldName::Known(known) => (NameKind::Known(known), b""),
        FieldName::Other(name) => (NameKind::Other, name),
    }
}

/// What goes into no table: secrets, and what is nearly always another value.
#[inline(always)]
fn form_of(name: FieldName<'_>, value: &[u8]) -> LiteralForm {
    match name {
        FieldName::Known(KnownName::Authorization | KnownName::ProxyAuthorization | KnownName::SetCookie) => {
            LiteralForm::Never
        }
        FieldName::Known(KnownName::Cookie) if value.len() < SHORT_COOKIE => LiteralForm::Never,
        FieldName::Known(
            KnownName::Cookie
            | KnownName::ContentLength
            | KnownName::ContentRange
            | KnownName::Etag
            | KnownName::IfModifiedSince
            | KnownName::IfNoneMatch
            | KnownName::LastModified
            | KnownName::Location
            | KnownName::XRequestId
            | KnownName::XUniqueId,
        )
        | FieldName::Pseudo(Pseudo::Path) => LiteralForm::Plain,
        _ => LiteralForm::Inserted,
    }
}

/// A field with its value, and its name unless `index` says it.
#[inline]
fn literal(form: LiteralForm, index: usize, name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
    let (first, mask) = match form {
        LiteralForm::Inserted => (0x40, 0x3f),
        LiteralForm::Plain => (0x00, 0x0f),
        LiteralForm::Never => (0x10, 0x0f),
    };
    integer::put(index, mask, first, out);
    if index == 0 {
        let bytes = name.bytes();
        string::put(bytes, 0x7f, 0, out);
        if matches!(name, FieldName::Other(_)) {
            let start = out.len() - bytes.len();
            out[start..].make_ascii_lowercase();
        }
    }
    string::put(value, 0x7f, 0, out);
}

/// A hash of name and value: of their lengths and their first and last bytes. Fields of the same
/// hash are compared.
#[inline(always)]
fn hash(name: FieldName<'_>, value: &[u8]) -> u32 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let named = match name {
        FieldName::Pseudo(pseudo) => 0x100 + pseudo as u64,
        FieldName::Known(known) => known as u64,
        FieldName::Other(name) => ends(name) | 0x2020_2020_2020_2020,
    };
    let mixed = (named.wrapping_mul(MIX) ^ ends(value)).wrapping_add(value.len() as u64).wrapping_mul(MIX);
    // Zero is the hash of an empty place.
    ((mixed >> 32) as u32).max(1)
}

/// The first and last eight bytes, mixed.
#[inline(always)]
fn ends(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29),
        _ => bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    }
}
