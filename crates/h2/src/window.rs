//! What the peer may send: HAProxy's rule for `tune.h2.fe.rxbuf` and `tune.h2.be.rxbuf`.
//!
//! A receive buffer is so many units of `tune.bufsize`, at least one for each stream that may be
//! open. Every stream may fill one (or `initial-window-size`, if that is more). Seven eighths of the
//! units that no open stream takes are shared equally between the streams that receive a body: a
//! stream's window is its own unit and that share. So one upload alone gets nearly the whole
//! receive buffer, and a hundred get one unit each. Credit that was granted cannot be taken back:
//! what all streams have beyond their own units never exceeds those seven eighths, so that memory is
//! bounded whatever their order. Credit comes back as the caller consumes, in parts that are large
//! enough to be worth a frame.
//!
//! The window of the connection is not what bounds memory. It is raised to its maximum when the
//! first body comes, and given back in large parts as bytes come.

use crate::frame::WINDOW_MAX;
use crate::limits::Config;
use crate::stream::StreamState;

/// The receive buffers of a connection.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Bytes of one.
    unit: u32,
    /// How many there are.
    units: u32,
    /// What every stream may have: a unit, or the initial window.
    own: u32,
    /// Streams that receive a body.
    pub(crate) receivers: u32,
    /// What streams have beyond their own.
    pub(crate) extra: u64,
}

impl Pool {
    pub(crate) fn new(config: &Config) -> Pool {
        let unit = config.buffer.max(1);
        let streams = if config.max_concurrent_streams == 0 { 100 } else { config.max_concurrent_streams };
        let units = config.receive_buffer.div_ceil(unit).max(streams);
        Pool { unit, units, own: config.initial_window().max(unit), receivers: 0, extra: 0 }
    }

    /// What a stream has beyond its own.
    pub(crate) fn extra_of(&self, stream: &StreamState) -> u64 {
        (i64::from(stream.credit) + i64::from(stream.held) - i64::from(self.own)).max(0) as u64
    }

    /// Bytes that streams may share beyond their own, when so many are open.
    fn shared(&self, open: usize) -> u64 {
        u64::from(self.units).saturating_sub(open as u64) * 7 / 8 * u64::from(self.unit)
    }

    /// How much credit to grant to a stream now; 0 when that is not worth a frame. The stream's
    /// credit and what the pool counts are not changed.
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

    /// A stream is open with the credit of the initial window.
    pub(crate) fn opened(&mut self, stream: &StreamState) {
        self.extra += self.extra_of(stream);
    }

    /// Grants credit.
    pub(crate) fn grant(&mut self, stream: &mut StreamState, credit: u32) {
        self.change(stream, |stream| stream.credit += credit as i32);
    }

    /// Changes credit or what is held, and keeps the sum of what streams have beyond their own.
    pub(crate) fn change(&mut self, stream: &mut StreamState, change: impl FnOnce(&mut StreamState)) {
        self.extra -= self.extra_of(stream);
        change(stream);
        self.extra += self.extra_of(stream);
    }

    /// The most that the streams can have, when so many are open.
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
    fn one_upload_gets_nearly_all_and_a_hundred_get_one_buffer_each() {
        let (mut pool, mut streams) = (Pool::new(&Config::default()), Streams::new());
        pool.receivers = 1;
        let key = streams.open(1, 0, 16_384);
        let stream = streams.at(key.slot);
        assert_eq!(pool.due(stream, 1), 86 * 16_384, "as HAProxy grants");
        pool.receivers = 100;
        assert_eq!(pool.due(stream, 100), 0);
    }

    #[test]
    fn what_streams_have_never_exceeds_the_receive_buffer() {
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
    fn a_stream_without_credit_gets_some_although_nothing_is_left_to_share() {
        let (mut pool, mut streams) = (Pool::new(&Config::default()), Streams::new());
        pool.receivers = 1;
        pool.extra = pool.shared(0);
        let key = streams.open(1, 0, 0);
        assert_eq!(pool.due(streams.at(key.slot), 1), 16_384);
        streams.at(key.slot).credit = -49_151;
        assert_eq!(pool.due(streams.at(key.slot), 1), 65_535);
    }
}
