//! The string dictionary of each side of a session, by which a server's key is sent once and its number afterwards (doc/peers.txt,
//! "Entry update message format"). There is one for each direction; both are dropped with the session.

use std::collections::HashMap;
use std::sync::Arc;

use base::varint;

use crate::integer::MessageReader;

/// The number of strings in a dictionary. The numbers start from 1.
const ENTRIES: usize = 128;

/// The maximum length of a stored string.
const LONGEST: usize = 1024;

/// The dictionary of sent strings.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    numbers: HashMap<Arc<[u8]>, usize>,
    entries: Vec<Arc<[u8]>>,
    /// The index that the next string takes when the dictionary is full.
    next: usize,
}

impl Sent {
    /// Appends an optional string. One that is too long is treated as absent.
    pub(crate) fn write(&mut self, name: Option<&Arc<[u8]>>, out: &mut Vec<u8>) {
        let Some(name) = name.filter(|name| name.len() <= LONGEST) else {
            out.push(0);
            return;
        };
        if let Some(number) = self.numbers.get(name) {
            // Numbers up to 128 take one byte.
            out.extend_from_slice(&[1, *number as u8]);
            return;
        }
        let number = self.enter(name.clone());
        let mut head = Vec::with_capacity(varint::LONGEST);
        varint::write(&mut head, name.len() as u64);
        varint::write(out, (1 + head.len() + name.len()) as u64);
        out.push(number as u8);
        out.extend_from_slice(&head);
        out.extend_from_slice(name);
    }

    /// Returns all strings, with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &[u8])> {
        (1..).zip(self.entries.iter().map(|name| &**name))
    }

    fn enter(&mut self, name: Arc<[u8]>) -> usize {
        let place = if self.entries.len() < ENTRIES {
            self.entries.push(name.clone());
            self.entries.len() - 1
        } else {
            let place = self.next;
            self.next = (place + 1) % ENTRIES;
            let gone = std::mem::replace(&mut self.entries[place], name.clone());
            self.numbers.remove(&gone);
            place
        };
        self.numbers.insert(name, place + 1);
        place + 1
    }
}

/// The dictionary of received strings.
#[derive(Debug, Default)]
pub(crate) struct DictionaryEntry(Vec<Option<Arc<[u8]>>>);

impl DictionaryEntry {
    /// Returns all strings, with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let known = (1..).zip(&self.0);
        known.filter_map(|(number, name)| Some((number, name.as_deref()?)))
    }

    /// Reads a string. The outer `None` means that the bytes are invalid, or refer to a string that was never sent.
    pub(crate) fn read(&mut self, body: &mut MessageReader<'_>) -> Option<Option<Arc<[u8]>>> {
        let mut field = MessageReader::new(body.counted()?);
        if field.is_empty() {
            return Some(None);
        }
        let number = field.number().filter(|number| (1..=ENTRIES as u64).contains(number))? as usize;
        if field.is_empty() {
            return self.0.get(number - 1)?.clone().map(Some);
        }
        let name = field.counted().filter(|name| name.len() <= LONGEST)?;
        if self.0.len() < number {
            self.0.resize(number, None);
        }
        let name: Arc<[u8]> = name.into();
        self.0[number - 1] = Some(name.clone());
        Some(Some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_sent_once_and_its_number_afterwards() {
        let (mut sent, mut received) = (Sent::default(), DictionaryEntry::default());
        let name: Arc<[u8]> = Arc::from(*b"s2");
        for wire in [&[4, 1, 2, b's', b'2'][..], &[1, 1], &[1, 1]] {
            let mut out = Vec::new();
            sent.write(Some(&name), &mut out);
            assert_eq!(out, wire);
            assert_eq!(received.read(&mut MessageReader::new(&out)), Some(Some(name.clone())));
        }
        let mut out = Vec::new();
        sent.write(None, &mut out);
        assert_eq!((received.read(&mut MessageReader::new(&out)), out), (Some(None), vec![0]));
    }

    #[test]
    fn both_sides_agree_for_any_number_of_strings() {
        let (mut sent, mut received) = (Sent::default(), DictionaryEntry::default());
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let length = random.usize(0..300);
            let name: Arc<[u8]> = format!("{:0length$}", random.u32(0..200)).into_bytes().into();
            let mut out = Vec::new();
            sent.write(Some(&name), &mut out);
            let mut body = MessageReader::new(&out);
            assert_eq!(received.read(&mut body), Some(Some(name)));
            assert!(body.is_empty());
            assert!(
                sent.entries.len() <= ENTRIES && sent.numbers.len() <= ENTRIES && received.0.len() <= ENTRIES
            );
        }
    }

    #[test]
    fn malformed_dictionary_entries_are_refused() {
        for bytes in
            [&[1, 5][..], &[1, 0], &[1, 129], &[2, 1], &[3, 1, 9, b'a'], &[4, 0, 2, b'a', b'b'], &[1]]
        {
            assert_eq!(DictionaryEntry::default().read(&mut MessageReader::new(bytes)), None, "{bytes:?}");
        }
        let mut long = Vec::new();
        varint::write(&mut long, 2003);
        long.push(1);
        varint::write(&mut long, 2000);
        long.resize(long.len() + 2000, b'a');
        assert_eq!(DictionaryEntry::default().read(&mut MessageReader::new(&long)), None);
    }
}
