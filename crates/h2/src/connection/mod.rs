//! An HTTP/2 connection without its socket, for both sides (RFC 9113).
//!
//! The caller owns the socket, the read buffer, the bodies and the clock. In each turn it calls `begin_turn`, reads once, calls
//! `receive` until it returns no event, serves the streams that have data to send, calls `next_writable` in a loop, and writes all
//! of `output` with one system call.
//!
//! Files: `receive` parses frames, `data`, `blocks` and `control` process them, `send` writes messages, `life` ends streams and the
//! connection.

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
use crate::settings::{self, PeerSettings, TABLE_DEFAULT, WINDOW_DEFAULT};
use crate::stream::Streams;
use crate::watch::{FrameWatch, WatchedFrame};
use crate::window::Pool;
use blocks::Gathering;
use fields::Role;
use receive::ReadState;

/// The phases of a shutdown (RFC 9113 section 6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Asks the peer not to open more streams; those in transit are still served. Once the peer has seen this, the last stream is
    /// announced automatically. A client has nothing to announce and uses the final phase.
    Announce,
    /// Streams that have not arrived yet will not be served.
    Final,
}

/// The reason why no stream can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// The limit of the peer or the configuration is reached.
    Full,
    /// The connection is shutting down, or its stream IDs are exhausted, so a new connection is needed.
    Ending,
}

/// The progress of the GOAWAY of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    No,
    Announced,
    /// Streams above this one are ignored.
    Final(u32),
}

/// An HTTP/2 connection. `B` is the type in which large payloads are passed (`send_owned`).
#[derive(Debug)]
pub struct Connection<B> {
    role: Role,
    /// The role during the exchange of settings; for a reversed connection, the opposite of the later role.
    began: Role,
    config: Arc<Config>,
    peer: PeerSettings,
    decoder: Decoder,
    encoder: Encoder,
    /// The message of the last event; `None` while the connection is idle.
    head: Option<Box<Head>>,
    /// A header block that arrives in several pieces.
    gathering: Option<Box<Gathering>>,
    reading: ReadState,
    streams: Streams,
    ready: SendQueues,
    /// Priorities that arrived before their streams.
    early: Option<Box<Early>>,
    pool: Pool,
    output: FrameOutput<B>,
    used: UsedLimits,
    counts: Counts,
    /// The connection-level send window.
    sendable: i32,
    /// The connection-level receive window.
    credit: u32,
    /// The amount of DATA received before the peer acknowledged the SETTINGS of this side; afterwards the maximum value.
    unacknowledged: u64,
    /// The number of streams that are kept until their requests are complete.
    unfinished: u32,
    /// Whether a PING is in flight, after which unfinished streams with an exhausted window are reset.
    is_stopping: bool,
    /// The number of streams opened.
    total: u32,
    is_settled: bool,
    is_busy: bool,
    is_pinging: bool,
    going: Going,
    /// The last stream allowed by the peer's GOAWAY.
    peer_last: Option<u32>,
    /// Streams above this one have yet to be reported as reset.
    cut: Option<u32>,
    closed: Option<Closed>,
    /// Received frames, if they are recorded.
    watch: FrameWatch,
}

impl<B: AsRef<[u8]>> Connection<B> {
    /// Creates a connection. The output contains the preface and SETTINGS.
    #[must_use]
    pub fn new(role: Role, config: &Arc<Config>) -> Connection<B> {
        Self::begin(role, role, config)
    }

    /// Creates a connection for reverse HTTP. The side that dialed sends the client's preface, and the direction changes after the
    /// exchange of settings. `role` is the role of this side after that: [`Role::Server`] if it dialed, [`Role::Client`] if it
    /// accepted. A client opens no stream before [`Event::Settings`](crate::Event::Settings).
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
        // Until the SETTINGS of this side arrive, the peer uses the default size. A check of a smaller size is not worthwhile.
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

    /// Whether part of a header block has arrived.
    fn is_gathering(&self) -> bool {
        self.gathering.as_ref().is_some_and(|gathering| gathering.block.is_some())
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    /// Converts the connection to another payload type. Returns `None`, which ends the connection, if payloads are still waiting to
    /// be sent.
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

    /// Starts a turn, before a read, and resets the limits per turn. With `busy`, connections that reach their glitches threshold
    /// are killed (`tune.glitches.kill.cpu-usage`).
    pub fn begin_turn(&mut self, busy: bool) {
        self.is_busy = busy;
        self.used.begin_turn();
        self.judge_glitches();
    }

    /// Whether `receive` accepts no further frame in this turn because of `max-frames-at-once` or `max-rst-at-once`. The caller
    /// keeps the rest of the input for a later turn.
    #[must_use]
    pub fn is_turn_over(&self) -> bool {
        self.used.is_turn_over(&self.config)
    }

    /// Whether reading must stop until output is sent, because the peer does not read the responses that it triggers. Until then,
    /// `receive` accepts no further frame. A server also stops while response heads wait for a client that does not read: no window
    /// limits them, and each request adds one.
    #[must_use]
    pub fn must_drain(&self) -> bool {
        self.output.answers() >= limits::ANSWERS_SOFT || (self.is_server() && !self.takes_heads())
    }

    /// Whether the output has room for header blocks. [`Connection::open`] and [`Connection::send_head`] do not check this. If the
    /// peer controls the number of blocks (interim responses, requests to a server that stopped reading), the caller must wait for
    /// room.
    #[inline]
    #[must_use]
    pub fn takes_heads(&self) -> bool {
        self.output.heads() < limits::HEADS
    }

    /// Whether part of a header block has been received.
    #[must_use]
    pub fn is_within_head(&self) -> bool {
        self.is_gathering() || matches!(self.reading, ReadState::Block { .. })
    }

    /// Whether the input ended inside a frame's payload.
    #[must_use]
    pub fn is_within_payload(&self) -> bool {
        matches!(&self.reading, ReadState::Data(body) if body.left > 0)
    }

    /// The head or trailers of the last event, for swapping with the caller's own.
    pub fn head_mut(&mut self) -> &mut Head {
        self.head.get_or_insert_default()
    }

    /// Fills `slices` with the pending output, in order, and returns the number of slices used. After writing, `sent` must be
    /// called with the number of bytes written.
    pub fn output<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.output.slices(slices)
    }

    /// Removes the first `count` bytes from the output. Streams may become writable.
    pub fn sent(&mut self, count: usize) {
        self.output.sent(count);
    }

    /// The number of bytes in the output.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.output.pending()
    }

    /// The number of streams not released yet.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len() - self.unfinished as usize
    }

    /// The keys of all streams, the oldest first.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = crate::StreamKey> {
        self.streams.keys()
    }

    /// The peer's settings.
    #[must_use]
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// `fc_glitches`, `bc_glitches`.
    #[must_use]
    pub fn glitches(&self) -> u32 {
        self.used.glitches
    }

    /// Takes the statistics since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Takes the frames received and sent since the last call. Recording starts with the first call and ends with
    /// [`Connection::shrink`].
    pub fn take_frames(&mut self) -> Vec<WatchedFrame> {
        let mut frames = self.watch.take();
        frames.append(&mut self.output.watch.take());
        frames
    }

    /// Frees memory that an idle connection does not need; it is allocated again on use. For connections that are likely to be idle
    /// for long.
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

    /// Heap memory in bytes, without the header tables and the head.
    #[must_use]
    pub fn heap(&self) -> usize {
        self.gathering.as_ref().map_or(0, |gathering| gathering.bytes.capacity())
            + self.streams.heap()
            + self.output.heap()
    }

    fn window_update(&mut self, stream: u32, increment: u32) {
        self.output.answer(kind::WINDOW_UPDATE, 0, stream, increment.to_be_bytes());
    }

    /// The receive window of a stream in bytes; 0 if there is no such stream.
    #[cfg(test)]
    pub(crate) fn window(&mut self, id: u32) -> usize {
        match self.streams.find(id) {
            crate::stream::StreamSlot::Here(slot) => {
                usize::try_from(self.streams.at(slot).credit).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Panics if redundant state is inconsistent.
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
