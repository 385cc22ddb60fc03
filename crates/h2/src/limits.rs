//! Limits: those of the configuration (`tune.h2.*`), and fixed bounds.

use fields::Rules;

use crate::frame::WINDOW_MAX;
use crate::frame::{MAX_SIZE_DEFAULT, MAX_SIZE_LIMIT};

/// The maximum of pending payload and frames in the output before streams have to wait, in bytes.
pub(crate) const OUTPUT: usize = 64 * 1024;
/// Payloads up to this size are copied rather than gathered, in bytes.
pub(crate) const COPIED: usize = 2048;
/// The maximum that a stream sends in a turn while other streams of the same priority wait, in bytes.
pub(crate) const QUANTUM: usize = 16 * 1024;
/// The minimum room in the output, in bytes, for a stream to be asked to send.
pub(crate) const ROOM_MIN: usize = 1024;
/// The amount of pending responses, in bytes, at which reading stops. It only includes responses that the peer triggered but did
/// not read.
pub(crate) const ANSWERS_SOFT: usize = 16 * 1024;
/// The amount of pending responses that the peer triggered but did not read, in bytes, at which the connection is
/// closed.
pub(crate) const ANSWERS_HARD: usize = 64 * 1024;
/// The amount of pending header blocks, in bytes, at which a server stops reading requests and a client opens no further streams.
pub(crate) const HEADS: usize = 64 * 1024;
/// The maximum number of CONTINUATION frames in a header block.
pub(crate) const CONTINUATIONS: u32 = 32;
/// The number of CONTINUATION frames in a block above which they count as a glitch.
pub(crate) const CONTINUATIONS_PLAIN: u32 = 4;
/// The number of frames without effect at which the connection is closed. The allowance of each turn is subtracted from the count.
pub(crate) const WASTE: u32 = 10_000;
/// How many frames without effect are forgiven per turn.
pub(crate) const WASTE_FORGIVEN: u32 = 32;
/// Window increments below this many bytes count as frames without effect.
pub(crate) const INCREMENT_SMALL: u32 = 64;
/// The maximum of DATA, in bytes, that may be received before the peer has acknowledged the SETTINGS of this side. To send more,
/// the peer must have seen the WINDOW_UPDATE that follows them.
pub(crate) const UNACKNOWLEDGED: u64 = 65_535;
/// Connection-level credit is returned in batches of this many bytes.
pub(crate) const CREDIT_BATCH: u32 = 1 << 20;

/// The configuration of connections, shared by all connections of a `bind` line or server. The defaults are those of HAProxy's
/// manual.
#[derive(Debug, Clone)]
pub struct Config {
    /// Limits on messages.
    pub rules: Rules,
    /// `tune.bufsize`: the unit of receive buffers, in bytes.
    pub buffer: u32,
    /// `tune.h2.header-table-size`, in bytes, 65536 at most.
    pub header_table_size: u32,
    /// `tune.h2.fe.initial-window-size`, `tune.h2.be.initial-window-size`, in bytes; 0 means `buffer`.
    pub initial_window: u32,
    /// `tune.h2.fe.max-concurrent-streams`, `tune.h2.be.max-concurrent-streams`; 0 for no limit.
    pub max_concurrent_streams: u32,
    /// `tune.h2.max-frame-size`, in bytes; 0 means the larger of 16384 and `buffer`.
    pub max_frame_size: u32,
    /// `tune.h2.fe.rxbuf`, `tune.h2.be.rxbuf`, in bytes; 0 means one buffer per stream.
    pub receive_buffer: u32,
    /// `tune.h2.fe.max-total-streams`; 0 for no limit.
    pub max_total_streams: u32,
    /// `tune.h2.fe.glitches-threshold`, `tune.h2.be.glitches-threshold`; 0 for no limit.
    pub glitches_threshold: u32,
    /// `tune.h2.fe.max-frames-at-once`, `tune.h2.be.max-frames-at-once`; 0 for no limit.
    pub max_frames_at_once: u32,
    /// `tune.h2.fe.max-rst-at-once`; 0 for no limit.
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
    /// The maximum number of concurrent streams; `u32::MAX` for no limit.
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

    /// The maximum size of a header block collected from several frames. Fields beyond the limits of a message are decoded but not
    /// stored, so that the stream can be refused while the connection continues.
    pub(crate) fn max_block(&self) -> usize {
        self.rules.max_bytes.saturating_mul(2).max(MAX_SIZE_DEFAULT as usize)
    }
}

/// How much of its limits the peer has used.
#[derive(Debug, Default)]
pub(crate) struct UsedLimits {
    pub(crate) glitches: u32,
    /// Frames without effect.
    waste: u32,
    frames_at_once: u32,
    resets_at_once: u32,
}

impl UsedLimits {
    /// Starts a turn, before a read.
    pub(crate) fn begin_turn(&mut self) {
        self.waste = self.waste.saturating_sub(WASTE_FORGIVEN);
        self.frames_at_once = 0;
        self.resets_at_once = 0;
    }

    /// Whether the turn has reached its frame limit.
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

    /// Counts a frame without effect; returns whether the limit is exceeded.
    #[must_use]
    pub(crate) fn waste(&mut self) -> bool {
        self.waste += 1;
        self.waste > WASTE
    }

    /// Resets the count of frames without effect after useful work.
    #[inline]
    pub(crate) fn progress(&mut self) {
        self.waste = 0;
    }
}
