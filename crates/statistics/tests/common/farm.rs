//! Fifteen proxies with sixty servers and two minutes of traffic: nine servers are down, among them all of `legacy`, and one of `api`
//! fails every request.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use state::durations::BucketedTimes;
use state::server::{CheckResult, Operational};
use statistics::{ConfigView, Statistics, sampling};

use super::{proxy, server};

const BACKENDS: &[(&str, usize, usize)] = &[
    ("www_storefront_frankfurt_primary_production", 10, 1),
    ("api", 8, 1),
    ("checkout_and_payment_service_with_a_very_long_name_eu_central_1", 6, 2),
    ("static_assets", 8, 1),
    ("websocket", 4, 1),
    ("legacy", 3, 3),
    ("auth", 5, 0),
    ("search", 6, 0),
    ("redis", 7, 0),
    ("reports", 3, 0),
];

/// The farm after `rounds` rounds of the sampler.
pub(crate) fn farm(rounds: usize) -> Arc<Statistics> {
    let process = Arc::new(state::Process::default());
    process.maxconn.store(8000, Relaxed);
    let mut proxies: Vec<_> = ["https_public", "api_partners", "http_redirect", "internal", "stats"]
        .iter()
        .enumerate()
        .map(|(at, name)| proxy(at as u32 + 2, name, true, false, Vec::new()))
        .collect();
    for (at, (name, servers, down)) in BACKENDS.iter().enumerate() {
        let servers: Vec<_> = (0..*servers)
            .map(|number| {
                let own = server(number as u32 + 1, &format!("{}-{number:02}", &name[..3]), true, false);
                let is_down = number < *down;
                let (status, code, description) = match is_down {
                    true => ("L4CON", None, "ECONNREFUSED returned by OS (Connection refused)"),
                    false => ("L7OK", Some(200), ""),
                };
                let description = description.to_owned();
                own.health.last.store(Arc::new(CheckResult { status, code, duration_ms: 2, description }));
                if is_down {
                    own.health.level.store(0, Relaxed);
                    own.set_operational(Operational::Stopped, base::clock::now_ms());
                }
                own
            })
            .collect();
        proxies.push(proxy(at as u32 + 10, name, false, true, servers));
    }
    let view = ConfigView { node: "edge-lb-03".into(), proxies, ..ConfigView::default() };
    let statistics = Arc::new(Statistics::new(process, view));
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..rounds {
        serve(&statistics, &mut random);
        sampling::round(&statistics, true).for_each(drop);
    }
    statistics
}

/// Counts the requests of one interval.
fn serve(statistics: &Statistics, random: &mut fastrand::Rng) {
    for view in &statistics.view().proxies {
        let own = &view.state;
        if own.is_frontend {
            let (requests, failures) = (random.u64(100..200), random.u64(5..20));
            own.frontend.mine().requests_total.add(requests);
            own.frontend.mine().traffic.responses.0[4].add(failures);
        }
        for server in own.servers.load().iter() {
            let requests = if server.is_up() { random.u64(1..30) } else { 0 };
            let counters = server.counters.mine();
            counters.traffic.sessions_total.add(requests);
            let class = if &*own.name == "api" && &*server.name == "api-02" { 4 } else { 1 };
            counters.traffic.responses.0[class].add(requests);
            own.backend.mine().traffic.sessions_total.add(requests);
            own.backend.mine().traffic.responses.0[class].add(requests);
            for _ in 0..requests {
                let us = random.u64(300..40_000);
                let times = BucketedTimes::new(&[Some(0), Some(100), Some(us), Some(us + 200)]);
                server.durations.add(&times);
                own.durations.backend.add(&times);
                server.counters.mine().times.add([0, 0, us / 1000, us / 1000]);
                own.backend.mine().times.add([0, 0, us / 1000, us / 1000]);
            }
        }
        if &*own.name == "legacy" {
            own.backend.mine().traffic.sessions_total.add(30);
            own.backend.mine().traffic.responses.0[4].add(30);
        }
    }
}
