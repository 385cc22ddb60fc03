//! Computes the figures in the tiles: sums over everything that the page shows.

use state::Proxy;
use state::durations::BUCKETS;
use state::history::{SAMPLES, Series};

use crate::page::standing::{self, Load};

/// The number of intervals of which a point in the line of quantiles is computed.
const SMOOTHED: usize = 3;

/// The number of series of one side.
const SERIES: usize = 5;

/// The sums of one side of all proxies.
#[derive(Debug, Default, Clone)]
struct Sums {
    proxies: usize,
    rate: f64,
    current: u64,
    queued: u64,
    /// The samples, the oldest first. Response times are multiplied by the requests of their interval.
    samples: Vec<[u64; SERIES]>,
}

impl Sums {
    fn add(&mut self, load: &Load, history: Option<&state::history::History<{ state::history::OF_PROXY }>>) {
        self.proxies += 1;
        self.rate += load.rate;
        self.current += u64::from(load.current);
        self.queued += u64::from(load.queued);
        let Some(history) = history else { return };
        let of = |series| history.samples(series).rev();
        // The most recent sample is last, also of a young object.
        let all = of(Series::Requests)
            .zip(of(Series::Failures))
            .zip(of(Series::Response))
            .zip(of(Series::Queued))
            .zip(of(Series::Sessions));
        self.samples.resize(SAMPLES.max(self.samples.len()), [0; SERIES]);
        for (at, ((((requests, failures), response), queued), sessions)) in all.enumerate() {
            let sums = &mut self.samples[SAMPLES - 1 - at];
            let values = [requests, failures, response * requests, queued, sessions];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
}

/// The sums over all shown proxies.
#[derive(Debug, Default, Clone)]
pub(super) struct PageTotals {
    frontends: Sums,
    backends: Sums,
    pub(super) rate: f64,
    pub(super) current: u64,
    pub(super) queued: u64,
    /// The average response time in units of 10 µs, weighted by the rates of the backends.
    pub(super) response: u64,
    weighted: f64,
    /// Response times of all backends, per interval, the last one first.
    times: Vec<[u64; BUCKETS]>,
    /// The sum of the frontends' shares of failures, weighted by their rates. Used without a history.
    failing: f64,
}

impl PageTotals {
    pub(super) fn add_backend(&mut self, proxy: &Proxy, load: &Load) {
        self.backends.add(load, proxy.backend_history.get());
        self.weighted += load.rate * load.response.map_or(0, |response| response.average) as f64;
        // TCP servers only have times to connect.
        let times = proxy.response_times.get().filter(|_| proxy.mode == state::Mode::Http);
        for (at, sample) in times.iter().flat_map(|times| times.recent()).enumerate() {
            if at == self.times.len() {
                self.times.push([0; BUCKETS]);
            }
            self.times[at].iter_mut().zip(sample).for_each(|(sum, count)| *sum += count);
        }
        self.queued += u64::from(load.queued);
        if self.backends.rate > 0.0 {
            self.response = (self.weighted / self.backends.rate) as u64;
        }
        self.settle();
    }

    pub(super) fn add_frontend(&mut self, proxy: &Proxy, load: &Load) {
        self.frontends.add(load, proxy.frontend_history.get());
        self.failing += load.failed * load.rate;
        self.settle();
    }

    /// The side at which requests arrive: that of the frontends, if any is shown.
    fn entry(&self) -> &Sums {
        if self.frontends.proxies > 0 { &self.frontends } else { &self.backends }
    }

    fn settle(&mut self) {
        (self.rate, self.current) = (self.entry().rate, self.entry().current);
    }

    fn series(sums: &Sums, of: impl Fn(&[u64; SERIES]) -> u64) -> Vec<u64> {
        sums.samples.iter().map(of).collect()
    }

    /// Requests per interval.
    pub(super) fn requests(&self) -> Vec<u64> {
        Self::series(self.entry(), |sums| sums[Series::Requests as usize])
    }

    /// The share of failed requests per interval, in a thousandth of a percent.
    pub(super) fn failures(&self) -> Vec<u64> {
        Self::series(self.entry(), |sums| {
            (standing::share(sums[Series::Failures as usize], sums[Series::Requests as usize]) * 1e3) as u64
        })
    }

    /// The median and the 99th percentile of the response times of the last minute, in µs.
    pub(super) fn quantiles(&self) -> Option<[u64; 2]> {
        standing::quantiles(self.times.iter().take(standing::QUANTILE_SAMPLES))
    }

    /// The 99th percentile of the response time in each interval, with the intervals around it; without histograms the average. 0
    /// without requests.
    pub(super) fn responses(&self) -> Vec<u64> {
        if !self.times.is_empty() {
            let windows = (0..self.times.len()).map(|at| {
                let around = self.times[at..].iter().take(SMOOTHED);
                standing::quantiles(around).map_or(0, |[_, p99]| p99)
            });
            return windows.collect::<Vec<_>>().into_iter().rev().collect();
        }
        Self::series(&self.backends, |sums| {
            sums[Series::Response as usize] / sums[Series::Requests as usize].max(1)
        })
    }

    /// Waiting requests.
    pub(super) fn queue(&self) -> Vec<u64> {
        Self::series(&self.backends, |sums| sums[Series::Queued as usize])
    }

    /// Current sessions.
    pub(super) fn sessions(&self) -> Vec<u64> {
        Self::series(self.entry(), |sums| sums[Series::Sessions as usize])
    }

    /// The recent share of failed requests, in percent.
    pub(super) fn failed_share(&self) -> f64 {
        let recent = self.entry().samples.iter().rev().take(15);
        let (requests, failures) = recent.fold((0, 0), |(requests, failures), sums| {
            (requests + sums[Series::Requests as usize], failures + sums[Series::Failures as usize])
        });
        match (requests, self.rate > 0.0) {
            (0, true) => self.failing / self.rate,
            _ => standing::share(failures, requests),
        }
    }
}
