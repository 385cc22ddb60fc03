//! `show outliers`, `show retry-budget` and `show hedge`, and the same values in the exporter (docs/beyond-haproxy.md). HAProxy has
//! no equivalent.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use state::extra_attempts::BackendLoad;
use state::performance::{EjectionCause, OutlierState};
use state::{ExtraAttempts, Server};

use crate::config_view::{ConfigView, PoliciesView, ProxyView};
use crate::field::DescribedMetric;

/// The backends selected by a command: the named one, or all that have the policy.
fn chosen<'a>(
    view: &'a ConfigView,
    name: &str,
    keyword: &str,
    has: impl Fn(&PoliciesView) -> bool,
) -> Result<Vec<&'a ProxyView>, String> {
    if name.is_empty() {
        return Ok(view.proxies.iter().filter(|proxy| has(&proxy.policies)).collect());
    }
    let is_named = |proxy: &&ProxyView| proxy.state.is_backend && *proxy.state.name == *name;
    match view.proxies.iter().find(is_named) {
        None => Err("Can't find backend.".to_owned()),
        Some(proxy) if !has(&proxy.policies) => Err(format!("Backend '{name}' has no '{keyword}'.")),
        Some(proxy) => Ok(vec![proxy]),
    }
}

/// The response to `show outliers`: the backend `name`, or all that have the policy if that is empty.
///
/// # Errors
/// The message for the client if the backend does not exist or has no such policy.
pub fn show_outliers(view: &ConfigView, name: &str) -> Result<String, String> {
    let proxies = chosen(view, name, "outlier-ejection", |own| own.outliers)?;
    let mut out =
        "# be_name srv_name standing weight_percent left_ms failed_in_a_row ejections_in_a_row".to_owned();
    for cause in EjectionCause::ALL {
        let _ = write!(out, " by_{}", cause.name().replace('-', "_"));
    }
    out.push_str(" attempts failed p50_us p90_us\n");
    let now = now_ms();
    for proxy in proxies {
        for server in proxy.state.servers.load().iter() {
            outlier(&mut out, server, now);
        }
    }
    Ok(out)
}

fn outlier(out: &mut String, server: &Server, now: u64) {
    let Some(own) = server.performance() else { return };
    let (record, totals) = (*own.record(), own.totals());
    let (standing, left) = match record.standing {
        OutlierState::Full => ("full", 0),
        OutlierState::Ejected { until } => ("ejected", until.saturating_sub(now)),
        OutlierState::Recovering { .. } => ("recovering", 0),
    };
    let _ = write!(
        out,
        "{} {} {standing} {} {left} {} {}",
        server.proxy,
        server.name,
        own.trust(),
        own.failed_in_a_row(),
        record.in_a_row
    );
    record.ejections.iter().for_each(|count| {
        let _ = write!(out, " {count}");
    });
    let quantile = |quantile| totals.answered.quantile(quantile).unwrap_or(0.0) as u64;
    let _ = writeln!(out, " {} {} {} {}", totals.attempts(), totals.failed, quantile(0.5), quantile(0.9));
}

/// The response to `show retry-budget`: the backend `name`, or all that have the policy if that is empty.
///
/// # Errors
/// The message for the client if the backend does not exist or has no such policy.
pub fn show_retry_budget(view: &ConfigView, name: &str) -> Result<String, String> {
    let proxies = chosen(view, name, "retry-budget", |own| own.budget.is_some())?;
    let mut out =
        "# be_name percent min requests last_second extra extra_last_second retries retries_refused\n"
            .to_owned();
    let now = now_ms();
    for proxy in proxies {
        let state = &proxy.state;
        let (percent, min) = proxy.policies.budget.unwrap_or_default();
        let BackendLoad { live, recent } = BackendLoad::of(&state.backend, now);
        let extra = state.extra();
        let (in_flight, window) =
            extra.map_or((0, 0), |own| (own.in_flight.load(Relaxed), own.recent.count(now)));
        let retries = extra.map_or(0, |own| own.sum(|own| &own.retries));
        let refused = extra.map_or(0, |own| own.sum(|own| &own.retries_refused));
        let name = &state.name;
        let _ =
            writeln!(out, "{name} {percent} {min} {live} {recent} {in_flight} {window} {retries} {refused}");
    }
    Ok(out)
}

/// The response to `show hedge`: the backend `name`, or all that have the policy if that is empty.
///
/// # Errors
/// The message for the client if the backend does not exist or has no such policy.
pub fn show_hedge(view: &ConfigView, name: &str) -> Result<String, String> {
    let proxies = chosen(view, name, "hedge", |own| own.hedge.is_some())?;
    let mut out =
        "# be_name after delay_us max_percent hedges won refused over_budget without_server\n".to_owned();
    for proxy in proxies {
        let Some((after, fixed, max)) = &proxy.policies.hedge else { continue };
        let extra = proxy.state.extra();
        let of = |count: fn(&state::extra_attempts::ExtraCounters) -> &runtime::Count| {
            extra.map_or(0, |own| own.sum(count))
        };
        let delay = fixed.unwrap_or_else(|| extra.map_or(0, |own| own.delay_us.load(Relaxed)));
        let _ = writeln!(
            out,
            "{} {after} {delay} {max} {} {} {} {} {}",
            proxy.state.name,
            of(|own| &own.hedges),
            of(|own| &own.hedges_won),
            of(|own| &own.hedges_refused),
            of(|own| &own.hedges_over_budget),
            of(|own| &own.hedges_without_server),
        );
    }
    Ok(out)
}

/// A backend metric: name, type, help, additional labels, getter.
type BackendMetric = (&'static str, &'static str, &'static str, &'static str, fn(&ExtraAttempts) -> f64);

/// The metrics of attempts beyond the first.
#[rustfmt::skip]
const BACKENDS: &[BackendMetric] = &[
    ("extra_attempts",               "gauge",   "Number of additional attempts in progress.",            "", |own| f64::from(own.in_flight.load(Relaxed))),
    ("retries_within_budget_total",  "counter", "Total number of retries allowed by the budget.",        "", |own| own.sum(|own| &own.retries) as f64),
    ("retries_refused_total",        "counter", "Total number of retries rejected by the budget.",       "", |own| own.sum(|own| &own.retries_refused) as f64),
    ("hedges_total",                 "counter", "Total number of hedged requests.",                      "", |own| own.sum(|own| &own.hedges) as f64),
    ("hedges_won_total",             "counter", "Total number of requests that the second server answered first.", "", |own| own.sum(|own| &own.hedges_won) as f64),
    ("hedges_refused_total",         "counter", "Total number of requests that were due for hedging, but not hedged.", ",reason=\"share\"",  |own| own.sum(|own| &own.hedges_refused) as f64),
    ("hedges_refused_total",         "counter", "",                                                      ",reason=\"budget\"",    |own| own.sum(|own| &own.hedges_over_budget) as f64),
    ("hedges_refused_total",         "counter", "",                                                      ",reason=\"no-server\"", |own| own.sum(|own| &own.hedges_without_server) as f64),
    ("hedge_delay_seconds",          "gauge",   "Current hedging delay, if it follows a quantile.",      "", |own| own.delay_us.load(Relaxed) as f64 / 1e6),
];

const EJECTED: &str = "Whether the server is ejected because it performs worse than its peers.";
const EJECTIONS: &str = "Total number of ejections of the server.";

/// The metrics: object, name, type, description, labels.
pub(crate) fn described() -> impl Iterator<Item = DescribedMetric> {
    let backends = BACKENDS.iter().filter(|row| !row.2.is_empty()).map(|(name, kind, help, labels, _)| {
        let labels: &[&str] = if labels.is_empty() { &["proxy"] } else { &["proxy", "reason"] };
        ("backend", (*name).to_owned(), *kind, *help, labels)
    });
    backends.chain([
        ("server", "ejected".to_owned(), "gauge", EJECTED, &["proxy", "server"][..]),
        ("server", "ejections_total".to_owned(), "counter", EJECTIONS, &["proxy", "server", "cause"]),
    ])
}

/// The metrics of retry budgets, hedging and outlier ejection; `wanted` selects them by object kind and name.
pub(crate) fn metrics(view: &ConfigView, wanted: impl Fn(&str, &str) -> bool) -> String {
    let mut out = String::new();
    let backends = || {
        let has = |proxy: &&ProxyView| proxy.policies.budget.is_some() || proxy.policies.hedge.is_some();
        view.proxies.iter().filter(has).filter_map(|proxy| Some((&proxy.state.name, proxy.state.extra()?)))
    };
    for (name, kind, help, labels, value) in BACKENDS.iter().filter(|row| wanted("backend", row.0)) {
        if backends().next().is_some() && !help.is_empty() {
            let _ = writeln!(out, "# HELP weir_backend_{name} {help}\n# TYPE weir_backend_{name} {kind}");
        }
        for (proxy, extra) in backends() {
            let _ = writeln!(out, "weir_backend_{name}{{proxy=\"{proxy}\"{labels}}} {}", value(extra));
        }
    }
    let lists: Vec<_> = view
        .proxies
        .iter()
        .filter(|proxy| proxy.policies.outliers)
        .map(|proxy| proxy.state.servers.load_full())
        .collect();
    let servers =
        || lists.iter().flat_map(|list| list.iter()).filter_map(|own| Some((own, own.performance()?)));
    if servers().next().is_none() {
        return out;
    }
    if wanted("server", "ejected") {
        let _ = writeln!(out, "# HELP weir_server_ejected {EJECTED}\n# TYPE weir_server_ejected gauge");
        for (server, own) in servers() {
            let (proxy, name) = (&server.proxy, &server.name);
            let ejected = u8::from(own.trust() == 0);
            let _ = writeln!(out, "weir_server_ejected{{proxy=\"{proxy}\",server=\"{name}\"}} {ejected}");
        }
    }
    if wanted("server", "ejections_total") {
        let _ = writeln!(
            out,
            "# HELP weir_server_ejections_total {EJECTIONS}\n# TYPE weir_server_ejections_total counter"
        );
        for (server, own) in servers() {
            let (proxy, name, record) = (&server.proxy, &server.name, *own.record());
            for cause in EjectionCause::ALL {
                let (count, cause) = (record.ejections[cause as usize], cause.name());
                let _ = writeln!(
                    out,
                    "weir_server_ejections_total{{proxy=\"{proxy}\",server=\"{name}\",cause=\"{cause}\"}} {count}"
                );
            }
        }
    }
    out
}
