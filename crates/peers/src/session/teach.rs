//! What a peer is taught in a session: changes as they are made, and everything in a resync.
//!
//! A change is sent with its number, of which the wire has the lower 32 bits. What is sent in a resync
//! carries the number of the last change that was sent before it: the peer acknowledges in
//! order, so whoever has learned that entry has learned that change.

use crate::definition::Definition;
use crate::dictionary::Sent;
use crate::message::{self, Control};
use crate::row::{self, PeerEntry};
use crate::session::PeersSection;
use crate::shard;
use crate::tables::Tables;

/// The longest key that is sent: what may stand beside it in a message takes less than the rest.
const LONGEST_KEY: usize = message::LONGEST - 6144;

/// How far the peer is with a table.
#[derive(Debug, Clone, Copy, Default)]
struct TeachCursor {
    acknowledged: u64,
    sent: u64,
}

/// How far a resync is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lesson {
    None,
    /// The table, and where in it.
    At(usize, u64),
    /// Everything is sent; the peer has not confirmed.
    Told,
}

#[derive(Debug)]
pub(super) struct Teaching {
    cursors: Vec<TeachCursor>,
    lesson: Lesson,
    /// Whether the peer asked again while it was taught.
    again: bool,
    /// The table that was defined last.
    defined: Option<usize>,
    /// The number of the last entry since.
    last: Option<u32>,
    /// Which part of the keys it gets, of how many.
    shard: Option<(u32, u32)>,
    names: Sent,
    silent: bool,
    /// Whether changes are not sent.
    keeps_changes: bool,
    /// Which table has its turn.
    first: usize,
    /// How many entries were sent.
    taught: u64,
}

impl Teaching {
    pub(super) fn new(tables: usize) -> Teaching {
        Teaching {
            cursors: vec![TeachCursor::default(); tables],
            lesson: Lesson::None,
            again: false,
            defined: None,
            last: None,
            shard: None,
            names: Sent::default(),
            silent: false,
            keeps_changes: false,
            first: 0,
            taught: 0,
        }
    }

    pub(super) fn resume(&mut self, known: &[u64], shard: Option<(u32, u32)>) {
        for (cursor, known) in self.cursors.iter_mut().zip(known) {
            *cursor = TeachCursor { acknowledged: *known, sent: *known };
        }
        self.shard = shard;
    }

    pub(super) fn cursor(&self, table: usize) -> (u64, u64) {
        self.cursors.get(table).map_or((0, 0), |cursor| (cursor.acknowledged, cursor.sent))
    }

    /// Which table was defined last.
    pub(super) fn defined(&self) -> Option<usize> {
        self.defined
    }

    /// The strings that were sent, with their numbers.
    pub(super) fn names(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.names.all()
    }

    /// Whether the last word is spoken.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    pub(super) fn silence(&mut self) {
        self.silent = true;
    }

    pub(super) fn keep_changes(&mut self, keeps: bool) {
        self.keeps_changes = keeps;
    }

    pub(super) fn begin_lesson(&mut self) {
        match self.lesson {
            // Whatever it learned of the one before: it wants another.
            Lesson::None | Lesson::Told => self.lesson = Lesson::At(0, 0),
            Lesson::At(..) => self.again = true,
        }
    }

    /// The peer knows that the resync is over. Whether there was one.
    pub(super) fn confirmed(&mut self) -> bool {
        let told = self.lesson == Lesson::Told;
        if told {
            self.lesson = Lesson::None;
        }
        told
    }

    /// The peer has learned up to the change whose number ends with `update`. Numbers that were never
    /// sent are passed over: versions of HAProxy send such after a resync.
    pub(super) fn ack(&mut self, table: u64, update: u32) {
        let place = table.checked_sub(1).and_then(|place| usize::try_from(place).ok());
        let Some(cursor) = place.and_then(|place| self.cursors.get_mut(place)) else { return };
        let behind = u64::from((cursor.sent as u32).wrapping_sub(update));
        if behind < cursor.sent - cursor.acknowledged {
            cursor.acknowledged = cursor.sent - behind;
        }
    }

    /// Appends what there is to teach, as long as there is room; says how many entries that is.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn output(
        &mut self,
        section: &PeersSection,
        timed: bool,
        up_to_date: bool,
        out: &mut Vec<u8>,
        limit: usize,
        now: u64,
        tables: &mut impl Tables,
    ) -> u64 {
        let before = self.taught;
        let most = section.at_once.max(1);
        // A resync goes on however much changes meanwhile.
        let lesson = matches!(self.lesson, Lesson::At(..));
        let (share, until) = match lesson {
            true => (most.div_ceil(2), out.len() + limit.saturating_sub(out.len()) / 2),
            false => (most, limit),
        };
        let left = self.all_changes(section, out, until, share, now, tables);
        let mut left = most - share + left;
        while let Lesson::At(place, cursor) = self.lesson {
            if left == 0 || out.len() >= limit {
                break;
            }
            if place == section.tables.len() {
                self.end_lesson(up_to_date, out);
                break;
            }
            let next = self.everything(place, cursor, section, timed, out, limit, &mut left, now, tables);
            self.lesson = next.map_or(Lesson::At(place + 1, 0), |cursor| Lesson::At(place, cursor));
        }
        self.taught - before
    }

    /// Sends changes of all tables, each in its turn; says how many of `left` entries more it could
    /// have sent.
    fn all_changes(
        &mut self,
        section: &PeersSection,
        out: &mut Vec<u8>,
        limit: usize,
        mut left: usize,
        now: u64,
        tables: &mut impl Tables,
    ) -> usize {
        let count = self.cursors.len();
        for step in 0..count {
            let place = (self.first + step) % count;
            if left == 0 || out.len() >= limit {
                self.first = place;
                break;
            }
            if !self.keeps_changes && self.cursors[place].sent < tables.latest(place) {
                self.changes(place, section, out, limit, &mut left, now, tables);
            }
        }
        left
    }

    fn end_lesson(&mut self, up_to_date: bool, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.again) {
            self.lesson = Lesson::At(0, 0);
            return;
        }
        let end = if up_to_date { Control::ResyncFinished } else { Control::ResyncPartial };
        message::control(end, out);
        self.lesson = Lesson::Told;
    }

    /// Sends changes of a table that were not sent.
    #[allow(clippy::too_many_arguments)]
    fn changes(
        &mut self,
        place: usize,
        section: &PeersSection,
        out: &mut Vec<u8>,
        limit: usize,
        left: &mut usize,
        now: u64,
        tables: &mut impl Tables,
    ) {
        let latest = tables.latest(place);
        let mut all = true;
        let after = self.cursors[place].sent;
        tables.changed(place, after, now, &mut |number, row| {
            self.cursors[place].sent = number;
            self.entry(place, section, number as u32, false, row, out);
            *left -= 1;
            all = *left > 0 && out.len() < limit;
            all
        });
        if all {
            self.cursors[place].sent = self.cursors[place].sent.max(latest);
        }
    }

    /// Sends entries of a table, whatever became of them; answers where to go on.
    #[allow(clippy::too_many_arguments)]
    fn everything(
        &mut self,
        place: usize,
        cursor: u64,
        section: &PeersSection,
        timed: bool,
        out: &mut Vec<u8>,
        limit: usize,
        left: &mut usize,
        now: u64,
        tables: &mut impl Tables,
    ) -> Option<u64> {
        if cursor == 0 {
            // A table without entries is announced too.
            self.define(place, &section.tables[place], out);
        }
        let number = self.cursors[place].sent as u32;
        tables.walk(place, cursor, now, &mut |row| {
            self.entry(place, section, number, timed, row, out);
            *left -= 1;
            *left > 0 && out.len() < limit
        })
    }

    fn define(&mut self, place: usize, definition: &Definition, out: &mut Vec<u8>) {
        if self.defined == Some(place) {
            return;
        }
        let mut body = Vec::new();
        definition.write(place as u64 + 1, &mut body);
        message::define(&body, out);
        self.defined = Some(place);
        self.last = None;
    }

    /// Sends an entry, unless it is of another part of the keys, or too long for a message.
    fn entry(
        &mut self,
        place: usize,
        section: &PeersSection,
        number: u32,
        timed: bool,
        row: &PeerEntry<'_>,
        out: &mut Vec<u8>,
    ) {
        let definition = &section.tables[place];
        let elsewhere = |(shard, shards)| shard::of(&section.ids[place], row.key, shards) != shard;
        let long = row.key.len().min(definition.key_length) > LONGEST_KEY;
        if long || self.shard.is_some_and(elsewhere) {
            return;
        }
        self.define(place, definition, out);
        let incremental = self.last.is_some_and(|last| last.wrapping_add(1) == number);
        let told = (!incremental).then_some(number);
        message::update(incremental, timed, out, |out| {
            row::write(definition, told, timed, row, &mut self.names, out);
        });
        self.last = Some(number);
        self.taught += 1;
    }
}
