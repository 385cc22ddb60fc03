//! The variables of one owner: numbered slots, with their strings in a common buffer.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;

use crate::limits::{ENTRY, count_all, limits};
use crate::value::{Scratch, Value};

/// The values of one scope. Setting takes a shared reference, because converters set variables while the request is borrowed
/// (`set-var()`).
#[derive(Debug, Default)]
pub struct Slots {
    own: RefCell<Own>,
    /// The total size, which is only counted while limits are in force.
    held: Cell<usize>,
}

/// Slots and their strings. The memory is reused for the next request.
#[derive(Debug, Default)]
struct Own {
    slots: Vec<VariableSlot>,
    /// The strings of all slots, each preceded by its length and capacity. Replaced strings leave gaps.
    texts: Vec<u8>,
    /// The number of bytes in `texts` to which no slot refers.
    waste: usize,
}

/// A variable in eight bytes. With thousands of variables, the cost of an access depends on the cache lines that it touches. Three
/// bits are the kind, the others the value or its offset in the texts. If all bits are zero, the variable is not set.
#[derive(Clone, Copy, Debug, Default)]
struct VariableSlot(u64);

/// The contents of a slot.
enum Content {
    Unset,
    Bool(bool),
    Int(i64),
    Ip4(Ipv4Addr),
    /// Bytes at an offset in the texts.
    At(SlotKind, usize),
}

/// The type of a slot's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SlotKind {
    Str = 4,
    Bin = 5,
    Method = 6,
    /// A 16-byte IPv6 address, or an 8-byte number that does not fit into a slot.
    Wide = 7,
}

impl VariableSlot {
    #[inline]
    fn content(self) -> Content {
        let rest = self.0 >> 3;
        match self.0 & 7 {
            0 => Content::Unset,
            1 => Content::Bool(rest != 0),
            2 => Content::Int(self.0.cast_signed() >> 3),
            3 => Content::Ip4(Ipv4Addr::from_bits(rest as u32)),
            4 => Content::At(SlotKind::Str, rest as usize),
            5 => Content::At(SlotKind::Bin, rest as usize),
            6 => Content::At(SlotKind::Method, rest as usize),
            _ => Content::At(SlotKind::Wide, rest as usize),
        }
    }

    fn at(kind: SlotKind, start: usize) -> Self {
        Self((start as u64) << 3 | kind as u64)
    }

    /// A value that fits into the slot itself.
    #[inline]
    fn of(value: &Value<'_>) -> Option<Self> {
        Some(Self(match value {
            Value::Bool(value) => u64::from(*value) << 3 | 1,
            Value::Int(value) if *value << 3 >> 3 == *value => value.cast_unsigned() << 3 | 2,
            Value::Ip4(address) => u64::from(address.to_bits()) << 3 | 3,
            _ => return None,
        }))
    }

    /// Whether the slot is set and contains its value.
    #[inline]
    fn is_plain(self) -> bool {
        matches!(self.0 & 7, 1..=3)
    }

    /// The offset of the text, if the slot has one.
    #[inline]
    fn start(self) -> Option<usize> {
        (self.0 & 4 != 0).then_some((self.0 >> 3) as usize)
    }
}

/// The length and capacity before each text.
const HEADER: usize = 8;

/// Buffers larger than this are not kept for the next request.
const KEPT_CAPACITY: usize = 64 * 1024;

impl Own {
    /// The length and capacity of the text at `start`.
    #[inline]
    fn header(&self, start: usize) -> (usize, usize) {
        let number = |at: usize| {
            let bytes = self.texts.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
        };
        (number(start), number(start + 4))
    }

    fn text(&self, start: usize) -> &[u8] {
        let begin = start + HEADER;
        self.texts.get(begin..begin + self.header(start).0).unwrap_or_default()
    }

    #[inline]
    fn get(&self, slot: u32) -> Option<Value<'static>> {
        match self.slots.get(slot as usize)?.content() {
            Content::Unset => None,
            Content::Bool(value) => Some(Value::Bool(value)),
            Content::Int(value) => Some(Value::Int(value)),
            Content::Ip4(address) => Some(Value::Ip4(address)),
            Content::At(kind, start) => self.get_text(kind, start),
        }
    }

    /// The value with its bytes in the texts.
    fn get_text(&self, kind: SlotKind, start: usize) -> Option<Value<'static>> {
        let bytes = self.text(start);
        Some(match kind {
            SlotKind::Str => Value::Str(Scratch::copy(bytes).into()),
            SlotKind::Bin => Value::Bin(Scratch::copy(bytes).into()),
            SlotKind::Method => Value::Method(Scratch::copy(bytes).into()),
            SlotKind::Wide => match <[u8; 16]>::try_from(bytes) {
                Ok(address) => Value::Ip6(address.into()),
                Err(_) => Value::Int(i64::from_le_bytes(bytes.try_into().ok()?)),
            },
        })
    }

    fn set(&mut self, slot: u32, value: &Value<'_>) {
        let index = slot as usize;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, VariableSlot::default());
        }
        if let Some(new) = VariableSlot::of(value) {
            return self.plain(index, new);
        }
        match value {
            Value::Str(bytes) => self.place(index, SlotKind::Str, bytes),
            Value::Bin(bytes) => self.place(index, SlotKind::Bin, bytes),
            Value::Method(bytes) => self.place(index, SlotKind::Method, bytes),
            Value::Ip6(address) => self.place(index, SlotKind::Wide, &address.octets()),
            Value::Int(value) => self.place(index, SlotKind::Wide, &value.to_le_bytes()),
            Value::Bool(_) | Value::Ip4(_) => {}
        }
    }

    /// Stores an inline value in slot `index`.
    fn plain(&mut self, index: usize, new: VariableSlot) {
        if let Some(start) = self.slots[index].start() {
            self.waste += HEADER + self.header(start).1;
        }
        self.slots[index] = new;
    }

    /// Stores a text in slot `index`.
    fn place(&mut self, index: usize, kind: SlotKind, bytes: &[u8]) {
        let length = (bytes.len() as u32).to_le_bytes();
        if let Some(start) = self.slots[index].start() {
            let room = self.header(start).1;
            if bytes.len() <= room {
                self.texts[start..start + 4].copy_from_slice(&length);
                self.texts[start + HEADER..][..bytes.len()].copy_from_slice(bytes);
                self.slots[index] = VariableSlot::at(kind, start);
                return;
            }
            self.slots[index] = VariableSlot::default();
            self.waste += HEADER + room;
        }
        if self.waste > self.texts.len() / 2 + KEPT_CAPACITY {
            self.tidy();
        }
        // Rounded up, so that a slightly larger value also fits.
        let room = bytes.len().next_multiple_of(8);
        let start = self.texts.len();
        self.texts.extend_from_slice(&length);
        self.texts.extend_from_slice(&(room as u32).to_le_bytes());
        self.texts.extend_from_slice(bytes);
        self.texts.resize(start + HEADER + room, 0);
        self.slots[index] = VariableSlot::at(kind, start);
    }

    /// Compacts the texts, because a session may exist for a long time and set its variables often.
    #[cold]
    fn tidy(&mut self) {
        let mut texts = Vec::with_capacity(self.texts.len() - self.waste);
        for index in 0..self.slots.len() {
            if let Content::At(kind, start) = self.slots[index].content() {
                let whole = HEADER + self.header(start).1;
                self.slots[index] = VariableSlot::at(kind, texts.len());
                texts.extend_from_slice(&self.texts[start..start + whole]);
            }
        }
        self.texts = texts;
        self.waste = 0;
    }

    /// The size of the variable in `slot` for the limits of `tune.vars.*-max-size`; 0 if it is not set.
    #[inline]
    fn size(&self, slot: u32) -> usize {
        match self.slots.get(slot as usize).map(|slot| slot.content()) {
            None | Some(Content::Unset) => 0,
            Some(Content::At(SlotKind::Str | SlotKind::Bin | SlotKind::Method, start)) => {
                ENTRY + self.header(start).0
            }
            Some(_) => ENTRY,
        }
    }
}

impl Slots {
    /// The value in `slot`.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<Value<'static>> {
        self.own.borrow().get(slot)
    }

    /// Overwrites `slot` if both the old and the new value fit into it (a number, a boolean or an IPv4 address), so that the
    /// accounted size does not change. Returns whether this was possible.
    #[inline]
    pub(crate) fn replace(&self, slot: u32, value: &Value<'_>) -> bool {
        let Some(new) = VariableSlot::of(value) else { return false };
        match self.own.borrow_mut().slots.get_mut(slot as usize) {
            Some(old) if old.is_plain() => {
                *old = new;
                true
            }
            _ => false,
        }
    }

    /// Sets `slot`. The caller has checked and updated the limits.
    pub(crate) fn set(&self, slot: u32, value: &Value<'_>) {
        self.own.borrow_mut().set(slot, value);
    }

    /// Unsets `slot`.
    pub fn unset(&self, slot: u32) {
        if limits().is_some() {
            self.count(self.size(slot), 0);
        }
        let own = &mut *self.own.borrow_mut();
        let index = slot as usize;
        if index < own.slots.len() {
            own.plain(index, VariableSlot::default());
        }
    }

    /// The accounted size of the variable in `slot`.
    #[inline]
    pub(crate) fn size(&self, slot: u32) -> usize {
        self.own.borrow().size(slot)
    }

    /// The accounted size of all variables.
    pub(crate) fn held(&self) -> usize {
        self.held.get()
    }

    /// Replaces `old` with `new` bytes in the account.
    pub(crate) fn count(&self, old: usize, new: usize) {
        self.held.set((self.held.get() + new).saturating_sub(old));
        count_all(old, new);
    }

    /// Unsets all variables; the memory is kept unless it is large.
    pub fn clear(&mut self) {
        count_all(self.held.take(), 0);
        let own = self.own.get_mut();
        own.slots.clear();
        own.waste = 0;
        if own.texts.capacity() > KEPT_CAPACITY {
            own.texts = Vec::new();
        }
        own.texts.clear();
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        count_all(self.held.get(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleared_slots_are_empty_and_reusable() {
        let mut slots = Slots::default();
        slots.set(1, &Value::str(b"a"));
        slots.set(0, &Value::Int(1));
        slots.unset(0);
        assert!(slots.get(0).is_none() && matches!(slots.get(1), Some(Value::Str(text)) if *text == *b"a"));
        slots.clear();
        assert!(slots.get(1).is_none());
        slots.set(1, &Value::bin(b"b"));
        assert!(matches!(slots.get(1), Some(Value::Bin(text)) if *text == *b"b"));
    }

    #[test]
    fn every_kind_overwrites_every_other() {
        let values = [
            Value::Bool(true),
            Value::Int(i64::MIN),
            Value::Int(-1),
            Value::Int(i64::MAX >> 3),
            Value::Int((i64::MAX >> 3) + 1),
            Value::Ip4(Ipv4Addr::new(192, 0, 2, 7)),
            Value::Ip6("2001:db8::7".parse().expect("an address")),
            Value::str(b"text"),
            Value::bin(b"\0\xff"),
            Value::str(b""),
            Value::Method(b"GET"[..].into()),
            Value::str(&[b'x'; 5000]),
        ];
        let show = |value: &Value<'_>| match value.bytes() {
            Some(bytes) => format!("{:?} {bytes:?}", std::mem::discriminant(value)),
            None => format!("{value:?}"),
        };
        let slots = Slots::default();
        let mut wanted: Vec<Option<String>> = vec![None; 7];
        let mut random = fastrand::Rng::with_seed(8);
        for _ in 0..20_000 {
            let slot = random.usize(..wanted.len());
            if random.u8(..8) == 0 {
                slots.unset(slot as u32);
                wanted[slot] = None;
            } else {
                let value = &values[random.usize(..values.len())];
                slots.set(slot as u32, value);
                wanted[slot] = Some(show(value));
            }
            let at = random.usize(..wanted.len());
            assert_eq!(slots.get(at as u32).as_ref().map(show), wanted[at]);
        }
        let held = slots.own.borrow().texts.len();
        assert!(held < 4 * KEPT_CAPACITY, "{held} bytes for seven variables");
    }
}
