//! Path MTU discovery (RFC 8899, RFC 9000 section 14.3).

use std::time::{Duration, Instant};

use crate::settings::Settings;

/// The number of lost probes after which a size is too large.
const PROBES_MAX: u8 = 3;

/// The search ends when the sizes that are left differ by less.
const STEP_MIN: u16 = 20;

/// How long a result is used before larger sizes are tried again.
const INTERVAL: Duration = Duration::from_secs(600);

/// The number of losses of full packets, with none acknowledged between them, that make a black hole.
const LOSSES_MAX: u8 = 4;

/// The size of packets on a path, and the search for a larger one.
#[derive(Debug)]
pub(crate) struct Mtu {
    current: u16,
    /// The largest size that may work.
    upper: u16,
    /// The limit of both sides.
    most: u16,
    /// The size of the probe in flight.
    probe: Option<u16>,
    /// Lost probes of this size.
    lost: u8,
    /// When the search may begin again.
    resume: Option<Instant>,
    /// Losses of full packets since one was acknowledged.
    losses: u8,
}

impl Mtu {
    pub(crate) fn new(most: u16) -> Self {
        let current = Settings::INITIAL_MTU;
        let most = most.max(current);
        Self { current, upper: most, most, probe: None, lost: 0, resume: None, losses: 0 }
    }

    /// The size of packets.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// Applies the largest payload that the peer takes.
    pub(crate) fn limit(&mut self, peer: u64) {
        let peer = u16::try_from(peer).unwrap_or(u16::MAX);
        self.current = self.current.min(peer);
        self.most = self.most.min(peer).max(self.current);
        self.upper = self.upper.min(self.most);
    }

    /// Returns the size of a probe that is to be sent.
    pub(crate) fn next_probe(&mut self, now: Instant) -> Option<u16> {
        if self.probe.is_some() {
            return None;
        }
        if self.resume.is_some_and(|at| now >= at) {
            self.resume = None;
            self.upper = self.most;
        }
        let is_close = self.upper < self.current + STEP_MIN;
        let may_reach_limit = self.upper == self.most && self.current < self.most;
        if self.resume.is_some() || (is_close && !may_reach_limit) {
            return None;
        }
        // The upper end is the most likely size of a path without tunnels.
        let size = if self.upper == self.most { self.most } else { self.current.midpoint(self.upper) };
        Some(size)
    }

    /// A probe was sent.
    pub(crate) fn note_probe(&mut self, size: u16) {
        self.probe = Some(size);
    }

    /// The probe was acknowledged; returns whether the size has changed.
    pub(crate) fn probe_arrived(&mut self, now: Instant) -> bool {
        let Some(size) = self.probe.take() else { return false };
        self.lost = 0;
        self.losses = 0;
        let grows = size > self.current;
        self.current = self.current.max(size);
        self.end_if_close(now);
        grows
    }

    /// The probe was lost.
    pub(crate) fn probe_lost(&mut self, now: Instant) {
        let Some(size) = self.probe.take() else { return };
        self.lost += 1;
        if self.lost >= PROBES_MAX {
            self.lost = 0;
            self.upper = size - 1;
            self.end_if_close(now);
        }
    }

    fn end_if_close(&mut self, now: Instant) {
        if self.upper < self.current + STEP_MIN {
            self.resume = (self.current < self.most).then(|| now + INTERVAL);
        }
    }

    /// A packet of this size was acknowledged.
    pub(crate) fn packet_arrived(&mut self, size: u16) {
        if size > Settings::INITIAL_MTU {
            self.losses = 0;
        }
    }

    /// Packets were lost, the largest of which had this size. Returns whether the path lets only smaller packets pass now.
    pub(crate) fn packets_lost(&mut self, now: Instant, size: u16) -> bool {
        if size <= Settings::INITIAL_MTU || self.current <= Settings::INITIAL_MTU {
            return false;
        }
        self.losses += 1;
        if self.losses < LOSSES_MAX {
            return false;
        }
        self.losses = 0;
        self.upper = self.current - 1;
        self.current = Settings::INITIAL_MTU;
        self.resume = Some(now + INTERVAL / 10);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on a path that drops packets above `limit`.
    fn search(mtu: &mut Mtu, limit: u16, now: Instant) -> u32 {
        let mut probes = 0;
        while let Some(size) = mtu.next_probe(now) {
            mtu.note_probe(size);
            assert_eq!(mtu.next_probe(now), None, "one probe at a time");
            if size <= limit {
                mtu.probe_arrived(now);
            } else {
                mtu.probe_lost(now);
            }
            probes += 1;
            assert!(probes < 50);
        }
        probes
    }

    #[test]
    fn the_size_of_the_path_is_found() {
        let now = Instant::now();
        for limit in [1200, 1252, 1300, 1400, 1439, 1440, 1452, 1500] {
            let mut mtu = Mtu::new(1452);
            let probes = search(&mut mtu, limit, now);
            let found = mtu.current();
            assert!(found <= limit.max(1252) && found + STEP_MIN >= limit.min(1452), "{limit}: {found}");
            assert!(probes <= 24, "{limit}: {probes}");
            assert!(search(&mut mtu, 1500, now + INTERVAL) <= 1, "the search begins again later");
            assert_eq!(mtu.current(), 1452, "{limit}");
        }
    }

    #[test]
    fn black_holes_reset_the_size() {
        let now = Instant::now();
        let mut mtu = Mtu::new(1452);
        search(&mut mtu, 1500, now);
        for _ in 0..3 {
            assert!(!mtu.packets_lost(now, 1452));
        }
        mtu.packet_arrived(1452);
        for _ in 0..3 {
            assert!(!mtu.packets_lost(now, 1452));
        }
        assert!(!mtu.packets_lost(now, 100), "small packets do not count");
        assert!(mtu.packets_lost(now, 1452));
        assert_eq!(mtu.current(), 1252);
        assert_eq!(mtu.next_probe(now), None);
        assert!(mtu.next_probe(now + INTERVAL).is_some());
    }

    #[test]
    fn the_peers_limit_applies() {
        let mut mtu = Mtu::new(1452);
        mtu.limit(1200);
        assert_eq!((mtu.current(), mtu.next_probe(Instant::now())), (1200, None));
    }
}
