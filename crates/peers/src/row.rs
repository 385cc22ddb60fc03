//! Table entries: the content of their messages (doc/peers.txt, "Entry update message format"), and the mapping between a peer's
//! table and a local one.

use std::sync::Arc;

use crate::definition::{Announced, DataColumn, Definition, KeyKind, Shape};
use crate::dictionary::{DictionaryEntry, Sent};
use base::varint;

use crate::integer::MessageReader;

/// A value of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryValue {
    /// In a received entry, a value that the peer did not send. When sent, it is zero.
    Absent,
    /// A count, a number, a tag.
    Number(u64),
    /// A rate.
    Rate(Rate),
    /// The key of a server, if there is one.
    Name(Option<Arc<[u8]>>),
}

/// A rate: the count of the current period, and the count of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rate {
    /// The age of the current period, in milliseconds.
    pub age: u32,
    /// The count of the current period.
    pub current: u32,
    /// The count of the previous period.
    pub previous: u32,
}

impl EntryValue {
    /// Returns the value `since` milliseconds later: the age of a rate.
    pub(crate) fn older(&self, since: u32) -> EntryValue {
        match self {
            EntryValue::Rate(rate) => EntryValue::Rate(Rate { age: rate.age.saturating_add(since), ..*rate }),
            other => other.clone(),
        }
    }
}

impl Rate {
    /// Returns the events in this period and the previous one, of which each lasts `period` milliseconds.
    pub(crate) fn events(&self, period: u32) -> u64 {
        let (current, previous) = (u64::from(self.current), u64::from(self.previous));
        match self.age / period.max(1) {
            0 => current + previous,
            1 => current,
            _ => 0,
        }
    }
}

/// An entry in the form exchanged with peers.
#[derive(Debug, Clone, Copy)]
pub struct PeerEntry<'a> {
    /// The key: a string, or as many bytes as the table defines; numbers are in network order.
    pub key: &'a [u8],
    /// The remaining lifetime in milliseconds, or `None` for the table's default.
    pub expire: Option<u32>,
    /// The values, in column order, including all array elements.
    pub values: &'a [EntryValue],
}

/// Appends the content of an entry's message: its number unless that is omitted, its lifetime if that is included, its key and its
/// values.
pub(crate) fn write(
    definition: &Definition,
    number: Option<u32>,
    timed: bool,
    row: &PeerEntry<'_>,
    names: &mut Sent,
    out: &mut Vec<u8>,
) {
    if let Some(number) = number {
        out.extend_from_slice(&number.to_be_bytes());
    }
    if timed {
        out.extend_from_slice(&row.expire.unwrap_or(definition.expire).to_be_bytes());
    }
    let key = &row.key[..row.key.len().min(definition.key_length)];
    if definition.key == KeyKind::String {
        varint::write(out, key.len() as u64);
    }
    out.extend_from_slice(key);
    if definition.key != KeyKind::String {
        out.resize(out.len() + definition.key_length - key.len(), 0);
    }
    let mut values = row.values.iter();
    for column in &definition.columns {
        for _ in 0..column.count {
            write_value(column.kind.shape(), values.next(), names, out);
        }
    }
}

fn write_value(shape: Shape, value: Option<&EntryValue>, names: &mut Sent, out: &mut Vec<u8>) {
    match (shape, value) {
        (Shape::Number, Some(EntryValue::Number(number))) => varint::write(out, *number),
        (Shape::Number, _) => out.push(0),
        (Shape::Rate, value) => {
            // The period of a rate that was never counted has the maximum age.
            let rate = match value {
                Some(EntryValue::Rate(rate)) => *rate,
                _ => Rate { age: u32::MAX, ..Rate::default() },
            };
            for part in [rate.age, rate.current, rate.previous] {
                varint::write(out, u64::from(part));
            }
        }
        (Shape::Name, Some(EntryValue::Name(name))) => names.write(name.as_ref(), out),
        (Shape::Name, _) => names.write(None, out),
    }
}

/// A peer's table that corresponds to a local one.
#[derive(Debug)]
pub(crate) struct Remote {
    /// The number by which the peer refers to the table.
    pub(crate) id: u64,
    definition: Definition,
    /// For each column, the local index of its values, and their number.
    places: Vec<(usize, u32)>,
}

impl Remote {
    /// Creates a remote table if the announcement matches the local table with the same name: keys must have the same kind and
    /// length.
    pub(crate) fn new(announced: Announced, local: &Definition) -> Option<Remote> {
        let Announced { id, key, definition } = announced;
        if key != local.key as u64 || definition.key_length != local.key_length {
            return None;
        }
        let places = definition.columns.iter().map(|column| place(column, local)).collect();
        Some(Remote { id, definition, places })
    }

    /// Returns the types that the peer sends, as bits.
    pub(crate) fn bits(&self) -> u64 {
        self.definition.bits()
    }

    /// Whether the peer has announced the same before.
    pub(crate) fn is(&self, announced: &Announced) -> bool {
        self.id == announced.id && self.definition == announced.definition
    }

    /// Parses an entry after its number, and stores the values at their local indexes; `values` has the size of the local table.
    /// Returns `None` if the lengths in the message are inconsistent.
    pub(crate) fn read<'a>(
        &self,
        body: &mut MessageReader<'a>,
        timed: bool,
        names: &mut DictionaryEntry,
        values: &mut [EntryValue],
    ) -> Option<(&'a [u8], Option<u32>)> {
        let definition = &self.definition;
        let expire = if timed { Some(body.word()?) } else { None };
        let key = match definition.key {
            KeyKind::String => body.counted().filter(|key| key.len() <= definition.key_length)?,
            _ => body.bytes(definition.key_length)?,
        };
        values.fill(EntryValue::Absent);
        for (column, (place, wanted)) in definition.columns.iter().zip(&self.places) {
            for element in 0..column.count {
                let value = read_value(column.kind.shape(), body, names)?;
                if element < *wanted {
                    values[place + element as usize] = value;
                }
            }
        }
        // If an entry never expires at the peer, its lifetime is zero.
        Some((key, expire.filter(|expire| *expire > 0 || definition.expire > 0)))
    }
}

/// Returns the local index of a peer's column.
fn place(column: &DataColumn, local: &Definition) -> (usize, u32) {
    let mut place = 0;
    for own in &local.columns {
        if own.kind == column.kind {
            return (place, own.count.min(column.count));
        }
        place += own.count as usize;
    }
    (0, 0)
}

fn read_value(shape: Shape, body: &mut MessageReader<'_>, names: &mut DictionaryEntry) -> Option<EntryValue> {
    let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Some(match shape {
        Shape::Number => EntryValue::Number(body.number()?),
        Shape::Rate => EntryValue::Rate(Rate {
            age: small(body.number()?),
            current: small(body.number()?),
            previous: small(body.number()?),
        }),
        Shape::Name => EntryValue::Name(names.read(body)?),
    })
}

#[cfg(test)]
mod tests;
