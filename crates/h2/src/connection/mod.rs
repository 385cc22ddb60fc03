//! One HTTP/2 connection without its socket, for both sides (RFC 9113).
//!
//! The caller owns the socket, the read buffer, the bodies and the clock. Its turn: `begin_turn`, one
//! read, `receive` in a loop until it tells of nothing more, the streams that have something to send,
//! `next_writable` in a loop, and everything in `output` with one system call. Files: `receive` takes
//! frames apart, `data`, `blocks` and `control` say what they mean, `send` writes messages, `life`
//! ends streams and the connection.

mod blocks;
mod control;
mod data;
mod life;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod unfinished;

use std::io::IoSlice;
use std::sync::Arc;

use http::Head;

use crate::counts::Counts;
use crate::fault::Closed;
use crate::frame::{PREFACE, kind};
use crate::hpack::{Decoder, Encoder};
use crate::limits::{self, Config, UsedLimits};
use crate::output::FrameOutput;
use crate::priority::{Early, SendQueues};
use crate::role::Role;
use crate::settings::{self, PeerSettings, TABLE_DEFAULT, WINDOW_DEFAULT};
use crate::stream::Streams;
use crate::watch::{FrameWatch, WatchedFrame};
use crate::window::Pool;
use blocks::Gathering;
use receive::ReadState;

/// How a connection is brought to its end (RFC 9113 section 6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The peer is asked to open no more streams; those that are on their way are still served.
    /// When it has seen that, the last one is announced without the caller's doing. A client has
    /// nothing to announce: it is final at once.
    Announce,
    /// Streams that are not here yet will not be served.
    Final,
}

/// Why no stream can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// As many are open as the peer or the configuration allows.
    Full,
    /// The connection is ending, or its numbers are used up: another one is needed.
    Ending,
}

/// How far we are with our own GOAWAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    No,
    Announced,
    /// Streams above this one are ignored.
    Final(u32),
}

/// One connection. `B` is what large payloads are handed over in (`send_owned`).
#[derive(Debug)]
pub struct Connection<B> {
    role: Role,
    /// The role that its settings were exchanged in: another one where it is reversed.
    began: Role,
    config: Arc<Config>,
    peer: PeerSettings,
    decoder: Decoder,
    encoder: Encoder,
    /// The message of the last event; none while the connection is idle.
    head: Option<Box<Head>>,
    /// A header block that did not come at once.
    gathering: Option<Box<Gathering>>,
    reading: ReadState,
    streams: Streams,
    ready: SendQueues,
    /// Priorities that came before their streams.
    early: Option<Box<Early>>,
    pool: Pool,
    output: FrameOutput<B>,
    used: UsedLimits,
    counts: Counts,
    /// What may be sent on all streams together.
    sendable: i32,
    /// What the peer may send on all streams together.
    credit: u32,
    /// DATA received before our SETTINGS were acknowledged; the maximum once they were.
    unacknowledged: u64,
    /// Streams that are kept for the rest of their requests.
    unfinished: u32,
    /// Whether a PING is on its way after which such streams are reset.
    is_stopping: bool,
    /// Streams opened.
    total: u32,
    is_settled: bool,
    is_busy: bool,
    is_pinging: bool,
    going: Going,
    /// The last stream that the peer's GOAWAY lets us have.
    peer_last: Option<u32>,
    /// Streams above it are still to be told as reset.
    cut: Option<u32>,
    closed: Option<Closed>,
    /// Frames received, where they are to be noted.
    watch: FrameWatch,
}

impl<B: AsRef<[u8]>> Connection<B> {
    /// A connection whose preface and SETTINGS are in the output.
    #[must_use]
    pub fn new(role: Role, config: &Arc<Config>) -> Connection<B> {
        Self::begin(role, role, config)
    }

    /// A connection of reverse HTTP: it begins as any other does, with the preface of the side that
    /// dialled, and has the other direction once settings were exchanged. `role` is the one that
    /// this side has from then on: [`Role::Server`] where it dialled, [`Role::Client`] where it
    /// accepted, which opens no stream before [`Event::Settings`](crate::Event::Settings).
    #[must_use]
    pub fn reversed(role: Role, config: &Arc<Config>) -> Connection<B> {
        let began = if role == Role::Server { Role::Client } else { Role::Server };
        Self::begin(role, began, config)
    }

    fn begin(role: Role, began: Role, config: &Arc<Config>) -> Connection<B> {
        let mut output = FrameOutput::new();
        if began == Role::Client {
            output.bytes().extend_from_slice(PREFACE);
        }
        settings::write_ours(role, began, config, output.bytes());
        // Until our SETTINGS arrive the peer uses the default; less than that is not worth a check.
        let table_size = config.header_table_size.max(TABLE_DEFAULT);
        let reading = if began == Role::Server { ReadState::Preface(0) } else { ReadState::Header };
        Connection {
            role,
            began,
            peer: PeerSettings::default(),
            decoder: match role {
                Role::Server => Decoder::new(table_size),
                Role::Client => Decoder::of_server(table_size),
            },
            encoder: Encoder::new(),
            head: None,
            gathering: None,
            reading,
            streams: Streams::new(),
            ready: SendQueues::new(),
            early: None,
            pool: Pool::new(config),
            config: Arc::clone(config),
            output,
            used: UsedLimits::default(),
            counts: Counts::default(),
            sendable: WINDOW_DEFAULT as i32,
            credit: WINDOW_DEFAULT,
            unacknowledged: 0,
            unfinished: 0,
            is_stopping: false,
            total: 0,
            is_settled: false,
            is_busy: true,
            is_pinging: false,
            going: Going::No,
            peer_last: None,
            cut: None,
            closed: None,
            watch: FrameWatch::default(),
        }
    }

    /// Whether a header block has come in part.
    fn is_gathering(&self) -> bool {
        self.gathering.as_ref().is_some_and(|gathering| gathering.block.is_some())
    }

    /// What it was told by the configuration.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    /// The same connection for payloads of another kind; `None`, and its end, where some wait to be
    /// sent.
    #[must_use]
    pub fn repacked<C: AsRef<[u8]>>(self) -> Option<Connection<C>> {
        let output = self.output.repacked()?;
        Some(Connection {
            output,
            role: self.role,
            began: self.began,
            config: self.config,
            peer: self.peer,
            decoder: self.decoder,
            encoder: self.encoder,
            head: self.head,
            gathering: self.gathering,
            reading: self.reading,
            streams: self.streams,
            ready: self.ready,
            early: self.early,
            pool: self.pool,
            used: self.used,
            counts: self.counts,
            sendable: self.sendable,
            credit: self.credit,
            unacknowledged: self.unacknowledged,
            unfinished: self.unfinished,
            is_stopping: self.is_stopping,
            total: self.total,
            is_settled: self.is_settled,
            is_busy: self.is_busy,
            is_pinging: self.is_pinging,
            going: self.going,
            peer_last: self.peer_last,
            cut: self.cut,
            closed: self.closed,
            watch: self.watch,
        })
    }

    /// A read begins: what may be received at once is counted anew. `busy` says whether connections
    /// that reach their glitches-threshold are to be killed now (`tune.glitches.kill.cpu-usage`).
    pub fn begin_turn(&mut self, busy: bool) {
        self.is_busy = busy;
        self.used.begin_turn();
        self.judge_glitches();
    }

    /// Whether `receive` takes no further frame in this turn: `max-frames-at-once` or
    /// `max-rst-at-once` is reached. What is left of the input is for a later turn, after others.
    #[must_use]
    pub fn is_turn_over(&self) -> bool {
        self.used.is_turn_over(&self.config)
    }

    /// Whether reading must stop until output was sent: the peer does not read what it makes due.
    /// `receive` takes no further frame until then. A server also stops while response heads wait for
    /// a client that does not read: they are subject to no window, and each of its requests adds one.
    #[must_use]
    pub fn must_drain(&self) -> bool {
        self.output.answers() >= limits::ANSWERS_SOFT || (self.is_server() && !self.takes_heads())
    }

    /// Whether the output has room for header blocks. [`Connection::open`] and
    /// [`Connection::send_head`] write them regardless. If the peer decides how many there are (interim
    /// responses, requests to a server that has stopped reading), the caller must wait for room.
    #[inline]
    #[must_use]
    pub fn takes_heads(&self) -> bool {
        self.output.heads() < limits::HEADS
    }

    /// Whether a header block has been received in part.
    #[must_use]
    pub fn is_within_head(&self) -> bool {
        self.is_gathering() || matches!(self.reading, ReadState::Block { .. })
    }

    /// Whether the input ended within the payload of a frame.
    #[must_use]
    pub fn is_within_payload(&self) -> bool {
        matches!(&self.reading, ReadState::Data(body) if body.left > 0)
    }

    /// The head or trailers that the last event told of; to be swapped with the caller's own.
    pub fn head_mut(&mut self) -> &mut Head {
        self.head.get_or_insert_default()
    }

    /// Fills `slices` with what is to be sent, in order; how many it filled. `sent` tells how much
    /// of it was.
    pub fn output<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.output.slices(slices)
    }

    /// The first `count` bytes of the output are sent. Streams may have become writable.
    pub fn sent(&mut self, count: usize) {
        self.output.sent(count);
    }

    /// Bytes that wait in the output.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.output.pending()
    }

    /// Streams that are not released yet.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len() - self.unfinished as usize
    }

    /// Their keys, the oldest first.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = crate::StreamKey> {
        self.streams.keys()
    }

    /// What the peer announced.
    #[must_use]
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// `fc_glitches`, `bc_glitches`.
    #[must_use]
    pub fn glitches(&self) -> u32 {
        self.used.glitches
    }

    /// What happened since the last call, for the statistics.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// The frames that came and were made since the last call; from the first one on they are noted,
    /// until [`Connection::shrink`].
    pub fn take_frames(&mut self) -> Vec<WatchedFrame> {
        let mut frames = self.watch.take();
        frames.append(&mut self.output.watch.take());
        frames
    }

    /// Gives back memory that an idle connection does not need. It is allocated again when used: for
    /// connections that are about to wait for long.
    pub fn shrink(&mut self) {
        self.head = None;
        if !self.is_gathering() {
            self.gathering = None;
        }
        self.decoder.shrink();
        self.encoder.shrink();
        self.streams.shrink();
        self.output.shrink();
        self.watch.end();
    }

    /// Bytes of memory on the heap, header tables and the head aside.
    #[must_use]
    pub fn heap(&self) -> usize {
        self.gathering.as_ref().map_or(0, |gathering| gathering.bytes.capacity())
            + self.streams.heap()
            + self.output.heap()
    }

    fn window_update(&mut self, stream: u32, increment: u32) {
        self.output.answer(kind::WINDOW_UPDATE, 0, stream, increment.to_be_bytes());
    }

    /// What the peer may still send on a stream, in bytes; 0 if there is no such stream.
    #[cfg(test)]
    pub(crate) fn window(&mut self, id: u32) -> usize {
        match self.streams.find(id) {
            crate::stream::StreamSlot::Here(slot) => {
                usize::try_from(self.streams.at(slot).credit).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Panics when what is known twice differs.
    #[cfg(any(test, debug_assertions))]
    pub fn check_invariants(&mut self) {
        use crate::stream::{QUEUED, RECEIVING, RESET, WAITING};
        let queued = self.ready.walk(&mut self.streams);
        let (mut extra, mut receivers, mut flagged) = (0, 0, 0);
        let pool = &self.pool;
        for (slot, stream) in self.streams.iter_mut() {
            extra += pool.extra_of(stream);
            receivers += u32::from(stream.has(RECEIVING));
            if stream.has(QUEUED) {
                flagged += 1;
                assert!(queued.contains(&slot) && stream.can_send() && stream.has(WAITING));
            } else if stream.has(WAITING) {
                assert!(stream.sendable <= 0 && !stream.has(RESET), "a stream waits for nothing");
            }
        }
        assert_eq!((extra, receivers, flagged), (self.pool.extra, self.pool.receivers, queued.len()));
        assert!(self.streams.keys().is_sorted_by_key(|key| key.id));
    }
}
