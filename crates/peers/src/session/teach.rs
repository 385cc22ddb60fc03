//! The sending half of a session: changes as they are made, and all entries in a resync.
//!
//! A change is sent with its number, of which the wire has the lower 32 bits. An entry of a resync carries the number of the last
//! change that was sent before it. The peer acknowledges in order, so its acknowledgement of the entry covers that change.

use crate::dictionary::Sent;
use crate::message::{self, Control, Extension};
use crate::row::{self, PeerEntry};
use crate::session::PeersSection;
use crate::shard;
use crate::tables::Tables;

/// The maximum length of a key. The other parts of a message fit into the remaining space.
const LONGEST_KEY: usize = message::LONGEST - 6144;

/// The changes of a table that the peer has.
#[derive(Debug, Clone, Copy, Default)]
struct TeachCursor {
    acknowledged: u64,
    sent: u64,
    /// A change that is not acknowledged, and when it was sent, in milliseconds.
    timed: Option<(u64, u64)>,
}

/// The progress of a resync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resync {
    None,
    /// The position: a table, and a cursor within it ([`Tables::walk`]).
    At(usize, u64),
    /// All entries are sent, but the peer has not confirmed.
    Sent,
}

/// The sending half of a session.
#[derive(Debug)]
pub(super) struct Sender {
    cursors: Vec<TeachCursor>,
    resync: Resync,
    /// The position in the counts that the peer gets back, if it has requested them: a table, and a cursor within it.
    parts: Option<(usize, u64)>,
    /// Whether the peer requested another resync during the current one.
    again: bool,
    /// The table that was defined last.
    defined: Option<usize>,
    /// The number of the last entry after that definition.
    last: Option<u32>,
    /// The shard of the peer, and the number of shards.
    shard: Option<(u32, u32)>,
    names: Sent,
    silent: bool,
    /// Whether changes are not sent.
    keeps_changes: bool,
    /// The first table of the next turn.
    first: usize,
    /// The number of entries sent so far.
    sent: u64,
}

/// The messages of one turn: their buffer, and limits on their size and number.
pub(super) struct Writer<'a> {
    section: &'a PeersSection,
    /// Whether entries of a resync carry their expiry time.
    timed: bool,
    now: u64,
    out: &'a mut Vec<u8>,
    /// The length of `out` at which a turn ends.
    limit: usize,
    /// The number of entries that may still be sent.
    left: usize,
    /// The receiver.
    peer: Option<usize>,
}

impl<'a> Writer<'a> {
    /// Creates a writer that appends to `out` until it has `limit` bytes, to within one message.
    pub(super) fn new(
        section: &'a PeersSection,
        timed: bool,
        now: u64,
        out: &'a mut Vec<u8>,
        limit: usize,
        peer: Option<usize>,
    ) -> Writer<'a> {
        Writer { section, timed, now, out, limit, left: section.at_once.max(1), peer }
    }

    /// Counts the messages of a table since the output had `before` bytes.
    fn note(&self, table: usize, before: usize, tables: &mut impl Tables) {
        if let Some(peer) = self.peer.filter(|_| self.out.len() > before) {
            tables.note_traffic(table, peer, self.out.len() - before, true);
        }
    }

    fn is_full(&self) -> bool {
        self.left == 0 || self.out.len() >= self.limit
    }
}

impl Sender {
    pub(super) fn new(tables: usize) -> Sender {
        Sender {
            cursors: vec![TeachCursor::default(); tables],
            resync: Resync::None,
            parts: None,
            again: false,
            defined: None,
            last: None,
            shard: None,
            names: Sent::default(),
            silent: false,
            keeps_changes: false,
            first: 0,
            sent: 0,
        }
    }

    pub(super) fn resume(&mut self, known: &[u64], shard: Option<(u32, u32)>) {
        for (cursor, known) in self.cursors.iter_mut().zip(known) {
            *cursor = TeachCursor { acknowledged: *known, sent: *known, timed: None };
        }
        self.shard = shard;
    }

    pub(super) fn cursor(&self, table: usize) -> (u64, u64) {
        self.cursors.get(table).map_or((0, 0), |cursor| (cursor.acknowledged, cursor.sent))
    }

    /// Returns the table that was defined last.
    pub(super) fn defined(&self) -> Option<usize> {
        self.defined
    }

    /// Returns the strings that were sent, with their numbers.
    pub(super) fn names(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.names.all()
    }

    /// Whether no more messages are sent.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    pub(super) fn silence(&mut self) {
        self.silent = true;
    }

    pub(super) fn keep_changes(&mut self, keeps: bool) {
        self.keeps_changes = keeps;
    }

    pub(super) fn begin_resync(&mut self) {
        match self.resync {
            // A pending confirmation belongs to the previous resync.
            Resync::None | Resync::Sent => self.resync = Resync::At(0, 0),
            Resync::At(..) => self.again = true,
        }
    }

    /// Sends the peer the counts that an earlier process of it has made.
    pub(super) fn begin_parts(&mut self) {
        self.parts = Some((0, 0));
    }

    /// Called when the peer has confirmed the end of a resync. Returns whether there was one.
    pub(super) fn confirmed(&mut self) -> bool {
        let was_sent = self.resync == Resync::Sent;
        if was_sent {
            self.resync = Resync::None;
        }
        was_sent
    }

    /// Called when the peer has acknowledged all changes up to the number with the low bits `update`. Numbers that were never sent
    /// are ignored, because some versions of HAProxy send them after a resync. Returns the table and the milliseconds since the
    /// change was sent, if that was measured.
    pub(super) fn ack(&mut self, table: u64, update: u32, now: u64) -> Option<(usize, u64)> {
        let place = table.checked_sub(1).and_then(|place| usize::try_from(place).ok())?;
        let cursor = self.cursors.get_mut(place)?;
        let behind = u64::from((cursor.sent as u32).wrapping_sub(update));
        if behind < cursor.sent - cursor.acknowledged {
            cursor.acknowledged = cursor.sent - behind;
        }
        let (_, sent_at) = cursor.timed.take_if(|(number, _)| *number <= cursor.acknowledged)?;
        Some((place, now.saturating_sub(sent_at)))
    }

    /// Sends entries up to the limits of `writer`. Returns their number.
    pub(super) fn output(
        &mut self,
        up_to_date: bool,
        mut writer: Writer<'_>,
        tables: &mut impl Tables,
    ) -> u64 {
        let before = self.sent;
        let (most, limit) = (writer.left, writer.limit);
        if matches!(self.resync, Resync::At(..)) || self.parts.is_some() {
            // Half of each turn is reserved for the other entries, however many changes there are.
            writer.left = most.div_ceil(2);
            writer.limit = writer.out.len() + limit.saturating_sub(writer.out.len()) / 2;
        }
        let share = writer.left;
        self.all_changes(&mut writer, tables);
        writer.left += most - share;
        writer.limit = limit;
        self.all_parts(&mut writer, tables);
        while let Resync::At(place, cursor) = self.resync
            && !writer.is_full()
        {
            if place == writer.section.tables.len() {
                self.end_resync(up_to_date, writer.out);
                break;
            }
            let before = writer.out.len();
            let next = self.everything(place, cursor, &mut writer, tables);
            writer.note(place, before, tables);
            self.resync = next.map_or(Resync::At(place + 1, 0), |cursor| Resync::At(place, cursor));
        }
        self.sent - before
    }

    /// Sends the counts that an earlier process of the peer has made.
    fn all_parts(&mut self, writer: &mut Writer<'_>, tables: &mut impl Tables) {
        let Some(peer) = writer.peer else { return };
        while let Some((place, cursor)) = self.parts
            && !writer.is_full()
        {
            if place == writer.section.tables.len() {
                message::extension(Extension::PartsFinished, writer.out);
                self.parts = None;
                return;
            }
            let before = writer.out.len();
            let is_wanted = tables.is_part_of(place, peer);
            let next = if is_wanted { self.everything(place, cursor, writer, tables) } else { None };
            writer.note(place, before, tables);
            self.parts = Some(next.map_or((place + 1, 0), |cursor| (place, cursor)));
        }
    }

    /// Sends changes of all tables. Each turn starts at the table where the last one ended.
    fn all_changes(&mut self, writer: &mut Writer<'_>, tables: &mut impl Tables) {
        let count = self.cursors.len();
        for step in 0..count {
            let place = (self.first + step) % count;
            if writer.is_full() {
                self.first = place;
                break;
            }
            if !self.keeps_changes && self.cursors[place].sent < tables.latest(place, writer.peer) {
                let before = writer.out.len();
                self.changes(place, writer, tables);
                writer.note(place, before, tables);
            }
        }
    }

    fn end_resync(&mut self, up_to_date: bool, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.again) {
            self.resync = Resync::At(0, 0);
            return;
        }
        let end = if up_to_date { Control::ResyncFinished } else { Control::ResyncPartial };
        message::control(end, out);
        self.resync = Resync::Sent;
    }

    /// Sends the changes of a table that were not sent yet.
    fn changes(&mut self, place: usize, writer: &mut Writer<'_>, tables: &mut impl Tables) {
        let latest = tables.latest(place, writer.peer);
        let after = self.cursors[place].sent;
        let timed = writer.timed && tables.is_timed(place, writer.peer);
        tables.changed(place, after, writer.peer, writer.now, &mut |number, row| {
            self.cursors[place].sent = number;
            self.cursors[place].timed.get_or_insert((number, writer.now));
            self.entry(place, number as u32, timed, row, writer);
            !writer.is_full()
        });
        if !writer.is_full() {
            // Numbers of entries that no longer exist are skipped.
            self.cursors[place].sent = self.cursors[place].sent.max(latest);
        }
    }

    /// Sends all entries of a table from `cursor` on. Returns the next cursor.
    fn everything(
        &mut self,
        place: usize,
        cursor: u64,
        writer: &mut Writer<'_>,
        tables: &mut impl Tables,
    ) -> Option<u64> {
        if cursor == 0 {
            // Tables without entries are also defined.
            self.define(place, writer);
        }
        let number = self.cursors[place].sent as u32;
        tables.walk(place, cursor, writer.peer, writer.now, &mut |row| {
            self.entry(place, number, writer.timed, row, writer);
            !writer.is_full()
        })
    }

    fn define(&mut self, place: usize, writer: &mut Writer<'_>) {
        if self.defined == Some(place) {
            return;
        }
        let mut body = Vec::new();
        let peer = writer.peer.map_or(&[][..], |peer| &writer.section.peers[peer]);
        writer.section.tables[place].write(place as u64 + 1, peer, &mut body);
        message::define(&body, writer.out);
        self.defined = Some(place);
        self.last = None;
    }

    /// Sends an entry, unless it belongs to another shard or is too long for a message.
    fn entry(
        &mut self,
        place: usize,
        number: u32,
        timed: bool,
        row: &PeerEntry<'_>,
        writer: &mut Writer<'_>,
    ) {
        writer.left -= 1;
        let section = writer.section;
        let definition = &section.tables[place];
        let elsewhere = |(shard, shards)| shard::of(&section.ids[place], row.key, shards) != shard;
        let is_long = row.key.len().min(definition.key_length) > LONGEST_KEY;
        if is_long || self.shard.is_some_and(elsewhere) {
            return;
        }
        self.define(place, writer);
        let incremental = self.last.is_some_and(|last| last.wrapping_add(1) == number);
        let written = (!incremental).then_some(number);
        message::update(incremental, timed, writer.out, |out| {
            row::write(definition, written, timed, row, &mut self.names, out);
        });
        self.last = Some(number);
        self.sent += 1;
    }
}
