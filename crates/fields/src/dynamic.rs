//! The dynamic table (RFC 7541 section 2.3.2, RFC 9204 section 3.2): a queue of entries over a ring buffer.
//!
//! An entry stores its name as a number, so that names are looked up only once; the ring holds values, and names without a number.
//! Used by both directions; memory is allocated with the first entry and never exceeds the table size as defined by the RFCs.

use std::collections::VecDeque;

use crate::NameKind;

/// The size overhead of an entry (RFC 7541 section 4.1).
const OVERHEAD: usize = 32;
/// The initial size of the ring.
const FIRST: usize = 128;

#[derive(Debug, Clone, Copy)]
struct DynamicEntry {
    /// The start of the entry's bytes in the ring. They may wrap around.
    at: u32,
    /// The length of the name, if it has no number.
    name: u32,
    value: u32,
    kind: NameKind,
    /// Whether the value is free of CR, LF and NUL.
    sound: bool,
}

/// A view of an entry.
#[derive(Debug)]
pub struct EntryView<'a> {
    /// The kind of its name.
    pub kind: NameKind,
    /// The bytes of a name without a number.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Whether the value is free of CR, LF and NUL.
    pub sound: bool,
}

impl DynamicEntry {
    fn held(&self) -> usize {
        self.name as usize + self.value as usize
    }

    fn size(&self) -> usize {
        OVERHEAD + self.kind.text().len() + self.held()
    }
}

/// A table of fields, the newest first.
#[derive(Debug, Default)]
pub struct DynamicTable {
    /// Oldest first.
    entries: VecDeque<DynamicEntry>,
    ring: Vec<u8>,
    /// The position for the next bytes.
    end: u32,
    /// The used bytes of the ring.
    used: u32,
    size: u32,
    limit: u32,
    /// The number of entries ever inserted.
    inserted: u32,
}

impl DynamicTable {
    /// Creates a table with this maximum size.
    #[must_use]
    pub fn new(limit: usize) -> DynamicTable {
        DynamicTable { limit: limit as u32, ..DynamicTable::default() }
    }

    /// The maximum size.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit as usize
    }

    /// The number of entries inserted so far, which is the number of the next one.
    #[must_use]
    pub fn inserted(&self) -> u32 {
        self.inserted
    }

    /// The age of the entry with this number, if it is still present.
    #[must_use]
    pub fn age(&self, number: u32) -> Option<usize> {
        let age = self.inserted.wrapping_sub(number).wrapping_sub(1) as usize;
        (age < self.entries.len()).then_some(age)
    }

    /// Sets the maximum size, evicting entries beyond it (RFC 7541 section 4.3).
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit as u32;
        self.evict(0);
        if self.entries.is_empty() && self.ring.len() > limit {
            (self.ring, self.entries) = (Vec::new(), VecDeque::new());
            self.end = 0;
        }
    }

    /// Evicts the oldest entries until `more` bytes fit.
    fn evict(&mut self, more: usize) {
        while self.size as usize + more > self.limit() {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.size -= oldest.size() as u32;
            self.used -= oldest.held() as u32;
        }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of entries, the oldest ones, that the insertion of a field would evict.
    #[must_use]
    pub fn evictions(&self, kind: NameKind, name: &[u8], value: &[u8]) -> usize {
        let needed = OVERHEAD + kind.text().len() + name.len() + value.len();
        let (mut size, mut count) = (self.size as usize, 0);
        while size + needed > self.limit()
            && let Some(entry) = self.entries.get(count)
        {
            size -= entry.size();
            count += 1;
        }
        count
    }

    /// Whether the table can hold the field at all, after the eviction of all entries.
    #[must_use]
    pub fn may_hold(&self, kind: NameKind, name: &[u8], value: &[u8]) -> bool {
        OVERHEAD + kind.text().len() + name.len() + value.len() <= self.limit()
    }

    /// Inserts a field; one larger than the table empties it (RFC 7541 section 4.4). `name` has the bytes of a name without a
    /// number, otherwise it is empty.
    pub fn insert(&mut self, kind: NameKind, name: &[u8], value: &[u8], sound: bool) {
        let entry = DynamicEntry { at: 0, name: name.len() as u32, value: value.len() as u32, kind, sound };
        self.evict(entry.size());
        if entry.size() > self.limit() {
            return;
        }
        let held = entry.held();
        let needed = self.used as usize + held;
        if needed > self.ring.len() {
            self.grow(needed);
        }
        let at = self.end;
        if !name.is_empty() {
            self.put(name);
        }
        self.put(value);
        self.used += held as u32;
        self.size += entry.size() as u32;
        self.inserted = self.inserted.wrapping_add(1);
        self.entries.push_back(DynamicEntry { at, ..entry });
    }

    /// Copies bytes to the end of the ring, wrapping around.
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.end as usize;
        if let Some(room) = self.ring.get_mut(end..end + bytes.len()) {
            room.copy_from_slice(bytes);
            let end = end + bytes.len();
            self.end = if end == self.ring.len() { 0 } else { end as u32 };
        } else {
            self.put_around(bytes);
        }
    }

    #[cold]
    fn put_around(&mut self, bytes: &[u8]) {
        let end = self.end as usize;
        let (before, after) = bytes.split_at(bytes.len().min(self.ring.len() - end));
        self.ring[end..end + before.len()].copy_from_slice(before);
        self.ring[..after.len()].copy_from_slice(after);
        self.end = ((end + bytes.len()) % self.ring.len()) as u32;
    }

    /// Grows the ring to at least `needed` bytes, and linearizes its contents.
    #[cold]
    fn grow(&mut self, needed: usize) {
        self.lay_out(needed.max(self.ring.len() * 2).max(FIRST).min(self.limit().max(needed)));
    }

    /// Frees memory that the entries do not need.
    pub fn shrink(&mut self) {
        if self.ring.len() > self.used as usize {
            self.lay_out(self.used as usize);
            self.entries.shrink_to_fit();
        }
    }

    /// Copies the contents into a new ring of `size` bytes, linearized.
    fn lay_out(&mut self, size: usize) {
        let mut ring = Vec::with_capacity(size);
        for entry in &mut self.entries {
            let (at, held) = (entry.at as usize, entry.held());
            entry.at = ring.len() as u32;
            let before = held.min(self.ring.len() - at);
            ring.extend_from_slice(&self.ring[at..at + before]);
            ring.extend_from_slice(&self.ring[..held - before]);
        }
        self.end = if ring.len() < size { ring.len() as u32 } else { 0 };
        ring.resize(size, 0);
        self.ring = ring;
    }

    /// The entry of age `age`; 0 is the newest. If the entry wraps around the ring's end, it is copied to `scratch`.
    #[inline(always)]
    pub fn get<'a>(&'a self, age: usize, scratch: &'a mut Vec<u8>) -> Option<EntryView<'a>> {
        let entry = self.entries.get(self.entries.len().checked_sub(age + 1)?)?;
        let (at, held) = (entry.at as usize, entry.held());
        let bytes = match self.ring.get(at..at + held) {
            Some(bytes) => bytes,
            None => {
                scratch.clear();
                scratch.extend_from_slice(&self.ring[at..]);
                scratch.extend_from_slice(&self.ring[..at + held - self.ring.len()]);
                &scratch[..]
            }
        };
        let (name, value) = bytes.split_at(entry.name as usize);
        Some(EntryView { kind: entry.kind, name, value, sound: entry.sound })
    }

    /// Whether an entry of that age exists.
    #[must_use]
    pub fn has(&self, age: usize) -> bool {
        age < self.entries.len()
    }

    /// The kind of the name of the entry at `age`. The stored bytes of the name are appended to `out`.
    pub fn name(&self, age: usize, out: &mut Vec<u8>) -> Option<NameKind> {
        let entry = self.entries.get(self.entries.len().checked_sub(age + 1)?)?;
        let (at, length) = (entry.at as usize, entry.name as usize);
        let before = length.min(self.ring.len() - at);
        out.extend_from_slice(&self.ring[at..at + before]);
        out.extend_from_slice(&self.ring[..length - before]);
        Some(entry.kind)
    }

    /// Whether the entry of that age has this value, and this name, compared case-insensitively if it has no number.
    #[must_use]
    pub fn is(&self, age: usize, kind: NameKind, name: &[u8], value: &[u8]) -> bool {
        let Some(index) = self.entries.len().checked_sub(age + 1) else { return false };
        let Some(entry) = self.entries.get(index) else { return false };
        let (at, name_len) = (entry.at as usize, entry.name as usize);
        if entry.kind != kind || (name_len, entry.value as usize) != (name.len(), value.len()) {
            return false;
        }
        if let Some(held) = self.ring.get(at..at + entry.held()) {
            let (own_name, own_value) = held.split_at(name_len);
            return own_value == value && (name.is_empty() || own_name.eq_ignore_ascii_case(name));
        }
        let (before, after) = (&self.ring[at..], &self.ring[..at + entry.held() - self.ring.len()]);
        let own = || before.iter().chain(after);
        own().skip(name_len).eq(value) && own().zip(name).all(|(a, b)| a.eq_ignore_ascii_case(b))
    }

    /// The memory of the table in bytes.
    #[cfg(test)]
    fn memory(&self) -> usize {
        self.ring.capacity() + self.entries.capacity() * size_of::<DynamicEntry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference implementation with a plain list.
    #[derive(Default)]
    struct Plain(Vec<(Vec<u8>, Vec<u8>)>);

    impl Plain {
        fn size(&self) -> usize {
            self.0.iter().map(|(name, value)| 32 + name.len() + value.len()).sum()
        }

        fn insert(&mut self, name: &[u8], value: &[u8], limit: usize) {
            self.0.insert(0, (name.into(), value.into()));
            while self.size() > limit {
                self.0.pop();
            }
        }
    }

    #[test]
    fn the_ring_matches_a_plain_list() {
        let mut random = fastrand::Rng::with_seed(7);
        for limit in [0, 40, 100, 333, 4096] {
            let (mut table, mut plain) = (DynamicTable::new(limit), Plain::default());
            let mut limit = limit;
            for _ in 0..5_000 {
                let value: Vec<u8> = (0..random.usize(..limit / 4 + 8)).map(|_| random.u8(..)).collect();
                let name: &[u8] = if random.bool() { b"date" } else { &value[..value.len() / 3] };
                let kind = NameKind::of(name);
                let own = if kind == NameKind::Other { name } else { b"" };
                table.insert(kind, own, &value, true);
                plain.insert(name, &value, limit);
                if random.usize(..100) == 0 {
                    limit = random.usize(..5_000);
                    table.set_limit(limit);
                    while plain.size() > limit {
                        plain.0.pop();
                    }
                }
                if random.usize(..20) == 0 {
                    table.shrink();
                    assert_eq!(table.ring.len(), table.used as usize, "nothing is held that no entry needs");
                }
                let mut scratch = Vec::new();
                for (age, (name, value)) in plain.0.iter().enumerate() {
                    let EntryView { kind, name: own, value: got, .. } = table.get(age, &mut scratch).unwrap();
                    assert_eq!((kind.name(own).bytes(), got), (&name[..], &value[..]));
                    let own = own.to_vec();
                    if !value.is_empty() {
                        let mut other = value.clone();
                        other[0] ^= 1;
                        assert!(!table.is(age, kind, &own, &other));
                    }
                    let mut copied = Vec::new();
                    assert_eq!(table.name(age, &mut copied), Some(kind));
                    assert_eq!(copied, own);
                    assert!(table.is(age, kind, &own, value));
                }
                assert!(table.get(plain.0.len(), &mut scratch).is_none());
                assert_eq!(table.size as usize, plain.size());
                // Entries are small and their queue doubles its capacity, but the RFC's size per entry is larger.
                assert!(table.memory() <= 3 * limit.max(FIRST) + 5_000, "{}", table.memory());
            }
        }
    }

    #[test]
    fn nothing_is_allocated_before_the_first_entry() {
        assert_eq!(DynamicTable::new(4096).memory(), 0);
    }
}
