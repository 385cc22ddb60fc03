//! What a head takes: memory, which is given back or copied here, and bytes on the wire.

use crate::head::{Field, Head};
use crate::name::Name;

impl Head {
    /// Gives back the memory beyond `bytes`: for a head that once held an unusually large message.
    pub fn shrink(&mut self, bytes: usize) {
        self.bytes.shrink_to(bytes);
        self.fields.shrink_to(bytes / 16);
    }

    /// Makes it the same message as `other`, in the memory that it has.
    pub fn copy_from(&mut self, other: &Head) {
        let (mut bytes, mut fields) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.fields));
        bytes.clone_from(&other.bytes);
        fields.clone_from(&other.fields);
        *self = Head { bytes, fields, ..*other };
    }

    /// Bytes of memory that it takes beside itself.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    /// Whether `added` bytes more, and as many fewer as `removed` says, leave the head within
    /// `limit` bytes.
    #[must_use]
    pub fn fits(&self, limit: usize, added: usize, removed: impl FnOnce(&Head) -> usize) -> bool {
        // Memory only grows: mostly it answers without a look at the lines.
        self.bytes.len() + added <= limit || self.written_len() + added <= limit.saturating_add(removed(self))
    }

    /// Bytes that the lines named `name` take.
    #[must_use]
    pub fn lines_len(&self, name: &Name) -> usize {
        let line = |index| self.fields.get(index).map_or(0, |f: &Field| f.end as usize - f.name as usize + 2);
        self.indices(name).map(line).sum()
    }

    /// Bytes that [`Head::write_to`] writes now.
    #[must_use]
    pub fn written_len(&self) -> usize {
        let start = match self.start_line {
            Some(line) => (line.end - line.start) as usize,
            None => self.method().len() + self.plain_target().len() + self.reason().len() + 14,
        };
        let line = |f: &Field| f.end as usize - f.name as usize + 2;
        start + 4 + self.fields.iter().filter(|f| !f.is_dead()).map(line).sum::<usize>()
    }

    /// Bytes that the head took when it was received; 0 for one made here.
    #[must_use]
    pub fn received_len(&self) -> usize {
        self.received as usize
    }
}
