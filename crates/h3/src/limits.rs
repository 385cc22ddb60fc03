//! Limits: the configured ones (`tune.quic.*`), and fixed bounds.

use fields::Rules;

/// The maximum read from the transport in one piece, in bytes.
pub(crate) const READ: usize = 16 * 1024;
/// Payloads up to this size are copied behind their frame header rather than written on their own, in bytes.
pub(crate) const COPIED: usize = 1024;
/// The amount of header sections that the transport did not take yet, in bytes. A server stops reading requests at this point; a
/// client opens no further streams.
pub(crate) const HEADS: usize = 64 * 1024;
/// The amount of pending instructions on our QPACK streams, in bytes, at which the connection is closed.
pub(crate) const ANSWERS_HARD: usize = 64 * 1024;
/// The minimum for the largest field section that is received, in bytes.
pub(crate) const SECTION_MIN: usize = 16 * 1024;
/// The maximum of unfinished field sections of a connection, in bytes.
pub(crate) const SECTIONS: usize = 1024 * 1024;
/// The longest SETTINGS frame, in bytes.
pub(crate) const SETTINGS_MAX: usize = 4096;
/// The maximum number of bytes of a priority value that are read; longer frames are ignored.
pub(crate) const PRIORITY_VALUE_MAX: usize = 256;
/// The number of unidirectional streams that may wait for their type.
pub(crate) const UNTYPED: usize = 16;
/// The number of unidirectional streams of unknown types above which they count as glitches.
pub(crate) const UNKNOWN_PLAIN: u32 = 16;
/// The number of unidirectional streams of unknown types at which the connection is closed.
pub(crate) const UNKNOWN_MOST: u32 = 1000;
/// The number of frames without effect, minus the allowance of each turn, at which the connection is closed.
pub(crate) const WASTE: u32 = 10_000;
/// How many frames without effect are forgiven per turn.
pub(crate) const WASTE_FORGIVEN: u32 = 32;
/// The number of skipped bytes that count as a frame without effect.
pub(crate) const SKIPPED: usize = 4096;

/// The configuration of connections; shared by all of a `bind` line or server. The defaults are those of HAProxy's manual.
#[derive(Debug, Clone)]
pub struct Config {
    /// Limits on messages.
    pub rules: Rules,
    /// The maximum of a body that is read from the transport but not consumed, in bytes, for each stream.
    pub window: usize,
    /// `tune.quic.fe.stream.max-concurrent`, `tune.quic.be.stream.max-concurrent`.
    pub max_concurrent_streams: u32,
    /// `tune.quic.fe.stream.max-total`; 0 for no limit.
    pub max_total_streams: u32,
    /// `tune.quic.fe.sec.glitches-threshold`, `tune.quic.be.sec.glitches-threshold`; 0 for no limit.
    pub glitches_threshold: u32,
    /// SETTINGS_MAX_FIELD_SECTION_SIZE, in bytes; 0 to announce none.
    pub max_field_section: u32,
    /// SETTINGS_QPACK_MAX_TABLE_CAPACITY: the memory for the peer's dynamic table, in bytes.
    pub table_capacity: u32,
    /// SETTINGS_QPACK_BLOCKED_STREAMS: how many streams may wait for entries of that table.
    pub blocked_streams: u32,
    /// The maximum size of the dynamic table for sending, in bytes, if the peer permits one.
    pub encoder_capacity: u32,
    /// Whether strings are sent in the Huffman code if that makes them shorter.
    pub huffman: bool,
}

impl Default for Config {
    fn default() -> Config {
        let rules = Rules { max_bytes: 15_360, max_fields: 101, relaxed: false, connect_protocol: true };
        Config {
            rules,
            window: 64 * 1024,
            max_concurrent_streams: 100,
            max_total_streams: 0,
            glitches_threshold: 0,
            max_field_section: 0,
            table_capacity: 0,
            blocked_streams: 0,
            encoder_capacity: 0,
            huffman: true,
        }
    }
}

impl Config {
    /// The maximum size of a received field section. Fields beyond the limits of a message are only decoded, so that the stream can
    /// be refused while the connection continues.
    pub(crate) fn max_section(&self) -> usize {
        self.rules.max_bytes.saturating_mul(2).max(SECTION_MIN)
    }
}

/// The peer's consumption of its limits.
#[derive(Debug, Default)]
pub(crate) struct PeerUsage {
    pub(crate) glitches: u32,
    /// Unidirectional streams of unknown types.
    pub(crate) unknown: u32,
    /// Frames without effect.
    waste: u32,
    /// Skipped bytes that do not count as a frame yet.
    skipped: usize,
}

impl PeerUsage {
    /// Starts a turn.
    pub(crate) fn begin_turn(&mut self) {
        self.waste = self.waste.saturating_sub(WASTE_FORGIVEN);
    }

    /// Counts frames without effect; returns whether the limit is exceeded.
    #[must_use]
    pub(crate) fn waste(&mut self, count: u32) -> bool {
        self.waste = self.waste.saturating_add(count);
        self.waste > WASTE
    }

    /// Counts skipped bytes as frames without effect ([`SKIPPED`]); returns whether the limit is exceeded.
    #[must_use]
    pub(crate) fn skip(&mut self, bytes: usize) -> bool {
        self.skipped += bytes;
        let count = self.skipped / SKIPPED;
        self.skipped %= SKIPPED;
        self.waste(count as u32)
    }

    /// Resets the count of frames without effect after useful work.
    #[inline]
    pub(crate) fn progress(&mut self) {
        self.waste = 0;
    }
}
