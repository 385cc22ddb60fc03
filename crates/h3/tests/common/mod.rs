//! A transport in memory: streams between a client and a server, with a window for each.

#![allow(dead_code, reason = "each program uses a part")]

pub(crate) mod script;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use h3::{Connection, Stopped, StreamChunk, Streams};

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

/// One direction of a stream.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// Written but not delivered.
    pub(crate) sent: VecDeque<Bytes>,
    /// Delivered but not read.
    arrived: VecDeque<Bytes>,
    /// Bytes that were written but not read.
    held: usize,
    /// A write was refused, so that the writer waits.
    is_blocked: bool,
    /// The reader knows the stream.
    is_known: bool,
    pub(crate) is_finished: bool,
    is_finish_delivered: bool,
    pub(crate) reset: Option<u64>,
    is_reset_delivered: bool,
    /// The reader wants nothing more.
    pub(crate) stop: Option<u64>,
    is_stop_delivered: bool,
    pub(crate) priority: i32,
    /// All bytes that were ever written, if they are kept.
    pub(crate) log: Vec<u8>,
}

impl Pipe {
    fn is_over(&self) -> bool {
        self.is_finish_delivered || self.is_reset_delivered
    }

    /// Moves bytes to the reader; returns how many.
    fn move_bytes(&mut self, most: usize) -> usize {
        let mut moved = 0;
        while moved < most
            && let Some(mut piece) = self.sent.pop_front()
        {
            if piece.len() > most - moved {
                self.sent.push_front(piece.split_off(most - moved));
            }
            moved += piece.len();
            self.arrived.push_back(piece);
        }
        moved
    }
}

/// A report for one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    Opened(u64),
    Readable(u64),
    Writable(u64),
    Stopped(u64, u64),
    Available,
}

/// Passes a report to the engine.
pub(crate) fn tell(engine: &mut Connection, report: Report) {
    match report {
        Report::Opened(id) => engine.opened(id),
        Report::Readable(id) => engine.readable(id),
        Report::Writable(id) => engine.writable(id),
        Report::Stopped(id, code) => engine.stopped(id, code),
        Report::Available => engine.available(),
    }
}

/// A connection between two sides.
#[derive(Debug)]
pub(crate) struct Wire {
    /// ResetBy stream, and by the side that writes.
    pub(crate) pipes: BTreeMap<(u64, usize), Pipe>,
    /// How many bytes of a stream may be under way.
    pub(crate) window: usize,
    /// How many requests may be open.
    pub(crate) max_requests: usize,
    next: [u64; 4],
    pub(crate) reports: [Vec<Report>; 2],
    was_full: bool,
    /// The number of bytes and reports that moved.
    pub(crate) progress: usize,
    pub(crate) keeps_log: bool,
}

impl Wire {
    pub(crate) fn new(window: usize, max_requests: usize) -> Wire {
        Wire {
            pipes: BTreeMap::new(),
            window,
            max_requests,
            next: [0, 1, 2, 3],
            reports: [Vec::new(), Vec::new()],
            was_full: false,
            progress: 0,
            keeps_log: false,
        }
    }

    /// Opens a stream.
    pub(crate) fn open(&mut self, side: usize, is_uni: bool) -> u64 {
        let kind = side + 2 * usize::from(is_uni);
        let id = self.next[kind];
        self.next[kind] += 4;
        self.pipes.insert((id, side), Pipe::default());
        if !is_uni {
            self.pipes.insert((id, 1 - side), Pipe { is_known: true, ..Pipe::default() });
        }
        id
    }

    /// The transport as one side sees it.
    pub(crate) fn side(&mut self, side: usize) -> Side<'_> {
        Side { wire: self, side }
    }

    fn pipe(&mut self, id: u64, writer: usize) -> &mut Pipe {
        self.pipes.get_mut(&(id, writer)).unwrap_or_else(|| panic!("no stream {id}"))
    }

    /// The number of open requests.
    fn requests(&self) -> usize {
        let is_open = |key: &&(u64, usize)| {
            let (id, writer) = **key;
            writer == CLIENT
                && id & 3 == 0
                && !(self.pipes[&(id, CLIENT)].is_over() && self.pipes[&(id, SERVER)].is_over())
        };
        self.pipes.keys().filter(is_open).count()
    }

    /// Delivers up to `most` bytes of a pipe, its end, and its reader's request to stop.
    pub(crate) fn deliver(&mut self, id: u64, writer: usize, most: usize) {
        let Some(pipe) = self.pipes.get_mut(&(id, writer)) else { return };
        let moved = pipe.move_bytes(most);
        let mut news = moved > 0;
        if pipe.reset.is_some() && !pipe.is_reset_delivered {
            pipe.is_reset_delivered = true;
            pipe.held = 0;
            pipe.sent.clear();
            pipe.arrived.clear();
            news = true;
        } else if pipe.is_finished && pipe.sent.is_empty() && !pipe.is_finish_delivered {
            pipe.is_finish_delivered = true;
            news = true;
        }
        let mut reports = Vec::new();
        if news && !std::mem::replace(&mut pipe.is_known, true) {
            reports.push((1 - writer, Report::Opened(id)));
        }
        if news {
            reports.push((1 - writer, Report::Readable(id)));
        }
        if let Some(code) = pipe.stop
            && !std::mem::replace(&mut pipe.is_stop_delivered, true)
            && pipe.reset.is_none()
        {
            reports.push((writer, Report::Stopped(id, code)));
        }
        let is_over = pipe.is_over();
        self.progress += moved + reports.len();
        for (side, report) in reports {
            self.reports[side].push(report);
        }
        if is_over && self.was_full && self.requests() < self.max_requests {
            self.was_full = false;
            self.reports[CLIENT].push(Report::Available);
        }
    }

    /// Delivers everything.
    pub(crate) fn deliver_all(&mut self) {
        let keys: Vec<(u64, usize)> = self.pipes.keys().copied().collect();
        for (id, writer) in keys {
            self.deliver(id, writer, usize::MAX);
        }
    }
}

/// The transport as one side sees it.
pub(crate) struct Side<'a> {
    wire: &'a mut Wire,
    side: usize,
}

impl Side<'_> {
    fn put(&mut self, id: u64, data: &[u8]) -> Result<usize, Stopped> {
        let (window, keeps_log) = (self.wire.window, self.wire.keeps_log);
        let pipe = self.wire.pipe(id, self.side);
        if let Some(code) = pipe.stop.filter(|_| pipe.is_stop_delivered) {
            return Err(Stopped(code));
        }
        assert!(!pipe.is_finished && pipe.reset.is_none(), "stream {id} is over");
        let count = data.len().min(window.saturating_sub(pipe.held));
        pipe.is_blocked |= count == 0;
        pipe.held += count;
        if count > 0 {
            pipe.sent.push_back(Bytes::copy_from_slice(&data[..count]));
        }
        if keeps_log {
            pipe.log.extend_from_slice(&data[..count]);
        }
        self.wire.progress += count;
        Ok(count)
    }
}

impl Streams for Side<'_> {
    fn open_uni(&mut self) -> Option<u64> {
        Some(self.wire.open(self.side, true))
    }

    fn open_bi(&mut self) -> Option<u64> {
        if self.wire.requests() >= self.wire.max_requests {
            self.wire.was_full = true;
            return None;
        }
        Some(self.wire.open(self.side, false))
    }

    fn read(&mut self, id: u64, max: usize) -> StreamChunk {
        let writer = 1 - self.side;
        let pipe = self.wire.pipe(id, writer);
        assert!(pipe.stop.is_none(), "stream {id} was stopped");
        if let Some(code) = pipe.reset.filter(|_| pipe.is_reset_delivered) {
            return StreamChunk::Reset(code);
        }
        let Some(mut piece) = pipe.arrived.pop_front() else {
            return if pipe.is_finish_delivered { StreamChunk::Finished } else { StreamChunk::Blocked };
        };
        if piece.len() > max {
            pipe.arrived.push_front(piece.split_off(max));
        }
        pipe.held -= piece.len();
        let wakes = std::mem::take(&mut pipe.is_blocked);
        self.wire.progress += piece.len();
        if wakes {
            self.wire.reports[writer].push(Report::Writable(id));
        }
        StreamChunk::Bytes(piece)
    }

    fn write(&mut self, id: u64, data: &[u8]) -> Result<usize, Stopped> {
        assert!(!data.is_empty());
        self.put(id, data)
    }

    fn write_bytes(&mut self, id: u64, data: Bytes) -> Result<usize, Stopped> {
        assert!(!data.is_empty());
        self.put(id, &data)
    }

    fn finish(&mut self, id: u64) {
        self.wire.pipe(id, self.side).is_finished = true;
        self.wire.progress += 1;
    }

    fn reset(&mut self, id: u64, code: u64) {
        let pipe = self.wire.pipe(id, self.side);
        assert!(pipe.reset.is_none(), "stream {id} is reset twice");
        pipe.reset = Some(code);
        self.wire.progress += 1;
    }

    fn stop(&mut self, id: u64, code: u64) {
        let pipe = self.wire.pipe(id, 1 - self.side);
        assert!(pipe.stop.is_none(), "stream {id} is stopped twice");
        pipe.stop = Some(code);
        pipe.arrived.clear();
        self.wire.progress += 1;
    }

    fn set_priority(&mut self, id: u64, priority: i32) {
        self.wire.pipe(id, self.side).priority = priority;
    }
}
