//! Encodes fields to header blocks (RFC 7541 section 6).
//!
//! Strings are not Huffman-coded, because this would cost more than the saved bytes are worth. A field is inserted into the dynamic
//! table when it occurs a second time and was not displaced by other fields in between. Repeated fields (`server`, `content-type`,
//! `user-agent`) then take one or two bytes, and others only cost a lookup in a small table.

use fields::{DynamicTable, FieldName, FieldSink, Indexing, fingerprint, integer, string};

use super::known::{self, COUNT};

/// The initial table size on both sides (RFC 9113 section 6.5.2).
const INITIAL: usize = 4096;
/// The initial and maximum number of slots for recently seen fields, powers of two.
const SEEN_FIRST: usize = 8;
const SEEN_MOST: usize = 64;
/// Not inserted yet.
const NEVER: u32 = u32::MAX;

/// A field that was seen before: its hash, and the number of its table entry.
#[derive(Debug, Clone, Copy)]
struct SeenField {
    hash: u32,
    number: u32,
}

/// The state of one direction of a connection. Memory is allocated when it is first needed.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// Indexed by the low bits of the hash.
    seen: Box<[SeenField]>,
    /// The smallest table size since the last block, if it must be announced.
    smallest: Option<u32>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    /// Frees memory, for a connection that becomes idle. The fields seen so far are forgotten.
    pub fn shrink(&mut self) {
        self.seen = Box::default();
        self.table.shrink();
    }

    /// Creates an encoder for a peer with settings still unknown.
    #[must_use]
    pub fn new() -> Encoder {
        Encoder { table: DynamicTable::new(INITIAL), seen: Box::default(), smallest: None }
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE, limited to `ours`. A change is written at the start of the next block (RFC
    /// 7541 section 4.2).
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

    /// Creates a writer that appends a header block to `out`.
    pub fn writer<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BlockWriter<'a> {
        BlockWriter { encoder: self, out }
    }

    /// Appends one field. The name is written in lower case.
    #[inline]
    pub fn field(&mut self, name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
        self.write(name, value, false, out);
    }

    /// Like [`Encoder::field`], for a field that must not be added to any table, neither here nor at later hops.
    pub fn secret(&mut self, name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
        self.write(name, value, true, out);
    }

    fn write(&mut self, name: FieldName<'_>, value: &[u8], secret: bool, out: &mut Vec<u8>) {
        if self.smallest.is_some() {
            self.write_size_updates(out);
        }
        let index = known::index_of(name);
        if index != 0 {
            let whole = known::whole(name, value, index);
            if whole != 0 {
                return integer::put(whole, 0x7f, 0x80, out);
            }
        }
        let form = if secret { Indexing::Never } else { Indexing::of(name, value) };
        if form != Indexing::Insert {
            return literal(form, index, name, value, out);
        }
        match self.look_up(name, value) {
            TableMatch::Entry(age) => integer::put(COUNT + 1 + age, 0x7f, 0x80, out),
            TableMatch::Twice => {
                literal(Indexing::Insert, index, name, value, out);
                self.insert(name, value);
            }
            TableMatch::Nothing => literal(Indexing::Plain, index, name, value, out),
        }
    }

    /// Writes table size updates: the current size, preceded by a smaller intermediate one.
    #[cold]
    fn write_size_updates(&mut self, out: &mut Vec<u8>) {
        let limit = self.table.limit();
        if let Some(smallest) = self.smallest.take().filter(|smallest| (*smallest as usize) < limit) {
            integer::put(smallest as usize, 0x1f, 0x20, out);
        }
        integer::put(limit, 0x1f, 0x20, out);
    }

    /// Looks the field up in the tables, and records its occurrence.
    #[inline]
    fn look_up(&mut self, name: FieldName<'_>, value: &[u8]) -> TableMatch {
        if value.len() + name.bytes().len() > self.table.limit() / 4 {
            return TableMatch::Nothing;
        }
        let hash = fingerprint(name, value);
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
        let (kind, own) = name.split();
        if self.table.is(age, kind, own, value) { TableMatch::Entry(age) } else { TableMatch::Nothing }
    }

    /// The slot for a field with this hash. Other fields are moved to further slots, as long as slots may be added.
    #[inline]
    fn place_of(&mut self, hash: u32) -> usize {
        loop {
            let count = self.seen.len();
            // A power of two, or zero.
            let at = hash as usize & count.wrapping_sub(1);
            match self.seen.get(at) {
                Some(place) if place.hash == hash || place.hash == 0 || count >= SEEN_MOST => {
                    return at;
                }
                _ => self.grow_seen(),
            }
        }
    }

    /// Doubles the slots. A field that is alone in its slot remains alone, because fields that would collide with more slots
    /// already collided with fewer.
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
        let (kind, own) = name.split();
        if own.iter().any(u8::is_ascii_uppercase) {
            self.table.insert(kind, &own.to_ascii_lowercase(), value, true);
        } else {
            self.table.insert(kind, own, value, true);
        }
    }
}

/// A header block being written, and its encoder.
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
    /// In the table, at this age.
    Entry(usize),
    /// The field was seen before; the caller should insert it.
    Twice,
    Nothing,
}

/// Writes a field with its value, and its name unless `index` refers to it.
#[inline]
fn literal(form: Indexing, index: usize, name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
    let (first, mask) = match form {
        Indexing::Insert => (0x40, 0x3f),
        Indexing::Plain => (0x00, 0x0f),
        Indexing::Never => (0x10, 0x0f),
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
