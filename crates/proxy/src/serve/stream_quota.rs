//! Determines how many streams a new client connection is offered. If its worker is busy, it is offered fewer
//! (`tune.h2.fe.max-concurrent-streams … rq-load`). If the total is limited (`tune.streams-elasticity`), one stream is set aside
//! for each of `maxconn` connections. Each connection gets its one stream and a share of the rest, which shrinks as streams are
//! given out.
//!
//! The results are exactly the values that HAProxy 3.5 advertises.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plan::global::Moderation;
use runtime::shared::Shared as _;
use runtime::usage;
use state::Process;

use crate::worker::Worker;

/// The share of a connection. Dropping it returns the share.
pub(super) struct StreamQuota {
    process: Arc<Process>,
    extra: u64,
}

impl StreamQuota {
    /// Takes a share, and returns the configuration to advertise, or `None` if the number is unlimited.
    pub(super) fn take(worker: &Worker, config: &Arc<h2::Config>) -> Option<(StreamQuota, Arc<h2::Config>)> {
        let percent = u64::from(worker.shared.plan.global.tune.streams_elasticity);
        if percent == 0 {
            return None;
        }
        let process = worker.shared.process.clone();
        let most = u64::from(process.maxconn.load(Relaxed));
        let all = (most * percent / 100).saturating_sub(most);
        let limit = match config.max_concurrent_streams {
            0 => u32::MAX,
            limit => limit,
        };
        let extra = extra(all, process.extra_streams.load(Relaxed), u64::from(limit - 1));
        process.extra_streams.add(extra);
        let own = h2::Config { max_concurrent_streams: 1 + extra as u32, ..h2::Config::clone(config) };
        Some((StreamQuota { process, extra }, Arc::new(own)))
    }
}

/// Returns how many of `limit` streams (0 for no limit) to offer while `load` tasks wait on the worker. Above the allowed load,
/// the number decreases with the excess.
pub(super) fn moderated(limit: u32, own: Moderation, load: u32) -> u32 {
    if load <= own.load {
        return limit;
    }
    let most = if limit == 0 { u32::MAX } else { limit };
    let (allowed, load) = (u128::from(own.load), u128::from(load));
    let told = u128::from(most) * allowed * allowed / (load * load);
    u32::try_from(told).unwrap_or(most).max(own.least).min(most)
}

/// Returns the configuration to advertise while the worker is busy (`rq-load`), or `None` for the usual one.
pub(super) async fn moderate(own: Moderation, config: &h2::Config) -> Option<Arc<h2::Config>> {
    let limit = config.max_concurrent_streams;
    let told = moderated(limit, own, usage::load().await);
    (told != limit).then(|| Arc::new(h2::Config { max_concurrent_streams: told, ..config.clone() }))
}

impl Drop for StreamQuota {
    fn drop(&mut self) {
        self.process.extra_streams.sub(self.extra);
    }
}

/// Returns how many streams beyond the first to offer, at most `limit`, if `taken` of `all` are already given out.
fn extra(all: u64, taken: u64, limit: u64) -> u64 {
    let left = all.saturating_sub(taken);
    if left == 0 { 0 } else { (limit.saturating_mul(left) / all).max(1).min(limit) }
}

#[cfg(test)]
mod tests {
    use super::{Moderation, extra, moderated};

    /// Returns the offers to `count` consecutive connections.
    fn told(most: u64, percent: u64, limit: u64, count: usize) -> Vec<u64> {
        let all = most * percent / 100 - most;
        let mut taken = 0;
        let each = std::iter::repeat_with(|| {
            let own = extra(all, taken, limit - 1);
            taken += own;
            1 + own
        });
        each.take(count).collect()
    }

    #[test]
    fn streams_shrink_with_the_square_of_the_excess_load() {
        let told = |limit, load| moderated(limit, Moderation { load: 50, least: 5 }, load);
        assert_eq!([0, 50, 51, 100, 150, 1000].map(|load| told(100, load)), [100, 100, 96, 25, 11, 5]);
        assert_eq!([told(3, 1000), told(0, 10), told(0, 100)], [3, 0, u32::MAX / 4]);
        assert_eq!(told(100, u32::MAX), 5);
    }

    #[test]
    fn advertised_streams_match_haproxy() {
        assert_eq!(told(100, 500, 100, 12), [100, 75, 57, 43, 32, 25, 19, 14, 11, 9, 7, 5]);
        assert_eq!(told(10, 300, 7, 10), [7, 5, 4, 3, 2, 2, 2, 2, 2, 1]);
        assert_eq!(told(10, 200, 100, 3), [100, 1, 1]);
        assert_eq!(told(10, 100, 100, 2), [1, 1]);
        assert_eq!(told(10, 500, 1, 2), [1, 1]);
    }
}
