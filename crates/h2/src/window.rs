//! Receive windows: HAProxy's algorithm for `tune.h2.fe.rxbuf` and `tune.h2.be.rxbuf`.
//!
//! A receive buffer consists of units of `tune.bufsize`, at least one for each stream that may be open. Every stream may fill one
//! unit (or `initial-window-size`, if that is larger). Seven eighths of the units that are not reserved for open streams are shared
//! equally between the streams that are receiving a body: a stream's window is its own unit plus that share. A single upload thus
//! gets nearly the whole receive buffer, while a hundred uploads get one unit each. Granted credit cannot be revoked. Therefore the
//! credit that all streams have beyond their own units never exceeds those seven eighths, so that memory is bounded in any order of
//! events. Credit is returned as the caller consumes data, in portions that are large enough to be worth a frame.
//!
//! The connection window does not limit memory. It is raised to its maximum when the first body arrives, and replenished in large
//! portions.

use crate::frame::WINDOW_MAX;
use crate::limits::Config;
use crate::stream::StreamState;

/// The receive buffers of a connection.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The size of a unit in bytes.
    unit: u32,
    /// The number of units.
    units: u32,
    /// The share of every stream: a unit, or the initial window.
    own: u32,
    /// The number of streams receiving a body.
    pub(crate) receivers: u32,
    /// The total credit that streams have beyond their own shares.
    pub(crate) extra: u64,
}

impl Pool {
    pub(crate) fn new(config: &Config) -> Pool {
        let unit = config.buffer.max(1);
        let streams = if config.max_concurrent_streams == 0 { 100 } else { config.max_concurrent_streams };
        let units = config.receive_buffer.div_ceil(unit).max(streams);
        Pool { unit, units, own: config.initial_window().max(unit), receivers: 0, extra: 0 }
    }

    /// The credit of a stream beyond its own share.
    pub(crate) fn extra_of(&self, stream: &StreamState) -> u64 {
        (i64::from(stream.credit) + i64::from(stream.held) - i64::from(self.own)).max(0) as u64
    }

    /// The number of bytes that streams may share in addition to their own shares, with `open` streams.
    fn shared(&self, open: usize) -> u64 {
        u64::from(self.units).saturating_sub(open as u64) * 7 / 8 * u64::from(self.unit)
    }

    /// The credit to grant to a stream now; 0 if the amount is not worth a frame. Changes neither the stream's credit nor the
    /// totals of the pool.
    pub(crate) fn due(&self, stream: &StreamState, open: usize) -> u32 {
        let has = i64::from(stream.credit) + i64::from(stream.held);
        let shared = self.shared(open);
        let share = shared / u64::from(self.unit) / u64::from(self.receivers.max(1)) * u64::from(self.unit);
        let own = i64::from(self.own);
        let target = (own + share.min(1 << 30) as i64).min(i64::from(WINDOW_MAX));
        let left = shared.saturating_sub(self.extra).min(1 << 30) as i64;
        let grant = (target - has).min((own - has).max(0) + left);
        let is_short = i64::from(stream.credit) < own / 2 && grant >= own / 4;
        if grant > 0 && (is_short || grant >= target / 4) { grant.min(1 << 30) as u32 } else { 0 }
    }

    /// Registers a stream opened with the initial window as its credit.
    pub(crate) fn opened(&mut self, stream: &StreamState) {
        self.extra += self.extra_of(stream);
    }

    /// Grants credit to a stream.
    pub(crate) fn grant(&mut self, stream: &mut StreamState, credit: u32) {
        self.change(stream, |stream| stream.credit += credit as i32);
    }

    /// Modifies credit or held bytes of a stream, and updates the total excess.
    pub(crate) fn change(&mut self, stream: &mut StreamState, change: impl FnOnce(&mut StreamState)) {
        self.extra -= self.extra_of(stream);
        change(stream);
        self.extra += self.extra_of(stream);
    }

    /// The maximum credit of all streams, with `open` streams.
    #[cfg(test)]
    pub(crate) fn most(&self, open: usize) -> u64 {
        open as u64 * u64::from(self.own) + self.shared(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Streams;

    #[test]
    fn one_upload_gets_nearly_all_and_each_of_many_one_buffer() {
        let (mut pool, mut streams) = (Pool::new(&Config::default()), Streams::new());
        pool.receivers = 1;
        let key = streams.open(1, 0, 16_384);
        let stream = streams.at(key.slot);
        assert_eq!(pool.due(stream, 1), 86 * 16_384, "as HAProxy grants");
        pool.receivers = 100;
        assert_eq!(pool.due(stream, 100), 0);
    }

    #[test]
    fn streams_never_exceed_the_receive_buffer() {
        let (mut pool, mut streams) = (Pool::new(&Config::default()), Streams::new());
        for n in 0..100 {
            let key = streams.open(2 * n + 1, 0, 16_384);
            pool.receivers += 1;
            let stream = streams.at(key.slot);
            let due = pool.due(stream, n as usize + 1);
            pool.grant(stream, due);
        }
        let sum: u64 = streams.iter_mut().map(|(_, stream)| stream.credit as u64).sum();
        assert!(sum <= pool.most(100), "{sum} bytes");
    }

    #[test]
    fn streams_get_their_own_unit_without_a_share() {
        let (mut pool, mut streams) = (Pool::new(&Config::default()), Streams::new());
        pool.receivers = 1;
        pool.extra = pool.shared(0);
        let key = streams.open(1, 0, 0);
        assert_eq!(pool.due(streams.at(key.slot), 1), 16_384);
        streams.at(key.slot).credit = -49_151;
        assert_eq!(pool.due(streams.at(key.slot), 1), 65_535);
    }
}
