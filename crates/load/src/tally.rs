//! The counters of one thread. The thread writes them with plain stores, and the thread that prints reads them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::Nanos;
use crate::options::HttpVersion;

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection could not be opened.
    Connect,
    /// The TLS or QUIC handshake failed.
    Handshake,
    /// The time limit of `-w` has passed without progress.
    Timeout,
    /// The connection was closed or failed during the request.
    Closed,
    /// The server reset the stream.
    Reset,
    /// The server violated the protocol.
    Protocol,
}

impl Failure {
    /// All of them, in the order of the report.
    pub(crate) const ALL: [Self; 6] =
        [Self::Connect, Self::Handshake, Self::Timeout, Self::Closed, Self::Reset, Self::Protocol];

    /// The name in the report.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Protocol => "protocol",
        }
    }
}

/// The counters of one thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadTally {
    /// Connections that are open, or being opened.
    pub(crate) open: Counter,
    /// Connections opened so far.
    pub(crate) connections: Counter,
    /// Complete responses.
    pub(crate) requests: Counter,
    /// Bytes received: heads and bodies, with the framing of HTTP but without TLS, QUIC and TCP.
    pub(crate) bytes: Counter,
    /// Failed requests, by reason.
    pub(crate) failures: [Counter; 6],
    /// Requests that are in the sums below.
    pub(crate) measured: Counter,
    /// The sum of the times to the first byte.
    pub(crate) first_byte: Counter,
    /// The sum of the times to the last byte.
    pub(crate) last_byte: Counter,
    /// Final responses by HTTP version and class of status.
    pub(crate) statuses: [[Counter; 5]; 4],
    /// Users that have started.
    pub(crate) users: Counter,
}

/// A counter that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only its thread may call this.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Subtracts one.
    pub(crate) fn decrement(&self) {
        self.add(u64::MAX);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl ThreadTally {
    /// Counts a response. `times` are those to the first and to the last byte, if the request is measured.
    #[inline]
    pub(crate) fn answered(&self, version: HttpVersion, status: u16, times: Option<(Nanos, Nanos)>) {
        self.requests.add(1);
        // HTTP/0.9 has no statuses and counts as 200.
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.statuses[version as usize][class].add(1);
        if let Some((first, last)) = times {
            self.measured.add(1);
            self.first_byte.add(first);
            self.last_byte.add(last);
        }
    }
}

/// Totals over all threads at one point in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LoadTotals {
    pub(crate) open: u64,
    pub(crate) connections: u64,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) failures: [u64; 6],
    pub(crate) measured: u64,
    pub(crate) first_byte: u64,
    pub(crate) last_byte: u64,
    pub(crate) statuses: [[u64; 5]; 4],
    pub(crate) users: u64,
}

impl LoadTotals {
    /// Sums up.
    pub(crate) fn of<'a>(tallies: impl Iterator<Item = &'a ThreadTally>) -> Self {
        let mut sum = Self::default();
        for tally in tallies {
            let pairs = [
                (&mut sum.open, &tally.open),
                (&mut sum.connections, &tally.connections),
                (&mut sum.requests, &tally.requests),
                (&mut sum.bytes, &tally.bytes),
                (&mut sum.measured, &tally.measured),
                (&mut sum.first_byte, &tally.first_byte),
                (&mut sum.last_byte, &tally.last_byte),
                (&mut sum.users, &tally.users),
            ];
            let statuses = sum.statuses.as_flattened_mut().iter_mut().zip(tally.statuses.as_flattened());
            let failures = sum.failures.iter_mut().zip(&tally.failures);
            for (total, counter) in pairs.into_iter().chain(statuses).chain(failures) {
                *total = total.wrapping_add(counter.get());
            }
        }
        sum
    }

    /// Failed requests.
    pub(crate) fn errors(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// Responses of a class of statuses, beginning with 0 for 1xx.
    pub(crate) fn class(&self, class: usize) -> u64 {
        self.statuses.iter().map(|version| version[class]).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_sum_up_the_threads() {
        let tallies = [ThreadTally::default(), ThreadTally::default()];
        tallies[0].answered(HttpVersion::H1, 204, Some((5, 7)));
        tallies[1].answered(HttpVersion::H2, 503, None);
        tallies[1].answered(HttpVersion::Hq, 0, Some((1, 1)));
        tallies[1].failures[Failure::Timeout as usize].add(3);
        tallies[0].open.add(2);
        tallies[0].open.decrement();
        let totals = LoadTotals::of(tallies.iter());
        assert_eq!((totals.requests, totals.errors(), totals.open), (3, 3, 1));
        assert_eq!((totals.measured, totals.first_byte, totals.last_byte), (2, 6, 8));
        assert_eq!([0, 1, 2, 3, 4].map(|class| totals.class(class)), [1, 1, 0, 0, 1]);
        assert_eq!(totals.statuses[HttpVersion::H2 as usize][4], 1);
    }
}
