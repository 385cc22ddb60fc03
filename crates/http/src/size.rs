//! The size of a head in memory and on the wire.

use crate::head::{Field, Head};
use crate::name::Name;

impl Head {
    /// Frees memory beyond `bytes`, for a head that once held an unusually large message.
    pub fn shrink(&mut self, bytes: usize) {
        self.bytes.shrink_to(bytes);
        self.fields.shrink_to(bytes / 16);
    }

    /// Copies the message of `other`, reusing the memory.
    pub fn copy_from(&mut self, other: &Head) {
        let (mut bytes, mut fields) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.fields));
        bytes.clone_from(&other.bytes);
        fields.clone_from(&other.fields);
        *self = Head { bytes, fields, ..*other };
    }

    /// The heap memory of the head in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    /// Whether the head stays within `limit` bytes if `added` bytes are added and the number of bytes that `removed` returns are
    /// removed.
    #[must_use]
    pub fn fits(&self, limit: usize, added: usize, removed: impl FnOnce(&Head) -> usize) -> bool {
        // The memory is an upper bound of the size, so usually the lines need not be counted.
        self.bytes.len() + added <= limit || self.written_len() + added <= limit.saturating_add(removed(self))
    }

    /// The bytes taken by lines named `name`.
    #[must_use]
    pub fn lines_len(&self, name: &Name) -> usize {
        let line = |index| self.fields.get(index).map_or(0, |f: &Field| f.end as usize - f.name as usize + 2);
        self.indices(name).map(line).sum()
    }

    /// The number of bytes that [`Head::write_to`] would write.
    #[must_use]
    pub fn written_len(&self) -> usize {
        let start = match self.start_line {
            Some(line) => (line.end - line.start) as usize,
            None => self.method().len() + self.plain_target().len() + self.reason().len() + 14,
        };
        let line = |f: &Field| f.end as usize - f.name as usize + 2;
        start + 4 + self.fields.iter().filter(|f| !f.is_dead()).map(line).sum::<usize>()
    }

    /// The size of the head as received; 0 for a head that Weir created.
    #[must_use]
    pub fn received_len(&self) -> usize {
        self.received as usize
    }
}
