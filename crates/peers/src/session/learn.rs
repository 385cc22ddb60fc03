//! The receiving half of a session: the peer's tables and their local counterparts, entries, and pending acknowledgements. There is
//! one acknowledgement for each table, of the last entry received.

use std::collections::HashMap;

use crate::definition::Definition;
use crate::dictionary::DictionaryEntry;
use crate::integer::MessageReader;
use crate::message::{self, Breach};
use crate::row::{EntryValue, PeerEntry, Remote};
use crate::tables::{EntryOrigin, Tables};

/// A local table that the peer has announced.
#[derive(Debug)]
struct Course {
    remote: Remote,
    /// The number of the last entry.
    last: u32,
    acknowledged: u32,
    /// Whether the table is in `owed`.
    owed: bool,
    values: Box<[EntryValue]>,
}

#[derive(Debug)]
pub(super) struct Learning {
    /// By the indexes of the local tables.
    courses: Vec<Option<Course>>,
    /// The local tables, keyed by the peer's number for the table.
    numbers: HashMap<u64, usize>,
    /// The local table of the next entries, or `None` for an unknown table.
    current: Option<usize>,
    /// Whether the peer has announced any table.
    announced: bool,
    /// The tables to be acknowledged.
    owed: Vec<usize>,
    names: DictionaryEntry,
}

impl Learning {
    pub(super) fn new(tables: &[Definition]) -> Learning {
        Learning {
            courses: tables.iter().map(|_| None).collect(),
            numbers: HashMap::new(),
            current: None,
            announced: false,
            owed: Vec::new(),
            names: DictionaryEntry::default(),
        }
    }

    pub(super) fn view(&self, table: usize) -> Option<(u64, u32, u32)> {
        let course = self.courses.get(table)?.as_ref()?;
        Some((course.remote.id, course.last, course.acknowledged))
    }

    /// Returns the types that the peer sends for a table, as bits.
    pub(super) fn bits(&self, table: usize) -> u64 {
        self.courses.get(table).and_then(Option::as_ref).map_or(0, |course| course.remote.bits())
    }

    /// Returns the table of the next entries.
    pub(super) fn current(&self) -> Option<usize> {
        self.current
    }

    /// Returns the strings received from the peer, with their numbers.
    pub(super) fn names(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.names.all()
    }

    /// Handles a table definition. If the table is unknown, or differs from the local one, this is not an error: its entries are
    /// skipped.
    pub(super) fn define(&mut self, body: &[u8], tables: &[Definition], peer: &[u8]) -> Result<(), Breach> {
        let announced = Definition::read(body).ok_or(Breach::Protocol("unknown table"))?;
        self.announced = true;
        let id = announced.id;
        let name = &announced.definition.name;
        let Some(place) = tables.iter().position(|table| table.has_name(name, peer)) else {
            self.forget(id);
            return Ok(());
        };
        // The same table again: the definition is repeated before each sequence of entries.
        if let Some(course) = &self.courses[place]
            && course.remote.is(&announced)
        {
            self.current = Some(place);
            return Ok(());
        }
        let Some(remote) = Remote::new(announced, &tables[place]) else {
            self.forget(id);
            return Ok(());
        };
        if let Some(other) = self.numbers.insert(id, place)
            && other != place
        {
            self.courses[other] = None;
        }
        let values = vec![EntryValue::Absent; tables[place].values()].into();
        let course = Course { remote, last: 0, acknowledged: 0, owed: false, values };
        if let Some(before) = self.courses[place].replace(course)
            && before.remote.id != id
        {
            self.numbers.remove(&before.remote.id);
        }
        self.current = Some(place);
        Ok(())
    }

    /// Forgets a number, because it belongs to a table that is not received.
    fn forget(&mut self, id: u64) {
        self.current = None;
        if let Some(place) = self.numbers.remove(&id) {
            self.courses[place] = None;
        }
    }

    pub(super) fn switch(&mut self, id: u64) {
        self.current = self.numbers.get(&id).copied();
    }

    /// Handles an entry. Returns whether it was stored.
    pub(super) fn update(
        &mut self,
        incremental: bool,
        timed: bool,
        body: &[u8],
        origin: EntryOrigin,
        now: u64,
        tables: &mut impl Tables,
    ) -> Result<bool, Breach> {
        let Some(place) = self.current else {
            let lost = Breach::Protocol("entry without a table");
            return if self.announced { Ok(false) } else { Err(lost) };
        };
        let Some(course) = &mut self.courses[place] else { return Ok(false) };
        let short = Breach::Protocol("truncated entry");
        let mut body = MessageReader::new(body);
        let number = if incremental { course.last.wrapping_add(1) } else { body.word().ok_or(short)? };
        let read = course.remote.read(&mut body, timed, &mut self.names, &mut course.values);
        let (key, expire) = read.ok_or(short)?;
        tables.learn(place, &PeerEntry { key, expire, values: &course.values }, origin, now);
        course.last = number;
        if !course.owed {
            course.owed = true;
            self.owed.push(place);
        }
        Ok(true)
    }

    /// Appends the pending acknowledgements.
    pub(super) fn acks(&mut self, out: &mut Vec<u8>) {
        for place in self.owed.drain(..) {
            let Some(course) = &mut self.courses[place] else { continue };
            course.owed = false;
            course.acknowledged = course.last;
            message::ack(course.remote.id, course.last, out);
        }
    }
}
