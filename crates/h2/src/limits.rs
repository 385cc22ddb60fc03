//! Limits: what the configuration says (`tune.h2.*`), and the bounds that are always there.

use fields::Rules;

use crate::frame::WINDOW_MAX;
use crate::frame::{MAX_SIZE_DEFAULT, MAX_SIZE_LIMIT};

/// Payload and frames that may wait in the output before streams have to wait, in bytes.
pub(crate) const OUTPUT: usize = 64 * 1024;
/// Payloads up to this size are copied rather than gathered, in bytes.
pub(crate) const COPIED: usize = 2048;
/// What one stream sends at once while others of its priority wait, in bytes.
pub(crate) const QUANTUM: usize = 16 * 1024;
/// Below so much room in the output no stream is asked to send, in bytes.
pub(crate) const ROOM_MIN: usize = 1024;
/// Answers that the peer made due and did not read, in bytes, after which reading stops.
pub(crate) const ANSWERS_SOFT: usize = 16 * 1024;
/// Answers, in bytes, after which the connection is closed.
pub(crate) const ANSWERS_HARD: usize = 64 * 1024;
/// Header blocks that wait to be sent, in bytes. A server stops reading requests at this point; a client
/// opens no further streams.
pub(crate) const HEADS: usize = 64 * 1024;
/// CONTINUATION frames in a header block.
pub(crate) const CONTINUATIONS: u32 = 32;
/// CONTINUATION frames that are counted as a glitch: those beyond the first few of a block.
pub(crate) const CONTINUATIONS_PLAIN: u32 = 4;
/// Frames that bring nothing, less what each turn forgives, after which the connection is closed.
pub(crate) const WASTE: u32 = 10_000;
/// Such frames that each turn forgives.
pub(crate) const WASTE_FORGIVEN: u32 = 32;
/// Increments below this many bytes are what a dribbled window consists of.
pub(crate) const INCREMENT_SMALL: u32 = 64;
/// DATA received before the peer must have acknowledged our SETTINGS, in bytes: it cannot have sent
/// more unless it knows the WINDOW_UPDATE that follows them.
pub(crate) const UNACKNOWLEDGED: u64 = 65_535;
/// Credit of the connection that is not given back one by one, in bytes.
pub(crate) const CREDIT_BATCH: u32 = 1 << 20;

/// What connections are told by the configuration; shared by all of a `bind` line or server. The
/// default is that of HAProxy's manual.
#[derive(Debug, Clone)]
pub struct Config {
    /// What a message may be.
    pub rules: Rules,
    /// `tune.bufsize`: the unit of receive buffers, in bytes.
    pub buffer: u32,
    /// `tune.h2.header-table-size`, in bytes, 65536 at most.
    pub header_table_size: u32,
    /// `tune.h2.fe.initial-window-size`, `tune.h2.be.initial-window-size`, in bytes; 0 means `buffer`.
    pub initial_window: u32,
    /// `tune.h2.fe.max-concurrent-streams`, `tune.h2.be.max-concurrent-streams`; 0 is no limit.
    pub max_concurrent_streams: u32,
    /// `tune.h2.max-frame-size`, in bytes; 0 means the larger of 16384 and `buffer`.
    pub max_frame_size: u32,
    /// `tune.h2.fe.rxbuf`, `tune.h2.be.rxbuf`, in bytes; 0 means a buffer for each of the streams.
    pub receive_buffer: u32,
    /// `tune.h2.fe.max-total-streams`; 0 is no limit.
    pub max_total_streams: u32,
    /// `tune.h2.fe.glitches-threshold`, `tune.h2.be.glitches-threshold`; 0 is none.
    pub glitches_threshold: u32,
    /// `tune.h2.fe.max-frames-at-once`, `tune.h2.be.max-frames-at-once`; 0 is no limit.
    pub max_frames_at_once: u32,
    /// `tune.h2.fe.max-rst-at-once`; 0 is no limit.
    pub max_resets_at_once: u32,
}

impl Default for Config {
    fn default() -> Config {
        let rules = Rules { max_bytes: 15_360, max_fields: 101, relaxed: false, connect_protocol: true };
        Config {
            rules,
            buffer: 16_384,
            header_table_size: 4096,
            initial_window: 0,
            max_concurrent_streams: 100,
            max_frame_size: 0,
            receive_buffer: 0,
            max_total_streams: 0,
            glitches_threshold: 0,
            max_frames_at_once: 0,
            max_resets_at_once: 0,
        }
    }
}

impl Config {
    /// Streams at once; `u32::MAX` is no limit.
    pub(crate) fn max_streams(&self) -> u32 {
        if self.max_concurrent_streams == 0 { u32::MAX } else { self.max_concurrent_streams }
    }

    /// SETTINGS_INITIAL_WINDOW_SIZE.
    pub(crate) fn initial_window(&self) -> u32 {
        let window = if self.initial_window == 0 { self.buffer } else { self.initial_window };
        window.min(WINDOW_MAX)
    }

    /// SETTINGS_MAX_FRAME_SIZE.
    pub(crate) fn max_frame_size(&self) -> u32 {
        let size = if self.max_frame_size == 0 { self.buffer } else { self.max_frame_size.min(self.buffer) };
        size.clamp(MAX_SIZE_DEFAULT, MAX_SIZE_LIMIT)
    }

    /// Bytes of a header block that is gathered from several frames. Fields beyond the limits of a
    /// message are only decoded, so that the stream can be refused and the connection go on.
    pub(crate) fn max_block(&self) -> usize {
        self.rules.max_bytes.saturating_mul(2).max(MAX_SIZE_DEFAULT as usize)
    }
}

/// What the peer used up of its limits.
#[derive(Debug, Default)]
pub(crate) struct UsedLimits {
    pub(crate) glitches: u32,
    /// Frames that brought nothing.
    waste: u32,
    frames_at_once: u32,
    resets_at_once: u32,
}

impl UsedLimits {
    /// A read begins.
    pub(crate) fn begin_turn(&mut self) {
        self.waste = self.waste.saturating_sub(WASTE_FORGIVEN);
        self.frames_at_once = 0;
        self.resets_at_once = 0;
    }

    /// Whether the turn has had as many frames as it may.
    #[inline]
    pub(crate) fn is_turn_over(&self, config: &Config) -> bool {
        let over = |used, limit| limit != 0 && used >= limit;
        over(self.frames_at_once, config.max_frames_at_once)
            || over(self.resets_at_once, config.max_resets_at_once)
    }

    #[inline]
    pub(crate) fn frame(&mut self) {
        self.frames_at_once = self.frames_at_once.saturating_add(1);
    }

    pub(crate) fn reset(&mut self) {
        self.resets_at_once = self.resets_at_once.saturating_add(1);
    }

    /// A frame that brought nothing; whether that was one too many.
    #[must_use]
    pub(crate) fn waste(&mut self) -> bool {
        self.waste += 1;
        self.waste > WASTE
    }

    /// Something useful came or was sent.
    #[inline]
    pub(crate) fn progress(&mut self) {
        self.waste = 0;
    }
}
